"""Weights of the released codes of MCAN: MILVLG/mcan-vqa, MILVLG/openvqa and, for grounding, MILVLG/mmnas."""

from __future__ import annotations

from pathlib import Path

from legenda.errors import DataError
from legenda.extras.vqa.model import CoAttentionModel, Mcan
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary, read_answers
from legenda.importers.loading import Importer, StateDictMapper, TokenSource, check_size, read_names
from legenda.models.base import Model
from legenda.models.registry import build_model

_IMAGE = ("img_feat_linear", "adapter.frcn_linear", "imgfeat_linear")
"""The names of the layer that projects region features in the three codes."""


def load_mcan(weights: StateDictMapper, *, num_heads: int | None = None, **options: object) -> Model:
    """Return the model of a released state dict: for questions, or for grounding where it scores regions.

    The tensors determine all sizes except num_heads, by default `_usual_heads`. Raise CheckpointError naming a tensor
    that is missing, unexpected or misshapen.
    """
    image = next((name for name in _IMAGE if f"{name}.weight" in weights), _IMAGE[0])
    dim = weights.size("lstm.weight_hh_l0", 1)
    config: dict[str, object] = {
        "vocab_size": weights.size("embedding.weight"),
        "word_dim": weights.size("embedding.weight", 1),
        "feature_dim": weights.size(f"{image}.weight", 1),
        "dim": dim,
        "num_heads": _usual_heads(dim) if num_heads is None else num_heads,
    }
    kind = "mcan_grounding" if "proj_scores.weight" in weights else "mcan"
    config |= _grounder_sizes(weights) if kind == "mcan_grounding" else _mcan_sizes(weights)
    model = build_model(kind, {**config, **options})
    return weights.load_into(model, read_names(kind, "legenda.extras.vqa") | {"backbone.input": image})


def _usual_heads(dim: int) -> int:
    """Return the usual number of heads: of 64 channels each, as in all releases, or of 8 where dim is below 512."""
    return max(1, dim // (64 if dim >= 512 else 8))


def _mcan_sizes(weights: StateDictMapper) -> dict[str, int]:
    return {
        "num_layers": weights.count("backbone.enc_list.{}."),
        "ff_dim": weights.size("backbone.enc_list.0.ffn.mlp.fc.linear.weight"),
        **_pool_sizes(weights, "attflat_lang"),
        "glimpses": weights.size("attflat_lang.mlp.linear.weight"),
        "answers": weights.size("proj.weight"),
    }


def _grounder_sizes(weights: StateDictMapper) -> dict[str, int]:
    return {
        "num_layers": weights.count("backnone.cells_enc.0.dag.{}.") // 2,
        "ff_dim": weights.size("backnone.cells_enc.0.dag.1.0.mlp.fc.linear.weight"),
        **_pool_sizes(weights, "attflat_x"),
    }


def _pool_sizes(weights: StateDictMapper, pool: str) -> dict[str, int]:
    return {
        "pool_dim": weights.size(f"{pool}.mlp.fc.linear.weight"),
        "pooled_dim": weights.size(f"{pool}.linear_merge.weight"),
    }


def _set_question_vocabulary(
    model: CoAttentionModel, vocabulary: TokenSource, answers: TokenSource, source: str
) -> None:
    """Set the vocabulary and, for question answering, the answers of a model, or neither.

    Raise ConfigError or DataError where one of them is missing or differs in size from the model's.
    """
    if vocabulary is None and answers is None:
        return
    words = QuestionVocabulary.load(vocabulary) if isinstance(vocabulary, str | Path) else vocabulary
    if not isinstance(words, QuestionVocabulary):
        raise DataError("MCAN reads questions; give vocabulary as the vocabulary.txt of a run that learns questions")
    check_size("the vocabulary, special tokens included,", len(words), model.config.vocab_size, source)
    if isinstance(model, Mcan):
        listed = read_answers(answers) if isinstance(answers, str | Path) else answers
        if not isinstance(listed, AnswerVocabulary):
            raise DataError("MCAN chooses from answers; give answers along with the vocabulary")
        model.answers = listed
        check_size("the list of answers", len(model.answers), model.config.answers, source)
    elif answers is not None:
        raise DataError(f"{model.name} finds boxes and chooses from no answers; leave answers out")
    model.vocabulary = words


MCAN = Importer(load_mcan, _set_question_vocabulary)
