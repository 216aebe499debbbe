"""Beam search, greedy decoding and sampling with any decoder of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from zlib import crc32

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.generation import (
    GenerationConfig,
    GenerationOutput,
    SearchesItself,
    SupportsGeneration,
    TorchStepper,
    encode_inputs,
    resolve_config,
)
from legenda.errors import ConfigError
from legenda.regions import Memory, Regions
from legenda.runtime import generation
from legenda.runtime.generation import search_beams


@torch.no_grad()
def beam_search(
    model: SupportsGeneration,
    inputs: Regions | Memory | Tensor,
    *,
    num_return_sequences: int | None = None,
    need_attention: bool = False,
    generation_config: GenerationConfig | None = None,
    **overrides: object,
) -> GenerationOutput:
    """Generate the best sequences of each image by keeping `beam_size` hypotheses, best first.

    A hypothesis ranks by the sum of its log-probabilities, normalized by length as the configuration has it. The search
    stops when no unfinished hypothesis of any image can enter the first `num_return_sequences` (`beam_size` by
    default), or after `max_length` tokens. generation_config: by default `model.generation_config`; overrides: fields
    of it, such as beam_size=5 or max_length=16.

    The temperature divides all log-probabilities but those of the first token, as in AoANet's release; they are
    normalized again. With several `num_beam_groups` it is diverse beam search (Vijayakumar et al., 2018): groups of
    beams choose their tokens one after the other, and a token loses `diversity_penalty` for each time that earlier
    groups have chosen it at the same position. `scores` include this penalty, `log_probs` do not, and the output is
    sorted within each group only.

    Raise ConfigError for an unknown field and values out of range.
    """
    config = resolve_config(model, generation_config, overrides)
    memory = encode_inputs(model, inputs)
    start = partial(TorchStepper, model.decoder, memory, 1, config, beam=True, need_attention=need_attention)
    output = generation.beam_search(start, config, num_return_sequences)
    return GenerationOutput.from_numpy(output, memory.mask.device)


@torch.no_grad()
def greedy(
    model: SupportsGeneration,
    inputs: Regions | Memory | Tensor,
    *,
    need_attention: bool = False,
    generation_config: GenerationConfig | None = None,
    **overrides: object,
) -> GenerationOutput:
    """Generate one sequence per image (K = 1) with the likeliest token at each step.

    Deterministic where the model is in evaluation mode, which is up to the caller. generation_config: by default
    `model.generation_config`; overrides: fields of it, such as max_length=16.
    """
    config = resolve_config(model, generation_config, overrides)
    return _generate(model, inputs, 1, config, need_attention, lambda log_probs: log_probs.argmax(dim=-1))


@torch.no_grad()
def sample(
    model: SupportsGeneration,
    inputs: Regions | Memory | Tensor,
    *,
    num_samples: int = 1,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    need_attention: bool = False,
    generation_config: GenerationConfig | None = None,
    **overrides: object,
) -> GenerationOutput:
    """Generate `num_samples` sequences per image, each token drawn from the model's distribution.

    generator: equal generators give equal samples; with a sequence, which has a generator on the CPU for each image,
    the samples of an image do not depend on the others of its batch. generation_config: by default
    `model.generation_config`; overrides: fields of it. Of these, the temperature divides the log-probabilities, top_k
    keeps the k likeliest tokens, and top_p the fewest whose probabilities reach p (nucleus sampling; Holtzman et al.,
    2020). `log_probs` of the output are the model's, before any of these.

    Raise ConfigError for an unknown field, values out of range, and for another number of generators than of images.
    """
    if num_samples < 1:
        raise ConfigError(f"num_samples must be at least 1, not {num_samples}")
    config = resolve_config(model, generation_config, overrides)

    def choose(log_probs: Float[Tensor, "B K V"]) -> Int[Tensor, "B K"]:
        return sample_token(top_k_top_p_filter(log_probs / config.temperature, config.top_k, config.top_p), generator)

    if isinstance(generator, Sequence) and len(generator) != len(inputs):
        raise ConfigError(f"generator holds {len(generator)} generators for {len(inputs)} images; give as many")
    return _generate(model, inputs, num_samples, config, need_attention, choose)


def sample_token(
    logits: Float[Tensor, "B K V"], generator: torch.Generator | Sequence[torch.Generator] | None = None
) -> Int[Tensor, "B K"]:
    """Draw a token for each row with probability softmax(logits).

    One uniform number per row is searched in the cumulative probabilities, summed in float64 so that small ones are not
    lost; torch.multinomial draws a number per token, which takes several times as long.
    """
    probs = logits.softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    sum_dtype = torch.float32 if probs.device.type == "mps" else torch.float64  # MPS has no float64
    cumulative = probs.cumsum(dim=-1, dtype=sum_dtype)
    total = cumulative[..., -1:]
    if isinstance(generator, Sequence):
        drawn = [torch.rand(total.shape[1:], dtype=total.dtype, generator=image) for image in generator]
        uniform = torch.stack(drawn).to(total.device)
    else:
        uniform = torch.rand(total.shape, dtype=total.dtype, device=total.device, generator=generator)
    uniform = uniform * total
    below_total = torch.minimum(uniform, total.nextafter(torch.zeros_like(total)))  # the product may round up to it
    tokens = torch.searchsorted(cumulative, below_total, right=True).squeeze(-1)
    return tokens.clamp(max=logits.shape[-1] - 1)  # NaN is never found; the loss reports it


def _generate(
    model: SupportsGeneration,
    inputs: Regions | Memory | Tensor,
    num_rows: int,
    config: GenerationConfig,
    need_attention: bool,
    choose: Callable[[Float[Tensor, "B K V"]], Int[Tensor, "B K"]],
) -> GenerationOutput:
    memory = encode_inputs(model, inputs)
    stepper = TorchStepper(model.decoder, memory, num_rows, config, beam=False, need_attention=need_attention)
    output = generation.generate_rows(stepper, lambda log_probs: choose(log_probs).cpu().numpy())
    return GenerationOutput.from_numpy(output, memory.mask.device)


def top_k_top_p_filter(
    log_probs: Float[Tensor, "B K V"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "B K V"]:
    """Return -inf for all but the `top_k` likeliest tokens, and then but the fewest whose probabilities reach `top_p`.

    None turns either off. Of equally likely tokens exactly `top_k` are kept; the likeliest token always is.
    """
    if top_k is not None and top_k < log_probs.shape[-1]:
        kept = log_probs.topk(top_k, dim=-1)
        log_probs = torch.full_like(log_probs, float("-inf")).scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1:
        ordered, tokens = log_probs.sort(dim=-1, descending=True)
        probs = ordered.softmax(dim=-1)
        preceding = probs.cumsum(dim=-1) - probs
        is_removed = preceding >= top_p
        is_removed[..., 0] = False
        log_probs = log_probs.masked_fill(is_removed.scatter(-1, tokens, is_removed), float("-inf"))
    return log_probs


@torch.no_grad()
def search(
    model: SupportsGeneration | SearchesItself,
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
    if isinstance(model, SearchesItself):
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
    start = partial(TorchStepper, model.decoder, memory, 1, config, beam=True, need_attention=need_attention)
    return GenerationOutput.from_numpy(search_beams(start, config, num_captions), memory.mask.device)
