"""Rewards of self-critical training, computed on token ids: CIDEr-D and BLEU.

Sources: Rennie et al., "Self-critical Sequence Training for Image Captioning", 2017; the reward code of the released
AoANet, X-LAN and MD-SAN, to which the values are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.metrics.bleu import bleu_scores, bleu_statistics
from legenda.metrics.cider import consensus
from legenda.text.ngrams import MAX_ORDER, Comparison, DocumentFrequencies

_Eos = Literal["keep", "append", "drop"]
_IntArray = NDArray[np.int64]
_Caption = Sequence[int] | NDArray[np.integer]
References = Sequence[Sequence[_Caption]] | Mapping[Hashable, Sequence[_Caption]]


def _split(tokens: _IntArray, lengths: _IntArray) -> list[_IntArray]:
    """Return each of several concatenated captions."""
    return [tokens[begin:end] for begin, end in pairwise([0, *lengths.cumsum().tolist()])]


class _Reward:
    """Base class of the rewards: the references of each image as token ids, and the checks of a call."""

    def __init__(
        self,
        references: References,
        *,
        eos_token_id: int = 0,
        eos: _Eos = "keep",
        max_reference_length: int | None = None,
    ) -> None:
        if eos not in get_args(_Eos):
            raise ConfigError(f"eos is {eos!r}; {did_you_mean(str(eos), get_args(_Eos))}")
        self.eos_token_id, self.eos, self.max_reference_length = eos_token_id, eos, max_reference_length
        groups = references if isinstance(references, Mapping) else dict(enumerate(references))
        for image, group in groups.items():
            if not len(group):
                raise DataError(f"image {image!r} has no references; give at least one or leave the image out")
        captions = list(chain.from_iterable(groups.values()))
        lengths = np.array(list(map(len, captions)), np.int64)
        tokens = np.concatenate(captions or [[]], dtype=np.int64, casting="unsafe")  # an empty list is of floats
        self.tokens, self.lengths = self._until_eos(tokens, lengths, append=eos == "append")
        cut = iter(_split(self.tokens, self.lengths))
        self.references = {image: list(islice(cut, len(group))) for image, group in groups.items()}

    def _until_eos(self, tokens: _IntArray, lengths: _IntArray, *, append: bool = False) -> tuple[_IntArray, _IntArray]:
        """Return captions, concatenated, up to EOS, with or without EOS itself, and their lengths.

        append: whether captions without EOS get one.
        """
        owners = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(tokens)) - (lengths.cumsum() - lengths)[owners]
        words, is_eos = lengths.copy(), tokens == self.eos_token_id
        np.minimum.at(words, owners[is_eos], places[is_eos])
        has_no_eos = words == lengths
        lengths = words if self.eos == "drop" else words + ~has_no_eos
        tokens = tokens[places < lengths[owners]]
        if (wrong := tokens[tokens < 0]).size:
            raise DataError(f"a caption has the negative id {wrong[0]}; give the ids of tokens")
        if append:
            tokens, lengths = np.insert(tokens, lengths.cumsum()[has_no_eos], self.eos_token_id), lengths + has_no_eos
        return tokens, lengths

    def __call__(self, images: Iterable[Hashable], samples: ArrayLike) -> NDArray[np.float64]:
        """Return the reward of each sample, shape (B, K).

        images: the ids of B images, or their indices where the references are a sequence; they may repeat.
        samples: token ids, shape (B, K, T). A sample ends at its first EOS, or after T tokens.
        Raise DataError for an image without references, another shape, or a negative id before EOS.
        """
        array = np.asarray(samples)
        names = list(images.tolist() if isinstance(images, np.ndarray) else images)
        if array.ndim != 3 or len(array) != len(names) or array.dtype.kind not in "iu":
            raise DataError(
                f"the samples have the shape {array.shape} and the type {array.dtype}; give integers of the shape "
                f"({len(names)}, K, T) for {len(names)} image(s)"
            )
        if unknown := [name for name in names if name not in self.references]:
            raise DataError(
                f"there are no references for image {unknown[0]!r}; add them or give the ids of the references"
            )
        B, K, T = array.shape
        if B * K == 0:
            return np.zeros((B, K))
        captions = _split(*self._until_eos(array.reshape(-1).astype(np.int64), np.full(B * K, T)))
        references = [
            [caption[: self.max_reference_length].tolist() for caption in self.references[name]] for name in names
        ]
        words = Comparison([caption.tolist() for caption in captions], references, np.repeat(np.arange(B), K))
        return np.reshape(self._score(words), (B, K))

    def _score(self, words: Comparison) -> ArrayLike:
        """Return the reward of each sample."""
        raise NotImplementedError


class CiderD(_Reward):
    """CIDEr-D, in 0..10, of samples of token ids.

    references: a list of captions as token ids for each image, by image id or in order.
    eos_token_id: the id that ends a sample, and a reference where present; what follows it is ignored.
    eos: "keep" treats EOS like any other token, in samples and in references that have it; "append" also appends it to
        references without it; "drop" removes it.
    max_reference_length: the number of tokens, EOS included, to which references are truncated after document
        frequencies have been counted; None truncates nothing.
    df: what a document is: "references", all captions of an image; "captions", each caption; or document frequencies
        of token ids, as from `DocumentFrequencies.from_references`.

    The released codes correspond to: AoANet `eos="append", max_reference_length=16`; X-LAN `eos="keep"` with references
    that end in 0 and are truncated to 16 words; MD-SAN and M2 `eos="drop", df="captions"`, where distinct words outside
    the vocabulary need distinct ids, since these codes compare strings.
    """

    def __init__(
        self,
        references: References,
        *,
        eos_token_id: int = 0,
        eos: _Eos = "keep",
        max_reference_length: int | None = None,
        df: Literal["references", "captions"] | DocumentFrequencies = "references",
    ) -> None:
        super().__init__(references, eos_token_id=eos_token_id, eos=eos, max_reference_length=max_reference_length)
        if isinstance(df, DocumentFrequencies):
            if isinstance(next(iter(df.numbers), None), str):
                raise DataError("the document frequencies are of words, not of token ids; count them on token ids")
            self.df = df
        elif df == "references":
            self.df = DocumentFrequencies.from_ids(self.tokens, self.lengths, list(map(len, self.references.values())))
        elif df == "captions":
            self.df = DocumentFrequencies.from_ids(self.tokens, self.lengths, [1] * len(self.lengths))
        else:
            raise ConfigError(f"df is {df!r}; {did_you_mean(str(df), ['references', 'captions'])}")

    def _score(self, words: Comparison) -> ArrayLike:
        return consensus(words, self.df)


class BleuReward(_Reward):
    """BLEU-4, in 0..1, of each sample; the arguments are those of `CiderD` without `df`."""

    def _score(self, words: Comparison) -> ArrayLike:
        return bleu_scores(bleu_statistics(words))[:, MAX_ORDER - 1]
