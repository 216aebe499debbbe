"""The part of a run's settings that objectives read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from legenda.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SelfCritical:
    """How captions are drawn, judged and weighed in self-critical training (Rennie et al., 2017)."""

    samples: int = 5
    """Captions drawn for each image and step; with beam search the beams, which are all kept."""
    sampling: Literal["multinomial", "beam"] = "multinomial"
    """Word by word from the model's distribution, or by beam search (Cornia et al., 2020; MD-SAN, Eq. 16)."""
    dropout: bool = True
    """Whether dropout is on while captions are drawn, as all releases have it; the greedy baseline has none."""
    baseline: Literal["greedy", "mean_of_others", "mean"] = "mean_of_others"
    """What a caption's reward is compared with: the reward of the greedy caption (AoANet, X-LAN), the mean of the
    image's other samples, or the mean of all of them (MD-SAN's, for beams)."""
    rewards: Mapping[str, float] = field(default_factory=lambda: {"CIDEr-D": 1.0})
    """Weights of the scores that make the reward."""
    end_in_reward: bool = True
    """Whether the end id counts as a word of captions and references in the reward (AoANet, X-LAN: yes; MD-SAN: no)."""
    reference_length: int = 0
    """Words after which references are cut for the reward, the end counted (AoANet, X-LAN: 16); 0 cuts none."""
    frequencies: Literal["images", "captions"] = "images"
    """What CIDEr-D counts words over: all references of an image together, or each caption alone (MD-SAN)."""
    mean: Literal["tokens", "captions", "places"] = "tokens"
    """What the sum over all words, the end counted, is divided by: their number (AoANet, X-LAN), the number of captions
    (the gradient of the expected reward), or captions times `max_length` (MD-SAN)."""
    max_length: int = 20
    """Words of the longest caption drawn, the end counted."""
    cross_entropy: float = 0.0
    """Share of the cross-entropy of the image's own captions in the loss."""

    def __post_init__(self) -> None:
        if self.samples < 1 or self.max_length < 1 or self.reference_length < 0:
            raise UserError(
                "training.self_critical needs samples and max_length of at least 1 and reference_length of 0 or more"
            )
        if self.samples < 2 and self.baseline != "greedy":
            raise UserError(f"a baseline {self.baseline} needs training.self_critical.samples of at least 2")
        if not self.rewards or not all(math.isfinite(weight) for weight in self.rewards.values()):
            raise UserError("training.self_critical.rewards needs at least one reward, each with a finite weight")
        if not 0 <= self.cross_entropy < 1:
            raise UserError(f"training.self_critical.cross_entropy must lie in 0..1, below 1, not {self.cross_entropy}")


@dataclass(frozen=True, kw_only=True)
class ScheduledSampling:
    """How often a word of the given caption is replaced by one that the model draws itself (Bengio et al., 2015).

    The share grows by `step` after every `every` epochs from `after` on, up to `most`; `step` 0 is none at all.
    """

    step: float = 0.0
    after: int = 0
    every: int = 5
    most: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.step <= 1 or not 0 <= self.most <= 1 or self.after < 0 or self.every < 1:
            raise UserError(
                "training.scheduled_sampling needs step and most in 0..1, after of 0 or more and every of at least 1"
            )

    def at(self, epoch: int) -> float:
        """The share in an epoch counted from 1."""
        return min(self.step * (max(epoch - 1 - self.after, 0) // self.every), self.most)


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimized, and on which batches; legenda.training's configuration adds how."""

    objective: Literal["cross_entropy", "self_critical"] = "cross_entropy"
    """What is minimised: the negative log-probability of people's captions, or minus the expected reward of its own."""
    self_critical: SelfCritical = field(default_factory=SelfCritical)
    """For the objective self_critical."""
    batch_size: int = 10
    """Examples (images, questions, sentences) per step, on all devices together."""
    rows: int = 5
    """Captions per image and step; they share the encoded image."""
    max_words: int = 16
    """Longer captions are cut for training."""
    label_smoothing: float = 0.0
    smoothing: Literal["all", "others"] = "all"
    """Where the smoothed share goes: over all words (Szegedy et al., 2016), or over all but the target, with the loss
    told as a divergence, which is 0 at best (AoANet and X-Transformer as released)."""
    scheduled_sampling: ScheduledSampling = field(default_factory=ScheduledSampling)
