"""Values of a model's encoder for the figures: geometric weights, self-attention, and the matrices of Eq. 19."""

from __future__ import annotations

import copy
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
from legenda.errors import ConfigError
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.regions import Regions

_MIN_SCORE = 1e-12
"""Smallest magnitude of a divisor."""


def attentions_of(model: Captioner, layer: int) -> list[MultiHeadAttention]:
    """Return the self-attention modules of an encoder layer, counted from 1: one for each branch.

    Raise ConfigError for an unknown layer, and where the encoder has no multi-head self-attention.
    """
    layers = list(getattr(model.encoder, "layers", ()))
    if layers and not 1 <= layer <= len(layers):
        raise ConfigError(f"{model.name} has no layer {layer}; choose from 1 to {len(layers)}")
    modules = layers[layer - 1].modules() if layers else ()
    attentions = [module for module in modules if isinstance(module, MultiHeadAttention)]
    if not attentions:
        raise ConfigError(f"{model.name} has no multi-head self-attention in its encoder; name a run of another model")
    return attentions


def self_attention(model: Captioner, regions: Regions, layer: int) -> Float[np.ndarray, "M H N N"]:
    """Return the self-attention weights of one image in M branches and H heads of a layer (MD-SAN, Figure 4)."""
    attentions = attentions_of(model, layer)
    with eval_mode(model):
        outputs = [attention(*_inputs(model, attention, regions), need_weights=True) for attention in attentions]
    real = regions.mask_or_ones[0]
    return torch.stack([output.weights[0].float().cpu()[:, real][:, :, real] for output in outputs]).numpy()


def depends_on_features(model: Captioner, layer: int) -> bool:
    """Return whether the geometric weights of a layer depend on the features (NG-SAN, Eqs. 12 and 13)."""
    return any(bias.query is not None or bias.key is not None for bias in _biases(model, layer))


@torch.no_grad()
def geometric_weights(
    model: Captioner, layer: int, ratios: Float[np.ndarray, "P 4"], contents: Regions | None = None
) -> Float[np.ndarray, "M H P"]:
    """Return the weight phi of each branch and head at P relative geometries (NG-SAN, Eqs. 11 to 13, appendix A.1).

    ratios: the positive numbers whose logarithms are f: dx, dy, dw and dh (Eq. 15).
    contents: images whose regions serve as queries and keys, required where `depends_on_features`. Eqs. 12 and 13 are
    linear in them, so the mean over all regions is the value at the mean query and key; Eq. 11 reads none.
    """
    embeddings = _pairs(model).embeddings
    embedding = embeddings[(layer - 1) % len(embeddings)] if len(embeddings) else None
    biases = _biases(model, layer)
    boxes = _boxes_at(np.asarray(ratios, dtype=np.float64))
    weights = []
    for bias in biases:
        assert isinstance(embedding, GeometryEmbedding)
        module, embed = copy.deepcopy(bias).cpu().double(), copy.deepcopy(embedding).cpu().double()
        query, key = (mean.expand(*boxes.shape[:2], -1) for mean in _mean_inputs(model, bias, contents))
        phi = module(query, key, Geometry(embedded=embed(boxes)))[:, :, 0, 1]
        weights.append(phi.T / bias.factor)
    return torch.stack(weights).cpu().numpy()


def position_matrices(model: Captioner, regions: Regions, layer: int, branch: int) -> Float[np.ndarray, "H N N"]:
    """Return Z = softmax(E / E0) of every head (MD-SAN, Eq. 19) for the regions of one image.

    E are the scores before the softmax of a layer, E0 the same without positions. With distance rescaling, E / E0 is
    the factor R of Eq. 8, also where ReLU sets both to 0. A geometric bias is removed from this layer only; position
    embeddings are removed from the input, so that earlier layers change too.

    Raise ConfigError for an unknown branch, and for a model without positions.
    """
    attentions = attentions_of(model, layer)
    if not 1 <= branch <= len(attentions):
        raise ConfigError(f"{model.name} has no branch {branch} in layer {layer}; choose from 1 to {len(attentions)}")
    with eval_mode(model):
        ratio = _position_ratio(model, attentions[branch - 1], regions)
    real = regions.mask_or_ones[0]
    return ratio.cpu()[:, real][:, :, real].double().softmax(dim=-1).numpy()


def _position_ratio(model: Captioner, attention: MultiHeadAttention, regions: Regions) -> Float[Tensor, "H N N"]:
    """Return E / E0 of `position_matrices`."""
    inputs = _inputs(model, attention, regions)
    if isinstance(attention.rescale, DistanceRescale):
        geometry = inputs[4]
        if attention.score_bias is not None or getattr(model.encoder, "box_embedding", None):
            raise ConfigError(
                f"{model.name} has both geometry and distances, for which Eq. 19 is undefined; name another run"
            )
        return attention.rescale.factors(geometry.distance)[0]
    if attention.score_bias is not None:
        return _ratio(_scores(attention, inputs), _scores(attention, inputs, biased=False))
    if getattr(model.encoder, "box_embedding", None):
        encoder: Any = model.encoder
        box_embedding, encoder.box_embedding = encoder.box_embedding, None
        try:
            without_positions = _inputs(model, attention, regions)
        finally:
            encoder.box_embedding = box_embedding
        return _ratio(_scores(attention, inputs), _scores(attention, without_positions))
    raise ConfigError(
        f"{model.name} has no positions in its encoder; name a run with some, such as that of "
        "scenes.mdsan.table7.abspe or scenes.mdsan"
    )


def distance_weights(model: Captioner, layer: int) -> list[list[float] | None]:
    """Return w of every head of each branch (MD-SAN, Eq. 7); negative: near regions get more weight; None without."""
    rescales = [attention.rescale for attention in attentions_of(model, layer)]
    return [rescale.weight.tolist() if isinstance(rescale, DistanceRescale) else None for rescale in rescales]


def _pairs(model: Captioner) -> PairGeometry:
    pairs = getattr(model.encoder, "geometry", None)
    if not isinstance(pairs, PairGeometry):
        raise ConfigError(f"{model.name} has no geometry in its encoder; name a run of gsan or ngsan")
    return pairs


def _biases(model: Captioner, layer: int) -> list[GeometryBias]:
    """Return the geometric biases of a layer, one for each branch."""
    score_biases = [attention.score_bias for attention in attentions_of(model, layer)]
    biases = [bias for bias in score_biases if isinstance(bias, GeometryBias)]
    if not biases:
        raise ConfigError(
            f"{model.name} has no geometric weights (NG-SAN, Eqs. 11 to 13); name a run of gsan, ngsan or of another "
            "model with geometry content, query or key"
        )
    return biases


def _boxes_at(ratios: np.ndarray) -> Float[Tensor, "P 2 4"]:
    """Return pairs of boxes with these ratios as relative geometry (Eq. 14); the first box has sides of 1."""
    dx, dy, dw, dh = torch.from_numpy(ratios).unbind(dim=1)
    first = torch.stack([torch.zeros_like(dx), torch.zeros_like(dx), torch.ones_like(dx), torch.ones_like(dx)], dim=1)
    x, y, half_w, half_h = 0.5 + dx, 0.5 + dy, 0.5 / dw, 0.5 / dh
    second = torch.stack([x - half_w, y - half_h, x + half_w, y + half_h], dim=1)
    return torch.stack([first, second], dim=1)


def _mean_inputs(model: Captioner, bias: GeometryBias, contents: Regions | None) -> tuple[Tensor, Tensor]:
    """Return the mean query and key of a bias over the images, in double precision; of width 0 where it has none."""
    if bias.query is None and bias.key is None:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    if contents is None:
        raise ConfigError(f"the geometric weights of {model.name} depend on the features of regions; give images")
    query, key, _ = _inputs(model, bias, contents)
    real = contents.mask_or_ones
    return query.cpu()[real].double().mean(dim=0), key.cpu()[real].double().mean(dim=0)


def _inputs(model: Captioner, module: nn.Module, regions: Regions) -> tuple[Any, ...]:
    """Return the arguments of a module of the encoder while these images are encoded."""
    calls: list[tuple[Any, ...]] = []
    with module.register_forward_pre_hook(lambda _, arguments: calls.append(arguments)), eval_mode(model):
        model.encode(regions.to(model.device))
    return calls[0]


class _ScoreRecorder(nn.Module):
    """Record the scores in the last slot before the softmax and return them unchanged."""

    def forward(self, scores: Tensor, geometry: Geometry | None) -> Tensor:
        del geometry
        self.scores = scores
        return scores


def _scores(attention: MultiHeadAttention, inputs: tuple[Any, ...], *, biased: bool = True) -> Float[Tensor, "H N N"]:
    """Return the scores of one image, divided by sqrt(d_k), with or without the geometric bias."""
    bias, recorder = attention.score_bias, _ScoreRecorder()
    attention.rescale = recorder
    if not biased:
        attention.score_bias = None
    try:
        attention(*inputs)
    finally:
        attention.score_bias, attention.rescale = bias, None
    return recorder.scores[0]


def _ratio(with_positions: Tensor, without: Tensor) -> Tensor:
    without = without.cpu().double()
    smallest = torch.where(without < 0, -_MIN_SCORE, _MIN_SCORE)
    return with_positions.cpu().double() / torch.where(without.abs() < _MIN_SCORE, smallest, without)
