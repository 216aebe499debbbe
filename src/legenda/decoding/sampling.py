"""Greedy decoding and sampling: each row of an image is generated independently."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.generation import (
    GenerationConfig,
    GenerationOutput,
    Stepper,
    SupportsGeneration,
    check_scores,
    encode_inputs,
    resolve_config,
    top_k_top_p_filter,
)
from legenda.errors import ConfigError
from legenda.regions import Memory, Regions


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
    token = torch.full((len(memory), num_rows), config.bos_token_id, device=memory.mask.device)
    is_finished = torch.zeros_like(token, dtype=torch.bool)
    tokens, token_log_probs, unfinished, attention_weights = [], [], [], []
    stepper = Stepper(model.decoder, memory, num_rows, config, beam=False)
    for _ in range(config.max_length):
        log_probs, weights = stepper.step(token)
        token = choose(log_probs).masked_fill(is_finished, config.eos_token_id)
        token_log_probs.append(log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1).masked_fill(is_finished, 0.0))
        tokens.append(token)
        unfinished.append(~is_finished)
        if need_attention and weights is not None:
            attention_weights.append(weights)
        is_finished = is_finished | (token == config.eos_token_id)
        if bool(is_finished.all()):
            break
    token_mask = torch.stack(unfinished, dim=-1)
    log_probs = torch.stack(token_log_probs, dim=-1)
    check_scores(log_probs.sum(dim=-1))
    return GenerationOutput(
        torch.stack(tokens, dim=-1).masked_fill(~token_mask, config.padding_id),
        log_probs,
        log_probs.sum(dim=-1),
        torch.stack(attention_weights, dim=2) * token_mask[..., None, None] if attention_weights else None,
    )
