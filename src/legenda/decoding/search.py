"""Search with the options of a command: beam search or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

from legenda.compute import SearchOptions
from legenda.decoding.beam import beam_search
from legenda.decoding.generation import GenerationConfig, GenerationOutput, SupportsGeneration, encode_inputs
from legenda.decoding.sampling import sample
from legenda.errors import ConfigError, did_you_mean
from legenda.regions import Memory, Regions
from legenda.text import Vocabulary


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
    forbidden or required word outside the vocabulary.
    """
    if hasattr(model, "generate"):  # a model of transformers
        return model.generate(inputs, options, num_captions)
    config = _override(model.generation_config, options, vocabulary)
    memory = encode_inputs(model, inputs)
    if options.do_sample:
        seeds = (f"{options.seed} {name}" for name in names or range(len(memory)))
        return sample(
            model,
            memory,
            num_samples=num_captions,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            generator=[torch.Generator().manual_seed(crc32(seed.encode(errors="surrogatepass"))) for seed in seeds],
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
    return sort_rows(output, output.scores, num_captions) if is_diverse else output


def _override(config: GenerationConfig, options: SearchOptions, vocabulary: Vocabulary) -> GenerationConfig:
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


def sort_rows(output: GenerationOutput, keys: Tensor, count: int) -> GenerationOutput:
    """Return the `count` rows of each image with the largest keys `(B, K)`, largest first."""
    best = keys.argsort(dim=1, descending=True, stable=True)[:, :count]
    image = torch.arange(len(best), device=best.device).unsqueeze(1)
    return output.map(lambda rows: rows[image, best])
