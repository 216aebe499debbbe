"""Search with the options of a command: beam search or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

from legenda.compute import SearchOptions
from legenda.decoding.beam import beam_search
from legenda.decoding.generation import GenerationOutput, SupportsGeneration, encode_inputs
from legenda.decoding.sampling import sample
from legenda.regions import Memory, Regions
from legenda.runtime.settings import override
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
    config = override(model.generation_config, options, vocabulary)
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


def sort_rows(output: GenerationOutput, keys: Tensor, count: int) -> GenerationOutput:
    """Return the `count` rows of each image with the largest keys `(B, K)`, largest first."""
    best = keys.argsort(dim=1, descending=True, stable=True)[:, :count]
    image = torch.arange(len(best), device=best.device).unsqueeze(1)
    return output.map(lambda rows: rows[image, best])
