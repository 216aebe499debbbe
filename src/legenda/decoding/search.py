"""Options of the search for captions, as commands, server and Python take them, and the search itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from zlib import crc32

import torch
from pydantic import model_validator

from legenda.compute import CompileOptions, RunOptions
from legenda.config import (
    Config,
    Count,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    to_json,
)
from legenda.decoding.beam import beam_search
from legenda.decoding.generation import GenerationConfig, GenerationOutput, SupportsGeneration, encode_inputs
from legenda.decoding.sampling import sample
from legenda.errors import ConfigError, did_you_mean
from legenda.regions import Memory, Regions
from legenda.text import Vocabulary

_OF_SAMPLING, _OF_BEAMS = ("top_k", "top_p", "trigram_penalty"), ("num_beam_groups", "length_penalty")


class SearchOptions(Config):
    """How captions are searched for; options that are None are those of the model's generation config.

    Raise ConfigError for a value out of range.
    """

    beam_size: Count = 3
    """Number of beams."""
    length_penalty: NonNegativeFloat | None = None
    """Exponent p of the number of tokens n by which scores of beams are divided: n**p, or as the model normalizes."""
    do_sample: bool = False
    """Draw the tokens at random instead of beam search."""
    temperature: PositiveFloat = 1.0
    """Divides the log-probabilities; in beam search all but those of the first token."""
    top_k: PositiveInt | None = None
    """Sample from the k likeliest tokens."""
    top_p: PositiveFraction | None = None
    """Sample from the fewest tokens whose probabilities reach p."""
    seed: NonNegativeInt = 0
    """Seed of the sampling."""
    num_beam_groups: PositiveInt = 1
    """Groups of diverse beam search, which divide the beam size."""
    diversity_penalty: NonNegativeFloat = 0.5
    """What a token loses for each time that earlier groups have chosen it at the same position."""
    no_repeat_ngram_size: NonNegativeInt | None = None
    """Never generate an n-gram of this size twice: 3 blocks repeated trigrams, 0 allows all."""
    trigram_penalty: NonNegativeFloat | None = None
    """Subtracted from the log-probability of a sampled token for each earlier occurrence of its trigram."""
    forbidden_last_words: tuple[str, ...] | None = None
    """Words that no caption ends with, such as a, the and of."""

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.beam_size % self.num_beam_groups:
            raise ConfigError(
                f"num_beam_groups must divide the beam size {self.beam_size}, {self.num_beam_groups} does not"
            )
        return self

    def reject_unused(self) -> None:
        """Raise ConfigError for an option of sampling without do_sample, and one of beam search with it."""
        names, remedy = (
            (_OF_BEAMS, "is for beam search; leave it or --do-sample out")
            if self.do_sample
            else (_OF_SAMPLING, "is for sampling; add --do-sample or leave it out")
        )
        for name in names:
            if getattr(self, name) != SearchOptions.model_fields[name].default:
                raise ConfigError(f"--{name.replace('_', '-')} {remedy}")

    def describe(self) -> str:
        """Return the kind of search in a few words."""
        return f"samples of seed {self.seed}" if self.do_sample else f"beam {self.beam_size}"

    def select(self) -> SearchOptions:
        """Return these options alone, where the object holds others too."""
        return SearchOptions(**{name: getattr(self, name) for name in SearchOptions.model_fields})

    def settings(self) -> dict[str, Any]:
        """Return the options by name, as JSON values."""
        return {name: to_json(getattr(self, name)) for name in SearchOptions.model_fields}


class RunSearchOptions(RunOptions, CompileOptions, SearchOptions):
    """Options of commands that caption with a run."""


def search(
    model: SupportsGeneration,
    inputs: Regions | Memory,
    options: SearchOptions,
    vocabulary: Vocabulary,
    *,
    num_captions: int = 1,
    names: Sequence[str] | None = None,
    need_attention: bool = False,
) -> GenerationOutput:
    """Generate `num_captions` sequences per image: the best of a beam search, or samples in the order drawn.

    Sequences of diverse beam search are sorted over all groups. names: of the images, by default their positions; the
    samples of an image follow from its name and the seed of `options`, not from its batch. Raise ConfigError for a
    forbidden last word outside the vocabulary.
    """
    config = _override(model.generation_config, options, vocabulary)
    memory = encode_inputs(model, inputs)
    if options.do_sample:
        return sample(
            model,
            memory,
            num_samples=num_captions,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            generator=[_generator(options.seed, name) for name in names or map(str, range(len(memory)))],
            need_attention=need_attention,
            generation_config=config,
        )
    is_diverse = options.num_beam_groups > 1
    output = beam_search(
        model,
        memory,
        beam_size=options.beam_size,
        temperature=options.temperature,
        num_beam_groups=options.num_beam_groups,
        diversity_penalty=options.diversity_penalty,
        num_return_sequences=options.beam_size if is_diverse else num_captions,
        need_attention=need_attention,
        generation_config=config,
    )
    return _sort(output, num_captions) if is_diverse else output


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(crc32(f"{seed} {name}".encode(errors="surrogatepass")))


def _override(config: GenerationConfig, options: SearchOptions, vocabulary: Vocabulary) -> GenerationConfig:
    names = ("length_penalty", "no_repeat_ngram_size", "trigram_penalty")
    changes = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.forbidden_last_words is not None:
        for word in options.forbidden_last_words:
            if word not in vocabulary.ids:
                raise ConfigError(
                    f"the vocabulary has no word {word!r} to forbid; {did_you_mean(word, vocabulary.ids)}"
                )
        changes["forbidden_last_tokens"] = tuple(vocabulary.ids[word] for word in options.forbidden_last_words)
    return config.replace(**changes)


def _sort(output: GenerationOutput, count: int) -> GenerationOutput:
    """Return the `count` best rows of each image, best first."""
    best = output.scores.argsort(dim=1, descending=True, stable=True)[:, :count]
    image = torch.arange(len(best), device=best.device).unsqueeze(1)
    attention = None if output.attention is None else output.attention[image, best]
    return GenerationOutput(
        output.tokens[image, best], output.log_probs[image, best], output.scores[image, best], attention
    )
