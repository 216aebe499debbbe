"""When a training stage ends: after its epochs, or earlier where its scores or its learning rate give no hope."""

from collections.abc import Sequence

from legenda.training.checkpoint import Progress
from legenda.training.config import TrainingConfig


def stage_is_over(config: TrainingConfig, progress: Progress, steps_per_epoch: int) -> bool:
    """Return whether the current stage is over, at the end of an epoch of that many steps."""
    epochs, scores = progress.epoch - progress.stage_epoch, progress.scores
    if epochs >= config.epochs or _is_over(config.early_stopping_patience, scores):
        return True
    # all of the last evaluations that count were at the last rate, from the epoch after the one before them
    epoch = (len(scores) - config.last_rate_patience) * config.eval_every
    if _is_over(config.last_rate_patience, scores) and config.schedule.has_ended(epoch * steps_per_epoch, epoch + 1):
        return True
    step, next_epoch = progress.step - progress.stage_step, epochs + 1
    has_no_rate = config.schedule.has_ended(step, next_epoch) and config.schedule.at(step, next_epoch, scores) == 0
    return has_no_rate and epochs % config.eval_every == 0  # the last weights are evaluated


def _is_over(patience: int, scores: Sequence[float]) -> bool:
    """Return whether so many scores, unless 0, came after the best one."""
    return bool(patience and scores and len(scores) - scores.index(max(scores)) > patience)
