"""Weights of the released MCAN: for questions (MILVLG/mcan-vqa, MILVLG/openvqa) and for grounding (MILVLG/mmnas)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legenda.errors import DataError
from legenda.importers.vocab import check_size
from legenda.importers.weight_map import StateDictMapper
from legenda.models.co_attention import CoAttentionModel
from legenda.models.mcan import Mcan
from legenda.models.model import Model
from legenda.models.registry import build_model
from legenda.text import Vocabulary
from legenda.text.answers import read_answers
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary

_IMAGE = ("img_feat_linear", "adapter.frcn_linear", "imgfeat_linear")
"""The names of the layer that projects region features in the three codes."""

_Part = tuple[str, str]
"""The released names of a sub-layer and of its normalization."""


def load_mcan(weights: StateDictMapper, *, num_heads: int | None = None, **options: Any) -> Model:
    """Return the model of a released state dict: for questions, or for grounding where it scores regions.

    The tensors determine all sizes except num_heads, by default `usual_heads`. Raise CheckpointError naming a tensor
    that is missing, unexpected or misshapen.
    """
    image = next((name for name in _IMAGE if f"{name}.weight" in weights), _IMAGE[0])
    dim = weights.size("lstm.weight_hh_l0", 1)
    found: dict[str, Any] = {
        "vocab_size": weights.size("embedding.weight"),
        "word_dim": weights.size("embedding.weight", 1),
        "feature_dim": weights.size(f"{image}.weight", 1),
        "dim": dim,
        "num_heads": usual_heads(dim) if num_heads is None else num_heads,
    }
    weights.map("embedding.weight", "backbone.embedding.weight")
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        weights.map(f"lstm.{name}", f"backbone.lstm.{name}")
    weights.map_module(image, "backbone.input")
    load = _load_grounder if "proj_scores.weight" in weights else _load_mcan
    return weights.load_into(load(weights, found, options))


def usual_heads(dim: int) -> int:
    """Return the usual number of heads: of 64 channels each, as in all releases, or of 8 where dim is below 512."""
    return max(1, dim // (64 if dim >= 512 else 8))


def set_vocabulary(
    model: CoAttentionModel,
    vocabulary: str | Path | Vocabulary | QuestionVocabulary | None,
    answers: str | Path | AnswerVocabulary | None,
    source: str,
) -> None:
    """Set the vocabulary and, for question answering, the answers of a model, or neither.

    Raise ConfigError or DataError where one of them is missing or differs in size from the model's.
    """
    if vocabulary is None and answers is None:
        return
    if vocabulary is None or isinstance(vocabulary, Vocabulary):
        raise DataError("MCAN reads questions; give vocabulary as the vocabulary.txt of a run that learns questions")
    words = QuestionVocabulary.load(vocabulary) if isinstance(vocabulary, str | Path) else vocabulary
    check_size(model, len(words), source)
    if isinstance(model, Mcan):
        model.answers = _read_answers(model, answers, source)
    elif answers is not None:
        raise DataError(f"{model.name} finds boxes and chooses from no answers; leave answers out")
    model.vocabulary = words


def _read_answers(model: Mcan, answers: str | Path | AnswerVocabulary | None, source: str) -> AnswerVocabulary:
    if answers is None:
        raise DataError("MCAN chooses from answers; give answers along with the vocabulary")
    found = read_answers(Path(answers)) if isinstance(answers, str | Path) else answers
    if len(found) != model.config.answers:
        raise DataError(
            f"the list has {len(found)} answers but there are {model.config.answers} in {source}; give those that the "
            "model was trained with"
        )
    return found


def _load_mcan(weights: StateDictMapper, found: dict[str, Any], options: dict[str, Any]) -> Model:
    for layer in range(layers := weights.count("backbone.enc_list.{}.")):
        for stack, target_key, parts in (
            (f"backbone.enc_list.{layer}", "words", ("mhatt", "ffn.mlp")),
            (f"backbone.dec_list.{layer}", "regions", ("mhatt1", "mhatt2", "ffn.mlp")),
        ):
            named = [(f"{stack}.{part}", f"{stack}.norm{number}") for number, part in enumerate(parts, start=1)]
            _map_layer(weights, named, f"backbone.{target_key}.{layer}", bias=True)
    _map_pool(weights, "attflat_lang", "pool_words")
    _map_pool(weights, "attflat_img", "pool_regions")
    weights.map_std_norm("proj_norm", "norm")
    weights.map_module("proj", "output")
    sizes = {
        "num_layers": layers,
        "ff_dim": weights.size("backbone.enc_list.0.ffn.mlp.fc.linear.weight"),
        **_pool_sizes(weights, "attflat_lang"),
        "glimpses": weights.size("attflat_lang.mlp.linear.weight"),
        "answers": weights.size("proj.weight"),
    }
    return build_model("mcan", {**found, **sizes, **options})


def _load_grounder(weights: StateDictMapper, found: dict[str, Any], options: dict[str, Any]) -> Model:
    """Map the release's network of cells, each a sequence of operations, where it is MCAN."""
    words, regions = "backnone.cells_enc.0.dag.{}.", "backnone.cells_dec.0.dag.{}."
    for layer in range(layers := weights.count(words) // 2):
        for stack, target_key, parts in (
            (words, "words", ("mhatt", "mlp")),
            (regions, "regions", ("mhatt", "mhatt", "mlp")),
        ):
            cells = [f"{stack.format(layer * len(parts) + number)}0" for number in range(len(parts))]
            named = [(f"{cell}.{part}", f"{cell}.ln") for cell, part in zip(cells, parts, strict=True)]
            _map_layer(weights, named, f"backbone.{target_key}.{layer}", bias=False)
    _map_pool(weights, "attflat_x", "pool_words")
    weights.map_module("attfc_y", "region")
    weights.map_std_norm("proj_norm", "norm")
    weights.map_module("proj_scores", "score")
    weights.map_module("proj_reg", "deltas")
    sizes = {
        "num_layers": layers,
        "ff_dim": weights.size(f"{words.format(1)}0.mlp.fc.linear.weight"),
        **_pool_sizes(weights, "attflat_x"),
    }
    return build_model("mcan_grounding", {**found, **sizes, **options})


def _pool_sizes(weights: StateDictMapper, pool: str) -> dict[str, int]:
    return {
        "pool_dim": weights.size(f"{pool}.mlp.fc.linear.weight"),
        "pooled_dim": weights.size(f"{pool}.linear_merge.weight"),
    }


def _map_layer(weights: StateDictMapper, parts: Sequence[_Part], target_key: str, *, bias: bool) -> None:
    """Map one attention, or two for regions, and a feed-forward layer; bias: whether attentions have biases."""
    *attentions, (feed_forward, last_norm) = parts
    for (attention, norm), name in zip(attentions, ("attention", "cross_attn"), strict=False):
        for released, own in (("q", "query"), ("k", "key"), ("v", "value"), ("merge", "output")):
            weights.map(f"{attention}.linear_{released}.weight", f"{target_key}.{name}.{own}.weight")
            if bias:
                weights.map(f"{attention}.linear_{released}.bias", f"{target_key}.{name}.{own}.bias")
        weights.map_std_norm(norm, f"{target_key}.{name}_residual.norm")
    weights.map_module(f"{feed_forward}.fc.linear", f"{target_key}.feed_forward.0")
    weights.map_module(f"{feed_forward}.linear", f"{target_key}.feed_forward.3")
    weights.map_std_norm(last_norm, f"{target_key}.feed_forward_residual.norm")


def _map_pool(weights: StateDictMapper, source_key: str, target_key: str) -> None:
    weights.map_module(f"{source_key}.mlp.fc.linear", f"{target_key}.score.0")
    weights.map_module(f"{source_key}.mlp.linear", f"{target_key}.score.3")
    weights.map_module(f"{source_key}.linear_merge", f"{target_key}.linear")
