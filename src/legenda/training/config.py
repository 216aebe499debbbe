"""The settings of a training run."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, InstanceOf, SerializeAsAny, model_validator

from legenda.compute import Precision
from legenda.config import Count, NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from legenda.tasks.base import ObjectiveConfig
from legenda.training.schedules import SCHEDULES, Schedule, StepDecay

PATIENCES = ("early_stopping_patience", "last_rate_patience")
"""Settings that end a stage before its last epoch; a finished run trains on with more of what ended it, or 0."""


class TrainingConfig(ObjectiveConfig):
    """How a model is optimized, evaluated and saved during one training stage."""

    epochs: PositiveInt = 15
    steps_per_epoch: NonNegativeInt = 0
    """Steps of an epoch, whatever the number of examples; 0 takes each example once."""
    gradient_accumulation_steps: PositiveInt = 1
    """Chunks into which each step's examples are split, one after the other, to save memory."""
    schedule: Annotated[SerializeAsAny[InstanceOf[Schedule]], SCHEDULES.of_kind()] = Field(default_factory=StepDecay)
    backbone_rate: NonNegativeFloat = 0.1
    """The learning rate of a backbone that is trained, as a share of the schedule's; 0 keeps its weights."""
    optimizer: Literal["adam", "adamw", "radam", "sgd"] = "adam"
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Betas of Adam; sgd takes the first one as its momentum."""
    eps: NonNegativeFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0
    dropout: Mapping[str, Probability] = Field(default_factory=dict)
    """Dropout rates of this stage that differ from the model's configuration, by field name; the decoder of another
    model keeps its rates."""
    max_grad_norm: NonNegativeFloat = 1.0
    """Gradients are clipped to this norm; 0 turns clipping off."""
    max_grad_value: NonNegativeFloat = 0.0
    """Each component of the gradient is clipped to this magnitude first; 0 turns it off."""
    weight_averaging: Literal["none", "ema", "swa"] = "none"
    """The weights that are evaluated and saved: the current ones, their exponential moving average, or the mean of the
    weights at the ends of epochs."""
    ema_decay: Probability = 0.999
    averaging_start_epoch: PositiveInt = 1
    """The first epoch that enters the average."""
    precision: Precision = "float32"
    """bf16 and fp16 compute by PyTorch's autocast; the weights stay float32."""
    compile: bool = False
    """Whether to compile the training step with torch.compile."""
    seed: NonNegativeInt = 0
    """Seed of initialization, data order, choice of captions, sampling and dropout."""
    eval_every: PositiveInt = 1
    """Epochs between evaluations on the validation split; the last epoch is always evaluated."""
    eval_beam_size: Count = 3
    """The `beam_size` of the search on the validation split."""
    eval_collapse_repeats: bool = False
    """Whether a word that follows itself in a caption is dropped before scoring, here and by default in `legenda
    evaluate` (MD-SAN and M2 as released; not in their reward)."""
    monitor: str = "CIDEr-D"
    """The validation score that selects the best model."""
    early_stopping_patience: NonNegativeInt = 0
    """Evaluations without improvement after which training stops; 0 trains all epochs."""
    last_rate_patience: NonNegativeInt = 0
    """Evaluations without improvement at the last rate of the schedule after which training stops; 0 trains all epochs.
    Where that rate is 0, training stops in any case."""
    checkpoint_every: NonNegativeInt = 0
    """Steps between checkpoints within an epoch; 0 writes them at the ends of epochs only."""

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        unknown = [name for name in self.dropout if not name.endswith(("dropout", "_drop"))]
        if unknown:
            raise ValueError(f"dropout names {unknown[0]!r}, which is not a dropout rate; leave it out")
        return self

    def count_steps(self, examples: int) -> int:
        """Return the steps of an epoch, for a training split of so many examples."""
        return self.steps_per_epoch or math.ceil(examples / self.batch_size)
