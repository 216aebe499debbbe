"""Search with the options of the command line: beam search or sampling."""

from __future__ import annotations

import torch

from legenda.decoding.beam import beam_search
from legenda.decoding.generation import GenerationOutput, SupportsGeneration, encode_inputs
from legenda.decoding.generation_config import GenerationConfig
from legenda.decoding.sampling import sample
from legenda.errors import ConfigError, did_you_mean
from legenda.regions import Memory, Regions
from legenda.search_options import SearchOptions
from legenda.text import Vocabulary


def search(
    model: SupportsGeneration,
    inputs: Regions | Memory,
    options: SearchOptions,
    vocabulary: Vocabulary,
    *,
    num_captions: int = 1,
    generator: torch.Generator | None = None,
    need_attention: bool = False,
) -> GenerationOutput:
    """Generate `num_captions` sequences per image: the best of a beam search, or samples in the order drawn.

    Sequences of diverse beam search are sorted over all groups. generator: of the samples, by default a new one with
    the seed of `options`. Raise ConfigError for a forbidden last word outside the vocabulary.
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
            generator=generator or seeded_generator(options, memory.mask.device),
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


def seeded_generator(options: SearchOptions, device: torch.device) -> torch.Generator:
    """Return a generator of random numbers with the seed of the options."""
    return torch.Generator(device).manual_seed(options.seed)


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
