"""Training: configuration, schedules, the loop, and checkpoints from which a killed run resumes exactly."""

from legenda.training.config import TrainingConfig
from legenda.training.launch import TrainResult, check_folder, is_finished, train
from legenda.training.loop import Callback
from legenda.training.schedules import Constant, Schedule

__all__ = ["Callback", "Constant", "Schedule", "TrainResult", "TrainingConfig", "check_folder", "is_finished", "train"]
