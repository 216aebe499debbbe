"""Self-critical training: the model draws captions, which are rewarded and made likelier or less likely (SCST)."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import beam_search, greedy, sample
from legenda.decoding.decoder import DecodingRule
from legenda.models import Captioner
from legenda.regions import Memory, Regions
from legenda.tasks.base import Batch, Loss, Prepared, regions_of
from legenda.tasks.captioning import CaptionObjective, shifted
from legenda.tasks.config import ObjectiveConfig, SelfCritical
from legenda.tasks.objectives import PADDING, advantages, cross_entropy, denominator, policy_gradient, spoken
from legenda.tasks.rewards import Rewards


class SelfCriticalObjective(CaptionObjective):
    """The expected reward of the model's own captions.

    Captions are drawn without gradients by cheap steps; one pass over all of them at once then gives the gradient,
    while another thread computes the rewards. The releases back-propagate through the drawing itself: that is the same
    where dropout is off; with dropout, our gradient sees other words and channels left out than the drawing did. Words
    that the model's rule bans are neither drawn nor given any probability.
    """

    def __init__(self, model: Captioner, training: ObjectiveConfig, split: CaptionDataset, rewards: Rewards) -> None:
        super().__init__(model, training, split)
        self.rewards = rewards
        settings = self.settings
        self.shares = (1 - settings.cross_entropy, settings.cross_entropy) if settings.cross_entropy else (1.0,)
        own = model.decoding
        self.rule = DecodingRule(
            begin_id=own.begin_id,
            end_id=own.end_id,
            banned_ids=own.banned_ids,
            max_length=settings.max_length,
            finished=own.finished,
        )

    @property
    def settings(self) -> SelfCritical:
        return self.training_settings.self_critical

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:  # noqa: ARG002
        """Draws captions, hands them to be rewarded, and lays them out for the pass with gradients."""
        settings, end = self.settings, self.rule.end_id
        tokens, real, compared = self._draw_captions(regions_of(batch))
        judged = tokens if compared is None else torch.cat([*_to_one_length(tokens, compared, end)], dim=1)
        waiting = self.rewards.start(positions, judged)
        counted = spoken(tokens, end) & real.unsqueeze(-1)
        inputs, said = F.pad(tokens[..., :-1], (1, 0), value=self.rule.begin_id), tokens
        rows, targets = None, None
        if settings.cross_entropy:
            rows, targets = shifted(batch["captions"], end)
        counts = [denominator(settings.mean, counted, settings.max_length)]
        if targets is not None:
            counts.append(float((targets != PADDING).sum()))

        def finish(output: tuple[Tensor, ...]) -> Loss:
            return self._finish(output, waiting, counted, real)

        return Prepared((inputs, said, rows, targets), tuple(counts), finish)

    def draw(self, positions: np.ndarray, generator: torch.Generator) -> Batch:
        """Captions of people's only where they have a share."""
        return super().draw(positions, generator) if self.settings.cross_entropy else {}

    def forward(self, batch: Batch, *prepared: Tensor | None) -> tuple[Tensor, ...]:
        """Log-probabilities `(B, K, T)` of the drawn words, and the summed cross-entropy where it has a share."""
        inputs, said, rows, targets = prepared
        assert inputs is not None
        assert said is not None
        memory = self.model.encode(regions_of(batch))
        log_probs = log_probs_of(self.model.decoder(inputs, memory), said, self.rule.banned_ids)
        if rows is None or targets is None:
            return (log_probs,)
        training = self.training_settings
        logits = self.model.decoder(rows, memory)
        return log_probs, cross_entropy(logits, targets, training.label_smoothing, training.smoothing, reduction="sum")

    def _draw_captions(self, regions: Regions) -> tuple[Int[Tensor, "B K T"], Tensor, Int[Tensor, "B 1 t"] | None]:
        """The drawn captions, which of them exist, and the greedy ones where they are the baseline."""
        settings, model, mode = self.settings, self.model, self.model.training
        memory = compared = None
        if settings.baseline == "greedy" or not settings.dropout:
            model.eval()
            memory = model.encode(regions)
            if settings.baseline == "greedy":
                compared = greedy(model, memory, rule=self.rule).tokens
        if settings.dropout:
            model.train()
            memory = model.encode(regions)
        assert memory is not None
        tokens, real = self._samples(memory)
        model.train(mode)
        return tokens, real, compared

    def _samples(self, memory: Memory) -> tuple[Int[Tensor, "B K T"], Tensor]:
        settings = self.settings
        if settings.sampling == "multinomial":
            tokens = sample(self.model, memory, rows=settings.samples, rule=self.rule).tokens
            return tokens, torch.ones_like(tokens[..., 0], dtype=torch.bool)
        found = beam_search(self.model, memory, beam_size=settings.samples, rule=self.rule)
        return found.tokens, ~found.scores.isneginf()

    def _finish(self, output: tuple[Tensor, ...], waiting: Future[np.ndarray], counted: Tensor, real: Tensor) -> Loss:
        rewards = torch.from_numpy(self.rewards.result(waiting)).to(real.device)
        K = real.shape[1]
        compared = rewards[:, K:] if rewards.shape[1] > K else None
        advantage = advantages(rewards[:, :K], self.settings.baseline, compared, real)
        loss = policy_gradient(output[0], advantage, counted)
        mean = float(rewards[:, :K][real].mean()) if bool(real.any()) else 0.0
        return Loss((loss, *output[1:]), {"reward": mean})


def log_probs_of(
    logits: Float[Tensor, "B K T V"], tokens: Int[Tensor, "B K T"], banned_ids: tuple[int, ...] = ()
) -> Float[Tensor, "B K T"]:
    """Log-probability of each token among the words that are not banned."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if banned_ids:
        banned = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        banned[list(banned_ids)] = True
        logits = logits.masked_fill(banned, float("-inf"))
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)


def _to_one_length(one: Tensor, other: Tensor, end_id: int) -> tuple[Tensor, Tensor]:
    longest = max(one.shape[-1], other.shape[-1])
    return (
        F.pad(one, (0, longest - one.shape[-1]), value=end_id),
        F.pad(other, (0, longest - other.shape[-1]), value=end_id),
    )
