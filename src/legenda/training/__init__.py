"""Training: configuration, schedules, the loop, and checkpoints from which a killed run resumes exactly."""

from legenda.tasks.config import ScheduledSampling, SelfCritical
from legenda.training.config import Training
from legenda.training.launch import Trained, train
from legenda.training.run_folder import check_folder, is_finished
from legenda.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    InverseSqrt,
    Noam,
    Plateau,
    Schedule,
    StepDecay,
    Table,
)

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "InverseSqrt",
    "Noam",
    "Plateau",
    "Schedule",
    "ScheduledSampling",
    "SelfCritical",
    "StepDecay",
    "Table",
    "Trained",
    "Training",
    "check_folder",
    "is_finished",
    "train",
]
