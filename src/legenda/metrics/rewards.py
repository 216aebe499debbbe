"""Rewards of self-critical training, computed on token ids: CIDEr-D and BLEU.

Sources: Rennie et al., "Self-critical Sequence Training for Image Captioning", 2017; the reward code of the released
AoANet, X-LAN and MD-SAN, to which the values are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.metrics.bleu import bleu_scores, bleu_statistics
from legenda.metrics.cider import consensus
from legenda.text.ngrams import MAX_ORDER, Comparison, DocumentFrequencies

_Eos = Literal["keep", "append", "drop"]
Ids = tuple[int, ...]
References = Sequence[Sequence[Sequence[int]]] | Mapping[Hashable, Sequence[Sequence[int]]]


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
        self.references: dict[Hashable, list[Ids]] = {}
        for image, group in groups.items():
            if not len(group):
                raise DataError(f"image {image!r} has no references; give at least one or leave the image out")
            self.references[image] = [self._until_eos(list(map(int, caption))) for caption in group]

    def _until_eos(self, ids: list[int], *, append: bool = True) -> Ids:
        """Return the tokens up to EOS, with or without EOS itself; append: whether `eos="append"` applies."""
        if self.eos_token_id in ids:
            ids = ids[: ids.index(self.eos_token_id) + (self.eos != "drop")]
        elif self.eos == "append" and append:
            ids = [*ids, self.eos_token_id]
        if ids and min(ids) < 0:
            raise DataError(f"the caption {ids} has a negative id; give the ids of tokens")
        return tuple(ids)

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
        B, K, _ = array.shape
        if B * K == 0:
            return np.zeros((B, K))
        captions = [self._until_eos(sample, append=False) for group in array.tolist() for sample in group]
        references = [[caption[: self.max_reference_length] for caption in self.references[name]] for name in names]
        return np.reshape(self._score(Comparison(captions, references, np.repeat(np.arange(B), K))), (B, K))

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
        groups = self.references.values()
        if isinstance(df, DocumentFrequencies):
            if any(isinstance(token, str) for token in next(iter(df.counts), ())):
                raise DataError("the document frequencies are of words, not of token ids; count them on token ids")
            self.df = df
        elif df == "references":
            self.df = DocumentFrequencies.from_references(groups)
        elif df == "captions":
            self.df = DocumentFrequencies.from_references([caption] for group in groups for caption in group)
        else:
            raise ConfigError(f"df is {df!r}; {did_you_mean(str(df), ['references', 'captions'])}")

    def _score(self, words: Comparison) -> ArrayLike:
        return consensus(words, self.df)


class BleuReward(_Reward):
    """BLEU-4, in 0..1, of each sample; the arguments are those of `CiderD` without `df`."""

    def _score(self, words: Comparison) -> ArrayLike:
        return bleu_scores(bleu_statistics(words))[:, MAX_ORDER - 1]
