"""Training: configuration, schedules, the loop, and checkpoints from which a killed run resumes exactly."""

from legenda.training.config import TrainingConfig
from legenda.training.launch import TrainResult, check_folder, is_finished, train
from legenda.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    EpochwiseLR,
    InverseSqrt,
    Linear,
    Noam,
    Plateau,
    Schedule,
    StepDecay,
)

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "EpochwiseLR",
    "InverseSqrt",
    "Linear",
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
