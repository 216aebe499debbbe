"""The search that a configuration names: beam search or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

from legenda.decoding.beam import beam_search
from legenda.decoding.generation import GenerationConfig, GenerationOutput, SupportsGeneration, encode_inputs
from legenda.decoding.sampling import sample
from legenda.regions import Memory, Regions


def search(
    model: SupportsGeneration,
    inputs: Regions | Memory,
    config: GenerationConfig,
    *,
    num_captions: int = 1,
    names: Sequence[str] | None = None,
    need_attention: bool = False,
) -> GenerationOutput:
    """Generate `num_captions` sequences per image: the best of a beam search, or samples in the order drawn.

    Sequences of diverse beam search are sorted over all groups. names: of the images, by default their positions; the
    samples of an image follow from its name and the seed, not from its batch.
    """
    if hasattr(model, "generate"):  # a model of transformers, or an exported one
        return model.generate(inputs, config, num_captions, names, need_attention=need_attention)
    memory = encode_inputs(model, inputs)
    if config.do_sample:
        seeds = (f"{config.seed} {name}" for name in names or range(len(memory)))
        return sample(
            model,
            memory,
            num_samples=num_captions,
            generator=[torch.Generator().manual_seed(crc32(seed.encode(errors="surrogatepass"))) for seed in seeds],
            need_attention=need_attention,
            generation_config=config,
        )
    is_diverse = config.num_beam_groups > 1
    output = beam_search(
        model,
        memory,
        num_return_sequences=config.beam_size if is_diverse else num_captions,
        need_attention=need_attention,
        generation_config=config,
    )
    return sort_rows(output, output.scores, num_captions) if is_diverse else output


def sort_rows(output: GenerationOutput, keys: Tensor, count: int) -> GenerationOutput:
    """Return the `count` rows of each image with the largest keys `(B, K)`, largest first."""
    best = keys.argsort(dim=1, descending=True, stable=True)[:, :count]
    image = torch.arange(len(best), device=best.device).unsqueeze(1)
    return output.map(lambda rows: rows[image, best])
