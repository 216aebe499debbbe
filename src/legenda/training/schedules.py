"""How the learning rate goes over the steps."""

from dataclasses import dataclass

from legenda.errors import UserError


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """Linear warm-up to `rate`, then a multiplication by `decay` after each of the named epochs."""

    rate: float = 3e-4
    warmup_steps: int = 1000
    decay: float = 0.5
    decay_after: tuple[int, ...] = (6, 9, 12)
    """Epochs, counted from 1, after which the rate falls; the default is NG-SAN's (section 5.1)."""

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.warmup_steps < 0 or not self.decay > 0:
            raise UserError("training.schedule needs rate and decay above 0 and warmup_steps of 0 or more")

    def at(self, step: int, epoch: int) -> float:
        """The learning rate of a step counted from 0, in an epoch counted from 1."""
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return self.rate * warm * self.decay ** sum(epoch > last for last in self.decay_after)
