"""The settings of a training run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from legenda.errors import UserError
from legenda.training.schedules import Schedule, StepDecay


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
class Training:
    """How a model is trained, validated and kept."""

    epochs: int = 15
    objective: Literal["cross_entropy", "self_critical"] = "cross_entropy"
    """What is minimised: the negative log-probability of people's captions, or minus the expected reward of its own."""
    self_critical: SelfCritical = field(default_factory=SelfCritical)
    """For the objective self_critical."""
    batch_size: int = 10
    """Examples (images, questions, sentences) per step, on all devices together."""
    accumulate: int = 1
    """Parts that each step's examples are worked through in, one after the other, to save memory."""
    rows: int = 5
    """Captions per image and step; they share the encoded image."""
    max_words: int = 16
    """Longer captions are cut for training."""
    schedule: Schedule = field(default_factory=StepDecay)
    optimizer: Literal["adam", "adamw", "radam"] = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    """The optimiser's, for the running means of gradients and their squares."""
    epsilon: float = 1e-8
    """The optimiser's."""
    weight_decay: float = 0.0
    """The optimiser's."""
    label_smoothing: float = 0.0
    smoothing: Literal["all", "others"] = "all"
    """Where the smoothed share goes: over all words (Szegedy et al., 2016), or over all but the target, with the loss
    told as a divergence, which is 0 at best (AoANet and X-Transformer as released)."""
    scheduled_sampling: ScheduledSampling = field(default_factory=ScheduledSampling)
    dropout: Mapping[str, float] = field(default_factory=dict)
    """Rates of dropout that are other in this stage than in the model's configuration, by the names of its fields;
    a borrowed decoder keeps its own."""
    clip_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    clip_value: float = 0.0
    """Each number of a gradient is cut to this size before that; 0 leaves them."""
    average: Literal["none", "exponential", "epochs"] = "none"
    """Which mean of the weights is validated and kept: none, one that forgets the past exponentially, or the plain mean
    of the weights at the ends of epochs."""
    average_decay: float = 0.999
    """Share of the exponential mean that a step leaves."""
    average_from: int = 1
    """The first epoch that enters the mean."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    compile: bool = False
    """Whether torch.compile makes the model's steps faster; it takes a while at the beginning."""
    seed: int = 0
    """Of the first weights, the order of images, the choice of captions, samples and dropout."""
    validate_every: int = 1
    """Epochs between validations; the last epoch is always validated."""
    validation_beam: int = 3
    best_by: str = "CIDEr-D"
    """The validation score whose best model is kept."""
    patience: int = 0
    """Validations without a better score after which training stops; 0 trains all epochs."""
    save_every: int = 0
    """Steps between saved training states within an epoch; 0 saves at the end of each epoch only."""

    def __post_init__(self) -> None:
        counts = ("epochs", "batch_size", "accumulate", "rows", "max_words", "validate_every", "validation_beam")
        for name in (*counts, "average_from"):
            if getattr(self, name) < 1:
                raise UserError(f"training.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("seed", "save_every", "patience", "clip_norm", "clip_value", "weight_decay", "epsilon"):
            if not getattr(self, name) >= 0:
                raise UserError(f"training.{name} must be 0 or more, not {getattr(self, name)}")
        wrong = [name for name in self.dropout if not name.endswith(("dropout", "_drop"))]
        if wrong:
            raise UserError(f"training.dropout names {wrong[0]!r}, which is no rate of dropout; leave it out")
        shares = ("label_smoothing", "average_decay")
        for name, value in (*((name, getattr(self, name)) for name in shares), *(("betas", b) for b in self.betas)):
            if not 0 <= value < 1:
                raise UserError(f"training.{name} must lie in 0..1, below 1, not {value}")
