"""Learning-rate schedules of the papers.

Steps are counted from 0 and epochs from 1; both, and the validation scores, are those of the current training stage.
"""

import math
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator

from legenda.config import Config, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt
from legenda.registry import Registry


class Schedule(Config):
    """Base class of schedules, which registered ones have too: the learning rate of each step.

    kind: the name under which a schedule is registered, as in `kind: Literal["noam"] = "noam"`.
    """

    kind: str

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:
        """Return the learning rate at a step of an epoch, after validations gave `scores`."""
        raise NotImplementedError

    def has_ended(self, step: int, epoch: int) -> bool:  # noqa: ARG002
        """Return whether the rate has fallen to its last value, which the schedules of no fixed end never do."""
        return False


def _warmup(step: int, warmup_steps: int) -> float:
    """Return the factor of a linear warm-up at a step."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


class StepDecay(Schedule):
    """Linear warm-up to `learning_rate`, then multiplication by `decay` after each of the given epochs.

    AoANet's release uses 2e-4 without warm-up, times 0.8 after every third epoch.
    """

    kind: Literal["step_decay"] = "step_decay"
    learning_rate: PositiveFloat = 3e-4
    warmup_steps: NonNegativeInt = 1000
    decay: PositiveFloat = 0.5
    decay_after: tuple[int, ...] = (6, 9, 12)
    """Epochs after which the rate decays; the default is NG-SAN's (section 5.1)."""

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step of an epoch, after validations gave `scores`."""
        decays = sum(epoch > last for last in self.decay_after)
        return self.learning_rate * _warmup(step, self.warmup_steps) * self.decay**decays

    def has_ended(self, step: int, epoch: int) -> bool:  # noqa: ARG002
        """Return whether the last decay is over."""
        return epoch > max(self.decay_after, default=math.inf)


class EpochwiseLR(Schedule):
    """One learning rate per epoch, as in NG-SAN (section 5.1) and MD-SAN's release; the last one is kept."""

    kind: Literal["epochwise"] = "epochwise"
    learning_rates: tuple[PositiveFloat, ...] = (1e-4, 2e-4, *[3e-4] * 4, *[1.5e-4] * 3, *[7.5e-5] * 3, *[3.75e-5] * 3)
    """The default is NG-SAN's: warm-up over three epochs, halved after the sixth and every third epoch from there."""

    @model_validator(mode="after")
    def _check_epochwise_l_r(self) -> Self:
        if not self.learning_rates:
            raise ValueError("learning_rates needs at least one rate")
        return self

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate of an epoch."""
        return self.learning_rates[min(epoch, len(self.learning_rates)) - 1]

    def has_ended(self, step: int, epoch: int) -> bool:  # noqa: ARG002
        """Return whether the last rate is reached and is not the highest."""
        return epoch >= len(self.learning_rates) and self.learning_rates[-1] < max(self.learning_rates)


class Noam(Schedule):
    """Linear warm-up over `warmup_steps`, then decay with the inverse square root of the step (Vaswani et al., 2017).

    X-LAN and X-Transformer use it with their model dimension as `dim`.
    """

    kind: Literal["noam"] = "noam"
    factor: PositiveFloat = 1.0
    dim: PositiveInt = 1024
    warmup_steps: PositiveInt = 10_000

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        number = step + 1
        return self.factor * self.dim**-0.5 * min(number**-0.5, number * self.warmup_steps**-1.5)


class InverseSqrt(Schedule):
    """Linear warm-up from `initial_learning_rate` to `learning_rate`, then inverse square root decay.

    The schedule of translation (fairseq's inverse_sqrt; Ott et al., 2018): `Noam` with its two sizes in one rate.
    """

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    learning_rate: PositiveFloat = 5e-4
    initial_learning_rate: PositiveFloat = 1e-7
    warmup_steps: PositiveInt = 4000

    @model_validator(mode="after")
    def _check_inverse_sqrt(self) -> Self:
        if self.initial_learning_rate > self.learning_rate:
            raise ValueError("learning_rate must be at least initial_learning_rate")
        return self

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        if step < self.warmup_steps:
            span = self.learning_rate - self.initial_learning_rate
            return self.initial_learning_rate + span * step / self.warmup_steps
        return self.learning_rate * math.sqrt(self.warmup_steps / step)


class Plateau(Schedule):
    """Multiply the rate by `factor` after more than `patience` validations without improvement.

    AoANet's release: factor 0.5, patience 3; X-LAN's: 0.8 and 3. A score is an improvement when it exceeds the best by
    more than the relative `threshold`. (Both releases pass torch a negative score, with which its relative threshold
    accepts a slightly worse score as an improvement; this implementation does not.)
    """

    kind: Literal["plateau"] = "plateau"
    learning_rate: PositiveFloat = 2e-5
    factor: PositiveFraction = 0.5
    patience: NonNegativeInt = 3
    threshold: NonNegativeFloat = 1e-4

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


class Constant(Schedule):
    """A constant rate after linear warm-up."""

    kind: Literal["constant"] = "constant"
    learning_rate: PositiveFloat = 1e-5
    warmup_steps: NonNegativeInt = 0

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        return self.learning_rate * _warmup(step, self.warmup_steps)


class Linear(Schedule):
    """A rate that falls from `learning_rate` at the first step to 0 at `total_steps` (Up-Down)."""

    kind: Literal["linear"] = "linear"
    learning_rate: PositiveFloat = 0.01
    total_steps: PositiveInt = 60_000

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        return self.learning_rate * max(0.0, 1 - step / self.total_steps)

    def has_ended(self, step: int, epoch: int) -> bool:  # noqa: ARG002
        """Return whether the rate is 0."""
        return step >= self.total_steps


class Cosine(Schedule):
    """Linear warm-up to `learning_rate`, then cosine decay to `min_learning_rate`, reached at `total_steps`."""

    kind: Literal["cosine"] = "cosine"
    learning_rate: PositiveFloat = 3e-4
    min_learning_rate: NonNegativeFloat = 0.0
    total_steps: PositiveInt = 100_000
    warmup_steps: NonNegativeInt = 1000

    @model_validator(mode="after")
    def _check_cosine(self) -> Self:
        if self.min_learning_rate > self.learning_rate or self.warmup_steps >= self.total_steps:
            raise ValueError("min_learning_rate must be at most learning_rate, and warmup_steps below total_steps")
        return self

    def at(self, step: int, epoch: int, scores: Sequence[float] = ()) -> float:  # noqa: ARG002
        """Return the learning rate at a step."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        span = self.learning_rate - self.min_learning_rate
        return self.min_learning_rate + span * (1 + math.cos(math.pi * done)) / 2

    def has_ended(self, step: int, epoch: int) -> bool:  # noqa: ARG002
        """Return whether `min_learning_rate` is reached."""
        return step >= self.total_steps


SCHEDULES: Registry[type[Schedule]] = Registry(
    "schedule", {kind.model_fields["kind"].default: kind for kind in Schedule.__subclasses__()}
)
