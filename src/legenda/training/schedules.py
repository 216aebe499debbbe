"""Learning-rate schedules of the papers.

Steps are counted from 0 and epochs from 1; both, and the validation scores, are those of the current training stage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from legenda.errors import ConfigError


def _warmup(step: int, warmup_steps: int) -> float:
    """Return the factor of a linear warm-up at a step."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """Linear warm-up to `learning_rate`, then multiplication by `decay` after each of the given epochs.

    AoANet's release uses 2e-4 without warm-up, times 0.8 after every third epoch.
    """

    learning_rate: float = 3e-4
    warmup_steps: int = 1000
    decay: float = 0.5
    decay_after: tuple[int, ...] = (6, 9, 12)
    """Epochs after which the rate decays; the default is NG-SAN's (section 5.1)."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0 or self.warmup_steps < 0 or not self.decay > 0:
            raise ConfigError("training.schedule needs learning_rate and decay above 0 and warmup_steps of 0 or more")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step of an epoch, after validations gave `scores`."""
        decays = sum(epoch > last for last in self.decay_after)
        return self.learning_rate * _warmup(step, self.warmup_steps) * self.decay**decays


@dataclass(frozen=True, kw_only=True)
class EpochwiseLR:
    """One learning rate per epoch, as in NG-SAN (section 5.1) and MD-SAN's release; the last one is kept."""

    learning_rates: tuple[float, ...] = (1e-4, 2e-4, *[3e-4] * 4, *[1.5e-4] * 3, *[7.5e-5] * 3, *[3.75e-5] * 3)
    """The default is NG-SAN's: warm-up over three epochs, halved after the sixth and every third epoch from there."""

    def __post_init__(self) -> None:
        if not self.learning_rates or not min(self.learning_rates) > 0:
            raise ConfigError("training.schedule.learning_rates needs at least one rate, all above 0")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate of an epoch."""
        return self.learning_rates[min(epoch, len(self.learning_rates)) - 1]


@dataclass(frozen=True, kw_only=True)
class Noam:
    """Linear warm-up over `warmup_steps`, then decay with the inverse square root of the step (Vaswani et al., 2017).

    X-LAN and X-Transformer use it with their model dimension as `dim`.
    """

    factor: float = 1.0
    dim: int = 1024
    warmup_steps: int = 10_000

    def __post_init__(self) -> None:
        if not self.factor > 0 or self.dim < 1 or self.warmup_steps < 1:
            raise ConfigError("training.schedule needs factor above 0, and dim and warmup_steps of at least 1")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        number = step + 1
        return self.factor * self.dim**-0.5 * min(number**-0.5, number * self.warmup_steps**-1.5)


@dataclass(frozen=True, kw_only=True)
class InverseSqrt:
    """Linear warm-up from `initial_learning_rate` to `learning_rate`, then inverse square root decay.

    The schedule of translation (fairseq's inverse_sqrt; Ott et al., 2018): `Noam` with its two sizes in one rate.
    """

    learning_rate: float = 5e-4
    initial_learning_rate: float = 1e-7
    warmup_steps: int = 4000

    def __post_init__(self) -> None:
        if not 0 < self.initial_learning_rate <= self.learning_rate or self.warmup_steps < 1:
            raise ConfigError(
                "training.schedule needs initial_learning_rate above 0, learning_rate not below it, and warmup_steps "
                "of at least 1"
            )

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        if step < self.warmup_steps:
            span = self.learning_rate - self.initial_learning_rate
            return self.initial_learning_rate + span * step / self.warmup_steps
        return self.learning_rate * math.sqrt(self.warmup_steps / step)


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """Multiply the rate by `factor` after more than `patience` validations without improvement.

    AoANet's release: factor 0.5, patience 3; X-LAN's: 0.8 and 3. A score is an improvement when it exceeds the best by
    more than the relative `threshold`. (Both releases pass torch a negative score, with which its relative threshold
    accepts a slightly worse score as an improvement; this implementation does not.)
    """

    learning_rate: float = 2e-5
    factor: float = 0.5
    patience: int = 3
    threshold: float = 1e-4

    def __post_init__(self) -> None:
        if not self.learning_rate > 0 or not 0 < self.factor <= 1 or self.patience < 0 or not self.threshold >= 0:
            raise ConfigError(
                "training.schedule needs learning_rate above 0, factor in (0, 1], and patience and threshold of 0 or "
                "more"
            )

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate after validations gave `scores`."""
        best, bad, reductions = -math.inf, 0, 0
        for score in scores:
            if score > best + abs(best) * self.threshold or best == -math.inf:
                best, bad = score, 0
            else:
                bad += 1
            if bad > self.patience:
                bad, reductions = 0, reductions + 1
        return self.learning_rate * self.factor**reductions


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A constant rate after linear warm-up."""

    learning_rate: float = 1e-5
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if not self.learning_rate > 0 or self.warmup_steps < 0:
            raise ConfigError("training.schedule needs learning_rate above 0 and warmup_steps of 0 or more")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        return self.learning_rate * _warmup(step, self.warmup_steps)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Linear warm-up to `learning_rate`, then cosine decay to `min_learning_rate`, reached at `total_steps`."""

    learning_rate: float = 3e-4
    min_learning_rate: float = 0.0
    total_steps: int = 100_000
    warmup_steps: int = 1000

    def __post_init__(self) -> None:
        rates = self.learning_rate > 0 and 0 <= self.min_learning_rate <= self.learning_rate
        if not rates or not 0 <= self.warmup_steps < self.total_steps:
            raise ConfigError(
                "training.schedule needs learning_rate above 0, min_learning_rate from 0 to learning_rate, and "
                "warmup_steps below total_steps"
            )

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        span = self.learning_rate - self.min_learning_rate
        return self.min_learning_rate + span * (1 + math.cos(math.pi * done)) / 2


Schedule = StepDecay | EpochwiseLR | Noam | InverseSqrt | Plateau | Constant | Cosine

SCHEDULES: dict[str, type[Schedule]] = {
    "step_decay": StepDecay,
    "epochwise": EpochwiseLR,
    "noam": Noam,
    "inverse_sqrt": InverseSqrt,
    "plateau": Plateau,
    "constant": Constant,
    "cosine": Cosine,
}
