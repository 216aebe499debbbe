"""Averages of weights against their recursion by hand."""

import pytest
import torch
from torch import nn

from legenda.training import TrainingConfig
from legenda.training.stage import AverageWeights


def set_weight(model: nn.Linear, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def test_the_exponential_average_by_hand():
    """The decay is (1 + n) / (10 + n) after n updates, at most the given one: 2/11 at first, 1/5 from then on."""
    model = nn.Linear(1, 1, bias=False).double()
    average = AverageWeights(model, TrainingConfig(weight_averaging="ema", ema_decay=0.2))
    expected = 1.0
    for value, decay in ((1.0, 0.0), (4.0, 2 / 11), (-2.0, 0.2), (7.0, 0.2)):
        set_weight(model, value)
        average.after_step(epoch=1)
        expected = decay * expected + (1 - decay) * value
        assert average.values["weight"].item() == pytest.approx(expected)


def test_the_model_has_the_average_in_the_block_only_and_from_the_named_epoch():
    model = nn.Linear(1, 1, bias=False)
    average = AverageWeights(model, TrainingConfig(weight_averaging="ema", ema_decay=0.5, averaging_start_epoch=2))
    set_weight(model, 3.0)
    average.after_step(epoch=1)
    assert not average.values
    average.after_step(epoch=2)
    set_weight(model, 5.0)
    with average.swap_in():
        assert model.weight.item() == 3.0
    assert model.weight.item() == 5.0
