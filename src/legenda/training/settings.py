"""The settings of a training run."""

from dataclasses import dataclass, field
from typing import Literal

from legenda.errors import UserError
from legenda.training.schedules import StepDecay


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained with cross-entropy, validated and kept."""

    epochs: int = 15
    batch_size: int = 10
    """Images per step."""
    rows: int = 5
    """Captions per image and step; they share the encoded image."""
    max_words: int = 16
    """Longer captions are cut for training."""
    schedule: StepDecay = field(default_factory=StepDecay)
    betas: tuple[float, float] = (0.9, 0.98)
    """Adam's."""
    label_smoothing: float = 0.0
    clip_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    seed: int = 0
    """Of the first weights, the order of images, the choice of captions and dropout."""
    validate_every: int = 1
    """Epochs between validations; the last epoch is always validated."""
    validation_beam: int = 3
    best_by: str = "CIDEr-D"
    """The validation score whose best model is kept."""
    save_every: int = 0
    """Steps between saved training states within an epoch; 0 saves at the end of each epoch only."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "rows", "max_words", "validate_every", "validation_beam"):
            if getattr(self, name) < 1:
                raise UserError(f"training.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("seed", "save_every", "clip_norm"):
            if not getattr(self, name) >= 0:
                raise UserError(f"training.{name} must be 0 or more, not {getattr(self, name)}")
        for name, value in (("label_smoothing", self.label_smoothing), *(("betas", beta) for beta in self.betas)):
            if not 0 <= value < 1:
                raise UserError(f"training.{name} must lie in 0..1, below 1, not {value}")
