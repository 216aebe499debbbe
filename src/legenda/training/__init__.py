"""Training: configuration, schedules, the loop, and checkpoints from which a killed run resumes exactly."""

from typing import TYPE_CHECKING

from legenda.lazy import lazy_names
from legenda.training.config import TrainingConfig
from legenda.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    EpochwiseLR,
    InverseSqrt,
    Noam,
    Plateau,
    Schedule,
    StepDecay,
)

if TYPE_CHECKING:
    from legenda.training.launch import TrainResult, train
    from legenda.training.run_folder import check_folder, is_finished

__getattr__ = lazy_names(__name__, {"launch": ["TrainResult", "train"], "run_folder": ["check_folder", "is_finished"]})

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "EpochwiseLR",
    "InverseSqrt",
    "Noam",
    "Plateau",
    "Schedule",
    "StepDecay",
    "TrainResult",
    "TrainingConfig",
    "check_folder",
    "is_finished",
    "train",
]
