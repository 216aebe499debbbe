"""The second stage of small runs, and a validation that does not depend on the model."""

import pytest

from legenda.tasks import captioning as captioning_module
from legenda.tasks.base import SelfCriticalConfig
from legenda.training import TrainingConfig
from legenda.training import launch as launch_module
from legenda.training.schedules import Plateau

SECOND = TrainingConfig(
    epochs=2,
    objective="self_critical",
    self_critical=SelfCriticalConfig(
        num_samples=3, max_length=8, rewards={"CIDEr-D": 1.0, "BLEU-4": 0.5}, baseline="greedy", xe_weight=0.1
    ),
    batch_size=4,
    captions_per_image=2,
    schedule=Plateau(learning_rate=1e-3, patience=0),
    optimizer="sgd",
    max_grad_norm=0.0,
    max_grad_value=0.1,
    weight_averaging="swa",
    eval_beam_size=1,
    checkpoint_every=4,
)


def scored(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """Make validations return these scores, one after the other."""
    following = iter(scores)
    monkeypatch.setattr(captioning_module, "score_captions", lambda *_: {"CIDEr-D": next(following)})
    monkeypatch.setattr(launch_module, "check_monitor", lambda *_: None)
