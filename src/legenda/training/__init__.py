"""Training: objectives, schedules, the loop, and the state that survives a kill."""

from legenda.training.folder import check_folder, is_finished
from legenda.training.loop import Trained, train
from legenda.training.objectives import cross_entropy
from legenda.training.schedules import StepDecay
from legenda.training.settings import Training

__all__ = ["StepDecay", "Trained", "Training", "check_folder", "cross_entropy", "is_finished", "train"]
