"""The settings of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from legenda.errors import UserError
from legenda.tasks.config import ObjectiveConfig
from legenda.training.schedules import Schedule, StepDecay


@dataclass(frozen=True, kw_only=True)
class Training(ObjectiveConfig):
    """How a model is trained, validated and kept."""

    epochs: int = 15
    accumulate: int = 1
    """Parts that each step's examples are worked through in, one after the other, to save memory."""
    schedule: Schedule = field(default_factory=StepDecay)
    optimizer: Literal["adam", "adamw", "radam"] = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    """The optimiser's, for the running means of gradients and their squares."""
    epsilon: float = 1e-8
    """The optimiser's."""
    weight_decay: float = 0.0
    """The optimiser's."""
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
