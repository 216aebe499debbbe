"""What the papers' figures show of a model's encoder: geometric weights, self-attention, and the matrices of Eq. 19."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from legenda.attention import (
    DistanceRescale,
    Geometry,
    GeometryBias,
    GeometryEmbedding,
    MultiHeadAttention,
    PairGeometry,
)
from legenda.errors import UserError
from legenda.models import Captioner
from legenda.regions import Regions

_LEAST = 1e-12
"""The least size of a score that is divided by."""


def count_layers(model: Captioner) -> int:
    """Layers of the encoder."""
    return len(_layers(model))


def attentions_of(model: Captioner, layer: int) -> list[MultiHeadAttention]:
    """The self-attention of an encoder layer, counted from 1: one for each branch.

    Raises UserError for a layer that is not there, and where the encoder has no heads that compare regions.
    """
    layers = _layers(model)
    if not layers:
        raise UserError(f"{model.name} has no layers in its encoder, so no regions look at each other in it")
    if not 1 <= layer <= len(layers):
        raise UserError(f"{model.name} has no layer {layer}; choose from 1 to {len(layers)}")
    found = [module for module in layers[layer - 1].modules() if isinstance(module, MultiHeadAttention)]
    if not found:
        raise UserError(f"{model.name} has no multi-head self-attention in its encoder; name a run of another model")
    return found


@torch.no_grad()
def self_attention(model: Captioner, regions: Regions, layer: int) -> Float[np.ndarray, "M H N N"]:
    """Whom each of the N regions of one picture looks at, in each branch and head of a layer (MD-SAN, Figure 4)."""
    attentions = attentions_of(model, layer)
    inputs = [_inputs(model, attention, regions) for attention in attentions]
    real = regions.mask_or_ones[0]
    found = []
    for attention, given in zip(attentions, inputs, strict=True):
        weights = attention(*given, need_weights=True).weights
        assert weights is not None
        found.append(weights[0][:, real][:, :, real])
    return torch.stack(found).cpu().numpy()


def reads_contents(model: Captioner, layer: int) -> bool:
    """Whether the geometric weights of a layer depend on what the regions hold (NG-SAN, Eqs. 12 and 13)."""
    return any(bias.query is not None or bias.key is not None for bias in _biases(model, layer))


@torch.no_grad()
def geometric_weights(
    model: Captioner, layer: int, ratios: Float[np.ndarray, "P 4"], contents: Regions | None = None
) -> Float[np.ndarray, "M H P"]:
    """The weight phi of each branch and head at P relative geometries (NG-SAN, Eqs. 11 to 13, appendix A.1).

    ratios: the four numbers above 0 whose logarithms are f, dx, dy, dw and dh (Eq. 15).
    contents: pictures whose regions serve as queries and keys. What is linear in them, as Eqs. 12 and 13 are, has its
    mean over all regions at the mean query and key; Eq. 11 reads none. Needed where `reads_contents` says so.
    """
    embeddings = _pairs(model).embeddings
    embedding = embeddings[(layer - 1) % len(embeddings)] if len(embeddings) else None
    biases = _biases(model, layer)
    boxes = _boxes_at(np.asarray(ratios, dtype=np.float64))
    found = []
    for bias in biases:
        assert isinstance(embedding, GeometryEmbedding)
        own, embed = copy.deepcopy(bias).double(), copy.deepcopy(embedding).double()
        query, key = (mean.expand(*boxes.shape[:2], -1) for mean in _mean_inputs(model, bias, contents))
        phi = own(query, key, Geometry(embedded=embed(boxes)))[:, :, 0, 1]
        found.append(phi.T / bias.factor)
    return torch.stack(found).cpu().numpy()


@torch.no_grad()
def position_matrices(model: Captioner, regions: Regions, layer: int, branch: int) -> Float[np.ndarray, "H N N"]:
    """Z = softmax(E / E0) of every head (MD-SAN, Eq. 19), for the regions of one picture.

    E are the scores that the softmax of a layer reads, E0 the same without positions. With a distance E / E0 is the
    factor R of Eq. 8, also where ReLU leaves 0 of both. A geometric bias is left out of the very layer; positions that
    are added to the regions are left out where they enter, so later layers also read other regions.

    Raises UserError for a branch that is not there, and for a model without positions.
    """
    attentions = attentions_of(model, layer)
    if not 1 <= branch <= len(attentions):
        raise UserError(f"{model.name} has no branch {branch} in layer {layer}; choose from 1 to {len(attentions)}")
    attention, real = attentions[branch - 1], regions.mask_or_ones[0]
    inputs = _inputs(model, attention, regions)
    if isinstance(attention.rescale, DistanceRescale):
        geometry = inputs[4]
        ratio = attention.rescale.factors(geometry.distance)[0]
        if attention.score_bias is not None or getattr(model.encoder, "absolute", False):
            raise UserError(f"{model.name} has geometry beside its distances, so Eq. 19 does not say what to leave out")
    elif attention.score_bias is not None:
        ratio = _ratio(_scores(attention, inputs), _scores(attention, inputs, biased=False))
    elif getattr(model.encoder, "absolute", False):
        with _without_places(model.encoder):
            placeless = _inputs(model, attention, regions)
        ratio = _ratio(_scores(attention, inputs), _scores(attention, placeless))
    else:
        raise UserError(
            f"{model.name} reads no positions in its encoder; name a run with some, such as mdsan_abspe, mdsan_relpe "
            "or mdsan_dsa"
        )
    return ratio[:, real][:, :, real].double().softmax(dim=-1).cpu().numpy()


def distance_weights(model: Captioner, layer: int) -> list[list[float] | None]:
    """The w of every head of each branch (MD-SAN, Eq. 7), below 0 where near regions count more; None without."""
    rescales = [attention.rescale for attention in attentions_of(model, layer)]
    return [found.weight.tolist() if isinstance(found, DistanceRescale) else None for found in rescales]


def _layers(model: Captioner) -> Sequence[nn.Module]:
    layers = getattr(model.encoder, "layers", ())
    return list(layers)


def _pairs(model: Captioner) -> PairGeometry:
    pairs = getattr(model.encoder, "geometry", None)
    if not isinstance(pairs, PairGeometry):
        raise UserError(f"{model.name} has no geometry in its encoder; name a run of gsan or ngsan")
    return pairs


def _biases(model: Captioner, layer: int) -> list[GeometryBias]:
    """The geometric biases of a layer, one for each branch."""
    found = [attention.score_bias for attention in attentions_of(model, layer)]
    biases = [bias for bias in found if isinstance(bias, GeometryBias)]
    if not biases:
        raise UserError(
            f"{model.name} has no geometric weights (NG-SAN, Eqs. 11 to 13); name a run of gsan, ngsan or of another "
            "model with geometry content, query or key"
        )
    return biases


def _boxes_at(ratios: np.ndarray) -> Float[Tensor, "P 2 4"]:
    """Pairs of boxes whose relative geometry (Eq. 14) is that of the ratios; the first has sides of 1."""
    dx, dy, dw, dh = torch.from_numpy(ratios).unbind(dim=1)
    first = torch.stack([torch.zeros_like(dx), torch.zeros_like(dx), torch.ones_like(dx), torch.ones_like(dx)], dim=1)
    x, y, half_w, half_h = 0.5 + dx, 0.5 + dy, 0.5 / dw, 0.5 / dh
    second = torch.stack([x - half_w, y - half_h, x + half_w, y + half_h], dim=1)
    return torch.stack([first, second], dim=1)


def _mean_inputs(model: Captioner, bias: GeometryBias, contents: Regions | None) -> tuple[Tensor, Tensor]:
    """The mean query and key that a bias reads of the pictures, in double precision; of width 0 where it reads none."""
    if bias.query is None and bias.key is None:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    if contents is None:
        raise UserError(f"the geometric weights of {model.name} depend on contents; give pictures for them")
    query, key, _ = _inputs(model, bias, contents)
    return query[contents.mask_or_ones].double().mean(dim=0), key[contents.mask_or_ones].double().mean(dim=0)


def _inputs(model: Captioner, module: nn.Module, regions: Regions) -> tuple[Any, ...]:
    """What a module inside the encoder is called with while these pictures are encoded."""
    calls: list[tuple[Any, ...]] = []
    handle = module.register_forward_pre_hook(lambda _, given: calls.append(given))
    try:
        model.eval().encode(regions)
    finally:
        handle.remove()
    return calls[0]


class _Listener(nn.Module):
    """In the last slot before the softmax: hears the scores and leaves them as they are."""

    def forward(self, scores: Tensor, geometry: Geometry | None) -> Tensor:
        del geometry
        self.scores = scores
        return scores


def _scores(attention: MultiHeadAttention, inputs: tuple[Any, ...], *, biased: bool = True) -> Float[Tensor, "H N N"]:
    """The scores of one picture, divided by sqrt(d_k), with the geometric bias or without it."""
    bias, listener = attention.score_bias, _Listener()
    attention.rescale = listener
    if not biased:
        attention.score_bias = None
    try:
        attention(*inputs)
    finally:
        attention.score_bias, attention.rescale = bias, None
    return listener.scores[0]


def _ratio(with_places: Tensor, without: Tensor) -> Tensor:
    without = without.double()
    least = torch.where(without < 0, -_LEAST, _LEAST)
    return with_places.double() / torch.where(without.abs() < _LEAST, least, without)


@contextmanager
def _without_places(encoder: Any) -> Iterator[None]:
    """Meanwhile the encoder adds no positions to the regions."""
    encoder.absolute = False
    try:
        yield
    finally:
        encoder.absolute = True
