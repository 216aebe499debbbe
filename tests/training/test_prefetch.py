"""Batches that are read ahead are those that are asked for, whole or with their error."""

import threading

import numpy as np
import pytest
import torch
from small_runs import DATA, SECOND, SMALL, TRAINING, run

from legenda.errors import LegendaError
from legenda.tasks import Captioning
from legenda.tasks.self_critical import Rewards
from legenda.training import stage as stage_module
from legenda.training.launch import estimate_seconds
from legenda.training.stage import Prefetcher

CPU = torch.device("cpu")


def test_the_next_batch_is_read_while_this_one_is_computed():
    started, go_on = threading.Event(), threading.Event()

    def read(positions):
        started.set()
        assert go_on.wait(60)
        return {"features": torch.from_numpy(positions)}

    reader = Prefetcher(read, CPU)
    reader.start(np.array([0]))
    assert started.wait(60)  # reading is under way, and nobody waits for it
    go_on.set()
    assert reader.next(np.array([0]))["features"].tolist() == [0]


def test_an_error_is_raised_where_its_batch_is_taken():
    def read(positions):
        if 2 in positions:
            raise LegendaError("the features of image 2 are damaged; extract them again")
        return {"features": torch.from_numpy(positions)}

    reader = Prefetcher(read, CPU)
    reader.start(np.array([1, 2]))
    reader.start(np.array([3]))
    assert reader.next(np.array([3]))["features"].tolist() == [3]
    with pytest.raises(LegendaError, match="image 2"):
        reader.next(np.array([1, 2]))


def test_the_threads_of_every_stage_end_with_it(tmp_path, monkeypatch):
    opened = []

    class Recorded(Prefetcher):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            opened.append(self)

    rewards, create = [], Rewards.from_config
    monkeypatch.setattr(stage_module, "Prefetcher", Recorded)
    monkeypatch.setattr(Rewards, "from_config", lambda *parts: rewards.append(create(*parts)) or rewards[-1])
    run(tmp_path, TRAINING.replace(epochs=1), fine_tuning=SECOND.replace(epochs=1))
    estimate_seconds("ngsan", SMALL, Captioning(DATA), (SECOND,), "cpu")
    assert (len(opened), len(rewards)) == (3, 2)
    for reader in opened:
        with pytest.raises(RuntimeError, match="after shutdown"):
            reader.start(np.array([0]))
    for computer in rewards:
        with pytest.raises(RuntimeError, match="after shutdown"):
            computer.start(np.array([0]), torch.zeros(1, 1, 1, dtype=torch.long))
