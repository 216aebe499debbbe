"""Load a released checkpoint into a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from legenda.errors import ConfigError
from legenda.importers.mcan import set_vocabulary
from legenda.importers.vocab import check_size, load_vocab
from legenda.importers.weight_map import StateDictMapper
from legenda.models.base import Model
from legenda.models.mcan import CoAttentionModel
from legenda.models.weights import read_tensors
from legenda.registry import Registry
from legenda.text import Vocabulary
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary

IMPORTERS: Registry[Callable[..., Model]] = Registry(
    "kind of weights",
    {
        "aoanet": "legenda.importers.aoanet:load_aoanet",
        "xlan": "legenda.importers.xlan:load_xlan",
        "xtransformer": "legenda.importers.xtransformer:load_xtransformer",
        "mdsan": "legenda.importers.mdsan:load_mdsan",
        "mcan": "legenda.importers.mcan:load_mcan",
    },
)
"""The released codes whose weights can be loaded: AoANet and the ablations of its Table 4 (husthuaan/AoANet), X-LAN and
X-Transformer (JDAI-CV/image-captioning), MD-SAN, its plain and its multi-branch form
(Young499/image-captioning-MDSANet), MCAN for questions (MILVLG/mcan-vqa, MILVLG/openvqa) and for grounding
(MILVLG/mmnas). Each is a function of a StateDictMapper, `num_heads` and options of the model that returns the model."""


_HINT = "give a .pth, .pt, .pkl, .npz or .safetensors file with the state dict of the released model"


def load(
    kind: str,
    weights: str | Path | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    vocabulary: str | Path | Vocabulary | QuestionVocabulary | None = None,
    answers: str | Path | AnswerVocabulary | None = None,
    **options: Any,
) -> Model:
    """Return a released model as a Legenda model in evaluation mode: same log-probabilities, captions and answers.

    kind: a name in IMPORTERS.
    weights: a checkpoint file (.pth, .pt, .pkl, .npz, .safetensors), or its tensors under their released names; a
        prefix "module." of all names is removed. Dimensions, layers, branches and the ablation follow from names
        and shapes.
    num_heads: 8 by default; X-Linear blocks determine it, and MCAN has one head for every 64 channels.
    vocabulary: the release's vocabulary file (see `load_vocab`), or a Vocabulary; without it the model generates ids
        only. For MCAN, a vocabulary.txt of Legenda whose words are in the order of their first occurrence, as in the
        release. A captioner gets the generation settings of its release, special token ids included.
    answers: for MCAN, its answer_dict.json or another list that `read_answers` reads, or an AnswerVocabulary.
    options: further options of the model, such as `dropout`.

    Raise ConfigError for an unknown kind, and CheckpointError or DataError for a file that cannot be read and, by its
    released name, for a tensor that is missing, unexpected or misshapen.
    """
    build = IMPORTERS.get(kind)
    if isinstance(weights, str | Path):
        source, tensors = str(weights), read_tensors(Path(weights), _HINT)
    else:
        source, tensors = f"the {kind} weights", weights
    model = build(StateDictMapper(tensors, source), num_heads=num_heads, **options)
    if isinstance(model, CoAttentionModel):
        set_vocabulary(model, vocabulary, answers, source)
        return model
    if answers is not None:
        raise ConfigError(f"{kind} generates captions and does not choose from answers; leave answers out")
    if isinstance(vocabulary, QuestionVocabulary):
        raise ConfigError(f"{kind} generates captions; give a vocabulary of captions, not one of questions")
    if vocabulary is not None:
        tokens = vocabulary if isinstance(vocabulary, Vocabulary) else load_vocab(kind, Path(vocabulary))
        check_size(model, len(tokens), source)
        model.vocabulary = tokens
        model.generation_config = model.generation_config.replace(
            bos_token_id=tokens.bos_token_id, eos_token_id=tokens.eos_token_id
        )
    return model
