"""Constrained beam search: of each set of tokens, at least one occurs (Anderson et al., EMNLP 2017).

The sets that a hypothesis has satisfied are the state of a finite automaton. Every state has a beam of its own, so that
hypotheses compete with those of the same state only, and with beams that are wide enough the search is exact.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.decoding.beam import BeamGroup, Hypotheses, normalize_by_length
from legenda.decoding.generation import GenerationConfig
from legenda.errors import ConfigError

MAX_SETS = 6
"""Sets of tokens, of which each doubles the number of beams."""


class ConstrainedGroup(BeamGroup):
    """The beams of all states, those of the last state, with every set satisfied, first; finished beams are kept."""

    def __init__(self, num_images: int, device: torch.device, config: GenerationConfig) -> None:
        super().__init__(num_images, device, config.replace(finished_beams="keep"))
        sets = config.required_tokens
        if len(sets) > MAX_SETS:
            raise ConfigError(f"at most {MAX_SETS} sets of words can be required, not {len(sets)}; name fewer")
        self._sets = [torch.tensor(tokens, device=device) for tokens in sets]
        self._last = 2 ** len(sets) - 1
        self._states = torch.zeros(1, dtype=torch.long, device=device)
        """The state of each beam, bit i for set i; the same for all images."""

    def advance(
        self, log_probs: Float[Tensor, "B K V"], scores: Float[Tensor, "B K V"], step: int, num_beams: int
    ) -> tuple[Int[Tensor, "B W"], Int[Tensor, "B W"]]:
        """Replace the hypotheses by the `num_beams` best continuations in each state; see `BeamGroup.advance`."""
        config, V = self.config, scores.shape[-1]
        bits = torch.zeros(V, dtype=torch.long, device=scores.device)
        for number, tokens in enumerate(self._sets):
            bits[tokens] |= 1 << number
        only_eos = torch.full_like(scores[:1, :1], float("-inf"))
        only_eos[..., config.eos_token_id] = 0.0
        is_finished = self.is_finished.unsqueeze(-1)
        scores, log_probs = (torch.where(is_finished, only_eos, values) for values in (scores, log_probs))
        scores[..., config.eos_token_id].masked_fill_(self._states != self._last, float("-inf"))
        sum_log_probs = self.beams.sum_log_probs.to(scores.dtype).unsqueeze(-1) + scores
        lengths = self.beams.lengths + ~self.is_finished
        ranked = normalize_by_length(sum_log_probs, lengths.unsqueeze(-1), config)
        following = self._states.unsqueeze(-1) | bits  # (K, V)
        chosen = [self._best(ranked.masked_fill(following != state, float("-inf")), num_beams) for state in self._order]
        values, best = (torch.cat(parts, dim=1) for parts in zip(*chosen, strict=True))
        parents, tokens = best // V, best % V
        sums = sum_log_probs.flatten(1).gather(1, best).masked_fill(values.isneginf(), float("-inf"))
        chosen_log_probs = log_probs.flatten(1).gather(1, best)
        self._append(parents, tokens, chosen_log_probs, sums, lengths.gather(1, parents), step)
        self.is_finished = self.is_finished.gather(1, parents) | (tokens == config.eos_token_id)
        self._states = torch.tensor(self._order, device=scores.device).repeat_interleave(num_beams)
        return parents, tokens

    @property
    def _order(self) -> list[int]:
        return list(range(self._last, -1, -1))

    @staticmethod
    def _best(ranked: Float[Tensor, "B K V"], count: int) -> tuple[Tensor, Tensor]:
        """Return the values and indices of the best continuations, where there are fewer with values of -inf."""
        flat = ranked.flatten(1)
        values, best = flat.topk(min(count, flat.shape[1]), dim=1)
        missing = count - best.shape[1]
        return (
            torch.nn.functional.pad(values, (0, missing), value=float("-inf")),
            torch.nn.functional.pad(best, (0, missing)),
        )

    def finalize(self) -> Hypotheses:
        """Return the hypotheses of the last state, best first; raise ConfigError where an image has none."""
        count = len(self._states) // (self._last + 1)
        found = self.beams.gather(torch.arange(count, device=self._states.device).expand(len(self.is_finished), -1))
        if bool(found.sum_log_probs[:, 0].isneginf().any()):
            raise ConfigError(
                f"no caption of at most {self.config.max_length} tokens holds all the required words; name fewer of "
                "them, or search with more beams"
            )
        return found
