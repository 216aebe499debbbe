"""How the learning rate goes over steps and epochs, by the rules of the papers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from legenda.errors import UserError


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """Linear warm-up to `rate`, then a multiplication by `decay` after each of the named epochs.

    AoANet's release is rate 2e-4 without warm-up, times 0.8 after each third epoch.
    """

    rate: float = 3e-4
    warmup_steps: int = 1000
    decay: float = 0.5
    decay_after: tuple[int, ...] = (6, 9, 12)
    """Epochs, counted from 1, after which the rate falls; the default is NG-SAN's (section 5.1)."""

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.warmup_steps < 0 or not self.decay > 0:
            raise UserError("training.schedule needs rate and decay above 0 and warmup_steps of 0 or more")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of a step counted from 0, in an epoch counted from 1; `scores` are those validated so far.

        Steps, epochs and scores are those of the stage.
        """
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return self.rate * warm * self.decay ** sum(epoch > last for last in self.decay_after)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A rate for each epoch, as NG-SAN (section 5.1) and MD-SAN's release have it; the last one stays."""

    rates: tuple[float, ...] = (1e-4, 2e-4, *[3e-4] * 4, *[1.5e-4] * 3, *[7.5e-5] * 3, *[3.75e-5] * 3)
    """The default is NG-SAN's: it rises over three epochs, and is halved after the sixth and every third from then."""

    def __post_init__(self) -> None:
        if not self.rates or not min(self.rates) > 0:
            raise UserError("training.schedule.rates needs at least one rate, all above 0")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of an epoch counted from 1."""
        return self.rates[min(epoch, len(self.rates)) - 1]


@dataclass(frozen=True, kw_only=True)
class Noam:
    """A rate that rises over `warmup_steps` and falls with the root of the steps from then on (Vaswani et al., 2017).

    X-LAN and X-Transformer use it with their width as `dim`.
    """

    factor: float = 1.0
    dim: int = 1024
    warmup_steps: int = 10_000

    def __post_init__(self) -> None:
        if not self.factor > 0 or self.dim < 1 or self.warmup_steps < 1:
            raise UserError("training.schedule needs factor above 0, and dim and warmup_steps of at least 1")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of a step counted from 0."""
        number = step + 1
        return self.factor * self.dim**-0.5 * min(number**-0.5, number * self.warmup_steps**-1.5)


@dataclass(frozen=True, kw_only=True)
class InverseSqrt:
    """A rate that rises in a line from `first` to `rate` over `warmup_steps`, then falls with the root of the steps.

    It is what translation is trained with (Ott et al., 2018, fairseq's inverse_sqrt); `Noam` with its two sizes joined
    in one rate.
    """

    rate: float = 5e-4
    first: float = 1e-7
    warmup_steps: int = 4000

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.rate or self.warmup_steps < 1:
            raise UserError(
                "training.schedule needs first above 0, rate not below first, and warmup_steps of at least 1"
            )

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of a step counted from 0."""
        if step < self.warmup_steps:
            return self.first + (self.rate - self.first) * step / self.warmup_steps
        return self.rate * math.sqrt(self.warmup_steps / step)


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A rate that falls by `factor` when validations have not bettered the best score for more than `patience` of them.

    AoANet's release halves with patience 3; X-LAN's takes 0.8 with patience 3. A score counts as better when it
    exceeds the best by a share of `threshold`. (Both releases hand torch a negative score, with which its relative
    threshold lets a slightly worse score pass for better; here it does not.)
    """

    rate: float = 2e-5
    factor: float = 0.5
    patience: int = 3
    threshold: float = 1e-4

    def __post_init__(self) -> None:
        if not self.rate > 0 or not 0 < self.factor <= 1 or self.patience < 0 or not self.threshold >= 0:
            raise UserError(
                "training.schedule needs rate above 0, factor in 0..1, and patience and threshold of 0 or more"
            )

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate after validations gave these `scores`."""
        best, bad, falls = -math.inf, 0, 0
        for score in scores:
            if score > best + abs(best) * self.threshold or best == -math.inf:
                best, bad = score, 0
            else:
                bad += 1
            if bad > self.patience:
                bad, falls = 0, falls + 1
        return self.rate * self.factor**falls


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One rate, after a linear warm-up."""

    rate: float = 1e-5
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.warmup_steps < 0:
            raise UserError("training.schedule needs rate above 0 and warmup_steps of 0 or more")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of a step counted from 0."""
        return self.rate * (min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Linear warm-up to `rate`, then half a wave of the cosine down to `last`, which it reaches at `steps`."""

    rate: float = 3e-4
    last: float = 0.0
    steps: int = 100_000
    warmup_steps: int = 1000

    def __post_init__(self) -> None:
        if not self.rate > 0 or not 0 <= self.last <= self.rate or not 0 <= self.warmup_steps < self.steps:
            raise UserError("training.schedule needs rate above 0, last in 0..rate, and warmup_steps in 0..steps")

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """The learning rate of a step counted from 0."""
        if step < self.warmup_steps:
            return self.rate * (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.steps - self.warmup_steps))
        return self.last + (self.rate - self.last) * (1 + math.cos(math.pi * done)) / 2


Schedule = StepDecay | Table | Noam | InverseSqrt | Plateau | Constant | Cosine

SCHEDULES: dict[str, type[Schedule]] = {
    "step_decay": StepDecay,
    "table": Table,
    "noam": Noam,
    "inverse_sqrt": InverseSqrt,
    "plateau": Plateau,
    "constant": Constant,
    "cosine": Cosine,
}
"""Every schedule by its name."""
