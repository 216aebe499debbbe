"""Settings of a search: those that a model stores, and over them those of a call, merged once where they enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from legenda.config import (
    Config,
    Count,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    Probability,
    merge,
)
from legenda.errors import ConfigError, did_you_mean
from legenda.text import Vocabulary

if TYPE_CHECKING:
    import numpy as np

__all__ = ["GenerationConfig"]

_OF_SAMPLING, _OF_BEAMS = ("top_k", "top_p", "trigram_penalty", "seed"), ("num_beam_groups", "length_penalty", "must")
"""Fields that only sampling, and only beam search, reads."""
_LEAST_TEMPERATURE = 1e-6
"""Samples at a lower temperature would divide by almost nothing."""


class ChoiceConfig(Config):
    """How the caption of an image is chosen from those of a search; a field of None chooses nothing."""

    least_log_prob: Annotated[float, Field(ge=-(2.0**63), le=0)] | None = None
    """Least mean log-probability of a caption's tokens, below which it names the things alone."""
    consensus: NonNegativeFloat | None = None
    """The weight of expected CIDEr in the score of a caption."""
    min_score: Probability | None = None
    """Least confidence of a caption, below which it names the things alone."""


class GenerationConfig(Config):
    """How captions are searched for: each model has its own as `model.generation_config`, which a call may override.

    Raise ConfigError for a value of the wrong type or out of range.
    """

    beam_size: Count = 3
    """Number of beams."""
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
    """Exponent p of the length normalization of beams' scores."""
    length_normalization: Literal["power", "gnmt"] = "power"
    """Divisor of the sum of the log-probabilities of n tokens, eos included. "power": n**p; "gnmt":
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
    do_sample: bool = False
    """Draw the tokens at random instead of beam search."""
    temperature: Annotated[float, Field(ge=0, le=2.0**63)] = 1.0
    """Divides the log-probabilities; in beam search all but those of the first token. 0 is beam search as it is."""
    top_k: PositiveInt | None = None
    """Sample from the k likeliest tokens."""
    top_p: PositiveFraction | None = None
    """Sample from the fewest tokens whose probabilities reach p."""
    seed: NonNegativeInt = 0
    """Seed of the sampling."""
    num_beam_groups: PositiveInt = 1
    """Groups of diverse beam search, which divide the beam size."""
    diversity_penalty: NonNegativeFloat = 0.5
    """The penalty of a token for each time that earlier groups have chosen it at the same position."""
    forbidden_last_words: tuple[str, ...] | None = None
    """Words that no caption ends with, such as a, the and of; they replace `forbidden_last_tokens`."""
    must: tuple[str, ...] | None = None
    """Words that occur in every caption; a|b is one of several. They replace `required_tokens`."""

    @field_validator("temperature", mode="before")
    @classmethod
    def _accept_zero(cls, value: Any, info: ValidationInfo) -> object:
        """Take a temperature of 0, at which nothing is drawn, as the default of beam search."""
        if type(value) not in (int, float) or not 0 <= value < _LEAST_TEMPERATURE:
            return value
        if value or info.data.get("do_sample"):
            raise ConfigError(
                f"temperature must be at least {_LEAST_TEMPERATURE:g} for samples, not {value:g}; leave it out, or "
                "leave do_sample out for beam search"
            )
        return 1.0

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.beam_size % self.num_beam_groups:
            raise ConfigError(
                f"num_beam_groups must divide the beam size {self.beam_size}, {self.num_beam_groups} does not"
            )
        return self

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids of the configuration."""
        suppressed = self.suppress_tokens + self.beam_suppress_tokens + self.forbidden_last_tokens
        sets = chain(*self.required_tokens, *self.no_repeat_sets)
        return (self.bos_token_id, self.eos_token_id, self.padding_id, *suppressed, *sets)

    def repeat_sets(self, vocab_size: int) -> np.ndarray:
        """Return the set of `no_repeat_sets` to which each token belongs, `(V,)`; for others the number of sets."""
        import numpy as np  # late: the commands that list or explain need no arrays

        sets = np.full(vocab_size, len(self.no_repeat_sets))
        for number, tokens in enumerate(self.no_repeat_sets):
            sets[list(tokens)] = number
        return sets

    @property
    def padding_id(self) -> int:
        """The token that follows eos in outputs."""
        return self.eos_token_id if self.pad_token_id is None else self.pad_token_id

    def check_captions(self, num_captions: int) -> None:
        """Raise ConfigError for more captions of an image than beams, and for none."""
        if num_captions < 1 or (num_captions > self.beam_size and not self.do_sample):
            raise ConfigError(f"num_captions must lie between 1 and beam_size={self.beam_size}, not {num_captions}")

    def describe(self) -> str:
        """Return the kind of search in a few words."""
        return f"samples of seed {self.seed}" if self.do_sample else f"beam {self.beam_size}"


Overrides = Mapping[str, object]
"""Fields of `GenerationConfig` that a call sets, by name."""
OVERRIDES = (
    "beam_size",
    "max_length",
    "length_penalty",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "num_beam_groups",
    "diversity_penalty",
    "no_repeat_ngram_size",
    "trigram_penalty",
    "forbidden_last_words",
    "must",
)
"""The fields that the command line and the server offer, in this order."""


def check_overrides(overrides: Overrides, name: str = "the search") -> dict[str, object]:
    """Return the overrides that are not None, with the types of their fields, such as tuples for lists.

    name: what messages call them. Raise ConfigError for an unknown field, a wrong value, and an option of sampling or
    of beams for the other.
    """
    overrides = {field: value for field, value in overrides.items() if value is not None}
    config = merge(GenerationConfig, overrides, name)
    names, remedy = (
        (_OF_BEAMS, "is for beam search; leave it or --do-sample out")
        if config.do_sample
        else (_OF_SAMPLING, "is for sampling; add --do-sample or leave it out")
    )
    for field in names:
        if getattr(config, field) != GenerationConfig.model_fields[field].default:
            raise ConfigError(f"--{field.replace('_', '-')} {remedy}")
    return {field: getattr(config, field) for field in overrides}


def override(config: GenerationConfig, overrides: Overrides, vocabulary: Vocabulary) -> GenerationConfig:
    """Return a model's configuration with the fields of a call over it, and words as ids of tokens.

    Raise ConfigError as `check_overrides`, and for a forbidden or required word outside the vocabulary.
    """
    merged = config.replace(**check_overrides(overrides))
    changes: dict[str, object] = {}
    if merged.forbidden_last_words is not None:
        changes["forbidden_last_tokens"] = _token_ids(merged.forbidden_last_words, vocabulary, "to forbid")
    if merged.must is not None:
        sets = (words.split("|") for words in merged.must)
        changes["required_tokens"] = tuple(_token_ids(words, vocabulary, "that could be required") for words in sets)
    return merged.replace(**changes, forbidden_last_words=None, must=None) if changes else merged


def _token_ids(words: Sequence[str], vocabulary: Vocabulary, purpose: str) -> tuple[int, ...]:
    words = [word if word in vocabulary.ids else word.lower() for word in words]
    for word in words:
        if word not in vocabulary.ids:
            raise ConfigError(f"the vocabulary has no word {word!r} {purpose}; {did_you_mean(word, vocabulary.ids)}")
    return tuple(vocabulary.ids[word] for word in words)
