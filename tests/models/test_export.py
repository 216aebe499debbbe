"""torch.export of the encoder, and of one decoder step over a static cache, of each family of models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

import legenda
from legenda.models import Captioner
from legenda.regions import Regions

VOCAB_SIZE, FEATURE_DIM, ROWS, MAX_LENGTH = 11, 6, 2, 4
SIZES = {"dim": 16, "num_heads": 2, "num_layers": 2, "decoder_layers": 2, "ff_dim": 16, "mid_dim": 4}
FAMILIES = [
    "transformer",
    "xlan",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("ngsan", "aoanet", "xtransformer", "mdsan", "meshed")),
]


def flatten(value: Any) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Any]]:
    """The tensors of nested tuples and dataclasses, and a function that puts other tensors in their positions."""
    if isinstance(value, Tensor):
        return [value], lambda tensors: tensors[0]
    if value is None:
        return [], lambda _: None
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        tensors, rebuild = flatten(tuple(getattr(value, field.name) for field in dataclasses.fields(value)))
        return tensors, lambda new: kind(*rebuild(new))
    assert isinstance(value, tuple)
    parts = [flatten(part) for part in value]

    def rebuild_tuple(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        remaining = list(tensors)
        return tuple(rebuild([remaining.pop(0) for _ in own]) for own, rebuild in parts)

    return [tensor for own, _ in parts for tensor in own], rebuild_tuple


class Encoder(nn.Module):
    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, boxes: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(flatten(self.model.encode(Regions(features, boxes, mask)))[0])


class Step(nn.Module):
    def __init__(self, model: Captioner, state: Any, memory: Any) -> None:
        super().__init__()
        self.decoder = model.decoder
        state_tensors, self.rebuild_state = flatten(state)
        _, self.rebuild_memory = flatten(memory)
        self.split = len(state_tensors)

    def forward(self, tokens: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        state, memory = self.rebuild_state(tensors[: self.split]), self.rebuild_memory(tensors[self.split :])
        logits, state = self.decoder.step(tokens, state, memory)
        return logits, *flatten(state)[0]


@pytest.fixture(params=FAMILIES)
def model(request) -> Captioner:
    torch.manual_seed(0)
    known = legenda.models.describe_model(request.param).config.__dataclass_fields__
    sizes = {name: size for name, size in SIZES.items() if name in known}
    model = legenda.create_model(request.param, vocab_size=VOCAB_SIZE, feature_dim=FEATURE_DIM, **sizes)
    return model.eval()


@pytest.fixture
def _unchecked_shapes():
    """Turn the checks of annotated shapes off: comparing sizes, they make dynamic ones constants."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@torch.no_grad()
@pytest.mark.usefixtures("_unchecked_shapes")
def test_encoder_and_decoder_step_are_exported(model, draw_regions):
    regions = draw_regions((7, 5, 6), dim=FEATURE_DIM)
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    inputs = regions.features, regions.boxes, regions.mask.clone()
    encoder = torch.export.export(Encoder(model), inputs, dynamic_shapes=(dynamic,) * 3).module()
    fewer = draw_regions((4, 3), dim=FEATURE_DIM, seed=1)  # other numbers of images and regions
    exported = encoder(fewer.features, fewer.boxes, fewer.mask)
    torch.testing.assert_close(list(exported), flatten(model.encode(fewer))[0], atol=1e-5, rtol=0)

    memory = model.encode(regions)
    bos = torch.full((len(memory), ROWS), model.generation_config.bos_token_id)
    _, state = model.decoder.step(bos, model.decoder.init_static_state(memory, ROWS, MAX_LENGTH), memory)
    tensors, _ = flatten(state)
    memory_tensors, _ = flatten(memory)
    step = torch.export.export(Step(model, state, memory), (bos, *tensors, *memory_tensors)).module()
    generator = torch.Generator().manual_seed(0)
    for _ in range(MAX_LENGTH - 1):
        tokens = torch.randint(VOCAB_SIZE, bos.shape, generator=generator)
        logits, state = model.decoder.step(tokens, state, memory)
        exported_logits, *tensors = step(tokens, *tensors, *memory_tensors)
        torch.testing.assert_close(exported_logits, logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(tensors, flatten(state)[0], atol=1e-5, rtol=0)
