"""Beam search over all images and beams at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from legenda.decoding.generation import (
    GenerationOutput,
    SupportsGeneration,
    check_scores,
    check_temperature,
    encode_inputs,
    resolve_config,
)
from legenda.decoding.generation_config import GenerationConfig
from legenda.decoding.hypotheses import BeamGroup, Hypotheses
from legenda.decoding.steps import Stepper
from legenda.errors import ConfigError
from legenda.regions import Memory, Regions


@torch.no_grad()
def beam_search(
    model: SupportsGeneration,
    inputs: Regions | Memory,
    *,
    beam_size: int = 3,
    max_length: int | None = None,
    length_penalty: float | None = None,
    temperature: float = 1.0,
    num_beam_groups: int = 1,
    diversity_penalty: float = 0.5,
    num_return_sequences: int | None = None,
    need_attention: bool = False,
    generation_config: GenerationConfig | None = None,
) -> GenerationOutput:
    """Generate the best sequences of each image by keeping `beam_size` hypotheses, best first.

    A hypothesis ranks by the sum of its log-probabilities, normalized by length as the configuration has it. The search
    stops when no unfinished hypothesis of any image can enter the first `num_return_sequences` (`beam_size` by
    default), or after `max_length` tokens. generation_config: by default `model.generation_config`; max_length and
    length_penalty override it.

    temperature: divides all log-probabilities but those of the first token, as in AoANet's release; they are normalized
    again. num_beam_groups: diverse beam search (Vijayakumar et al., 2018): groups of beams choose their tokens one
    after the other, and a token loses `diversity_penalty` for each time that earlier groups have chosen it at the same
    position. `scores` include this penalty, `log_probs` do not, and the output is sorted within each group only.

    Raises ConfigError for values out of range.
    """
    if beam_size < 1:
        raise ConfigError(f"beam_size must be at least 1, not {beam_size}")
    if num_return_sequences is None:
        num_return_sequences = beam_size
    if not 1 <= num_return_sequences <= beam_size:
        raise ConfigError(
            f"num_return_sequences must be between 1 and beam_size={beam_size}, not {num_return_sequences}"
        )
    if num_beam_groups < 1 or beam_size % num_beam_groups:
        raise ConfigError(f"num_beam_groups must be a divisor of beam_size={beam_size}, not {num_beam_groups}")
    check_temperature(temperature)
    if not math.isfinite(diversity_penalty):
        raise ConfigError(f"diversity_penalty must be finite, not {diversity_penalty}")
    config = resolve_config(model, generation_config, max_length=max_length, length_penalty=length_penalty)
    memory = encode_inputs(model, inputs)

    groups: list[BeamGroup] = []
    num_beams = beam_size // num_beam_groups
    for index in range(num_beam_groups):
        penalty = DiversityPenalty(groups, diversity_penalty) if index else None
        # Groups before the last run to the end: those after them read all their tokens.
        stop_at = min(num_return_sequences, num_beams) if index == num_beam_groups - 1 else None
        group = BeamGroup(len(memory), memory.mask.device, config)
        stepper = Stepper(model.decoder, memory, 1, config, beam=True, temperature=temperature)
        _search(stepper, group, num_beams, penalty, stop_at, need_attention=need_attention)
        groups.append(group)
    output = _backtrack(groups, num_return_sequences)
    check_scores(output.scores)
    return output


@dataclass(frozen=True)
class DiversityPenalty:
    """Penalty for tokens that earlier groups have chosen at the same position.

    As in the release, each group is one step behind the one before it, so what counts is the hypotheses of that group
    after further steps: one for the group before, two for the one before that, and so on.
    """

    earlier: list[BeamGroup]
    diversity_penalty: float

    def apply(self, log_probs: Float[Tensor, "B K V"], step: int) -> Float[Tensor, "B K V"]:
        """Return the log-probabilities minus the penalty."""
        counts = log_probs.new_zeros(log_probs.shape[0], log_probs.shape[2])
        for ahead, group in enumerate(reversed(self.earlier), start=1):
            tokens = group.token_history[min(step + ahead, len(group.token_history) - 1)][..., step]
            counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=counts.dtype))
        return log_probs - self.diversity_penalty * counts.unsqueeze(1)


def _search(
    stepper: Stepper,
    group: BeamGroup,
    num_beams: int,
    penalty: DiversityPenalty | None,
    stop_at: int | None,
    *,
    need_attention: bool,
) -> None:
    """Search for one group until its first `stop_at` sequences are certain, or to max_length where that is None."""
    config = group.config
    token, parents = torch.full_like(group.beams.lengths, config.bos_token_id), None
    for step in range(config.max_length):
        log_probs, weights = stepper.step(token, parents)
        if need_attention and weights is not None:
            group.attention_weights.append(weights)
        scores = log_probs if penalty is None else penalty.apply(log_probs, step)
        parents, token = group.advance(log_probs, scores, step, num_beams)
        if stop_at is None:
            group.token_history.append(group.beams.tokens)
        elif group.is_done(stop_at):
            return


def _backtrack(groups: list[BeamGroup], num_return_sequences: int) -> GenerationOutput:
    """Return the first sequences, group by group, cut to the longest of all, with their attention weights."""
    hypotheses = [group.finalize() for group in groups]
    T = max((int(found.lengths.max()) for found in hypotheses if found.lengths.numel()), default=0)
    outputs = [_to_output(found, group, T) for found, group in zip(hypotheses, groups, strict=True)]
    attention = [output.attention for output in outputs if output.attention is not None]
    return GenerationOutput(
        torch.cat([output.tokens for output in outputs], dim=1)[:, :num_return_sequences],
        torch.cat([output.log_probs for output in outputs], dim=1)[:, :num_return_sequences],
        torch.cat([output.scores for output in outputs], dim=1)[:, :num_return_sequences],
        torch.cat(attention, dim=1)[:, :num_return_sequences] if attention else None,
    )


def _to_output(hypotheses: Hypotheses, group: BeamGroup, T: int) -> GenerationOutput:
    config, weights = group.config, group.attention_weights
    scores = hypotheses.scores(config)
    is_empty = scores.isneginf().unsqueeze(-1)  # no hypothesis was left for this row
    token_mask = (torch.arange(T, device=scores.device) < hypotheses.lengths.unsqueeze(-1)) & ~is_empty
    attention = None
    if weights:
        image = torch.arange(len(scores), device=scores.device).unsqueeze(1)
        steps = [weights[min(step, len(weights) - 1)][image, hypotheses.parent_beams[..., step]] for step in range(T)]
        attention = torch.stack(steps, dim=2) * token_mask[..., None, None]
    tokens = hypotheses.tokens[..., :T].masked_fill(~token_mask, config.padding_id)
    tokens[..., :1] = tokens[..., :1].masked_fill(is_empty, config.eos_token_id)
    return GenerationOutput(tokens, hypotheses.log_probs[..., :T].masked_fill(~token_mask, 0.0), scores, attention)
