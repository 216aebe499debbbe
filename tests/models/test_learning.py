"""Every named model can memorize sixteen scenes, so its gradients reach what they need to reach."""

import functools

import numpy as np
import pytest
import torch

import legenda
from legenda.data.captions import DataModule, EncodedCaptions, ScenesData
from legenda.models import describe_model
from legenda.tasks.objectives import cross_entropy

RATE, WARM_UP, MAX_STEPS, EVAL_EVERY = 1e-2, 20, 800, 25


@functools.cache
def scenes() -> DataModule:
    return ScenesData(train=16, validation=6, test=4).open(lambda _: None)


REPRESENTATIVES = {"ngsan", "mdsan"}
"""The models of `make test`, which learn fastest."""


def every_model() -> list:
    return [
        pytest.param(name, marks=[] if name in REPRESENTATIVES else [pytest.mark.slow])
        for name in legenda.list_models()
    ]


@pytest.mark.parametrize("name", every_model())
def test_sixteen_scenes(name, sized):
    data = scenes()
    regions, tokens = data.train.read(np.arange(16)), EncodedCaptions.of(data.train, data.vocabulary, 16).tokens.long()
    layers = {} if "num_layers" in describe_model(name).settings else sized(name, num_layers=2)
    small = sized(name, dropout=0.0, dim=48, num_heads=4, ff_dim=96, geometry_dim=16, additive_dim=32, mid_dim=8)
    torch.manual_seed(0)
    words, width = len(data.vocabulary), data.feature_dim
    model = legenda.create_model(name, vocab_size=words, feature_dim=width, **{**layers, **small})
    model.vocabulary = data.vocabulary
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    truth = 0.0
    for step in range(1, MAX_STEPS + 1):
        loss = cross_entropy(model(regions, tokens[..., :-1].clamp(min=0)), tokens[..., 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / WARM_UP)
        optimizer.step()
        if step % EVAL_EVERY == 0:
            captions = dict(zip(data.train.ids, model.caption(regions, beam_size=1), strict=True))
            assert data.train.score is not None
            truth = data.train.score(captions)["truth"]
            if truth == 1.0:
                break
    assert truth == 1.0
