"""Settings of a search: what a model stores and what a call changes, for PyTorch and the runtime alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal

import numpy as np

from legenda.compute import SearchOptions
from legenda.config import Config, Count, NonNegativeFloat, NonNegativeInt
from legenda.errors import ConfigError, did_you_mean
from legenda.text import Vocabulary


class GenerationConfig(Config):
    """Options of generation: each model has its own as `model.generation_config`, and every call may override them.

    Raises ConfigError for a value of the wrong type or out of range.
    """

    bos_token_id: NonNegativeInt = 0
    """The token before the first one."""
    eos_token_id: NonNegativeInt = 0
    """The token that ends a sequence."""
    pad_token_id: NonNegativeInt | None = None
    """The token that follows eos in outputs; eos itself by default."""
    suppress_tokens: tuple[NonNegativeInt, ...] = ()
    """Tokens that are never generated."""
    beam_suppress_tokens: tuple[NonNegativeInt, ...] = ()
    """Tokens that beam search does not generate."""
    max_length: Count = 20
    """Greatest number of tokens, eos included."""
    finished_beams: Literal["keep", "release"] = "keep"
    """What happens to a hypothesis of beam search that has ended. "keep": it stays in the beam and competes with the
    unfinished ones (Meshed-Memory Transformer, X-LAN, MD-SAN). "release": it is stored, and its slot is released to the
    best unfinished one (AoANet, and the search behind X-LAN's paper)."""
    length_penalty: NonNegativeFloat = 0.0
    """Exponent p of the length normalization of scores."""
    length_normalization: Literal["power", "gnmt"] = "power"
    """What the sum of the log-probabilities of n tokens, eos included, is divided by. "power": n**p; "gnmt":
    ((5 + n) / 6)**p (Wu et al., 2016, Eq. 14)."""
    no_immediate_repeat: bool = False
    """Never generate the same token twice in a row."""
    forbidden_last_tokens: tuple[NonNegativeInt, ...] = ()
    """Tokens that eos may not follow."""
    no_repeat_ngram_size: NonNegativeInt = 0
    """Never generate an n-gram of this size twice in a sequence; 0 allows all."""
    no_repeat_sets: tuple[tuple[NonNegativeInt, ...], ...] = ()
    """Sets of tokens, such as the singular and the plural of a noun; a sequence has at most one token of each, once."""
    required_tokens: tuple[tuple[NonNegativeInt, ...], ...] = ()
    """Sets of tokens; one of each occurs in every sequence of beam search (Anderson et al., 2017)."""
    trigram_penalty: NonNegativeFloat = 0.0
    """Subtracted from a token's log-probability for each time that the trigram it would complete has occurred before in
    its row; greedy decoding and sampling apply it, beam search does not, as in AoANet's release."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids of the configuration."""
        suppressed = self.suppress_tokens + self.beam_suppress_tokens + self.forbidden_last_tokens
        sets = chain(*self.required_tokens, *self.no_repeat_sets)
        return (self.bos_token_id, self.eos_token_id, self.padding_id, *suppressed, *sets)

    def repeat_sets(self, vocab_size: int) -> np.ndarray:
        """Return the set of `no_repeat_sets` to which each token belongs, `(V,)`; for others the number of sets."""
        sets = np.full(vocab_size, len(self.no_repeat_sets))
        for number, tokens in enumerate(self.no_repeat_sets):
            sets[list(tokens)] = number
        return sets

    @property
    def padding_id(self) -> int:
        """The token that follows eos in outputs."""
        return self.eos_token_id if self.pad_token_id is None else self.pad_token_id


def override(config: GenerationConfig, options: SearchOptions, vocabulary: Vocabulary) -> GenerationConfig:
    """Return a model's configuration with the options of a call over it, their words as ids.

    Raise ConfigError for a forbidden or required word outside the vocabulary.
    """
    names = ("max_length", "length_penalty", "no_repeat_ngram_size", "trigram_penalty")
    changes = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.forbidden_last_words is not None:
        changes["forbidden_last_tokens"] = _token_ids(options.forbidden_last_words, vocabulary, "to forbid")
    if options.must is not None:
        sets = (words.split("|") for words in options.must)
        changes["required_tokens"] = tuple(_token_ids(words, vocabulary, "that could be required") for words in sets)
    return config.replace(**changes)


def _token_ids(words: Sequence[str], vocabulary: Vocabulary, purpose: str) -> tuple[int, ...]:
    words = [word if word in vocabulary.ids else word.lower() for word in words]
    for word in words:
        if word not in vocabulary.ids:
            raise ConfigError(f"the vocabulary has no word {word!r} {purpose}; {did_you_mean(word, vocabulary.ids)}")
    return tuple(vocabulary.ids[word] for word in words)
