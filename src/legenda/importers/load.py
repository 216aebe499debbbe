"""From a released checkpoint to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from legenda.errors import UserError
from legenda.importers.mcan import set_vocabulary
from legenda.importers.vocab import check_size, load_vocab
from legenda.importers.weight_map import StateDictMapper
from legenda.io import verified
from legenda.models.co_attention import CoAttentionModel
from legenda.models.model import Model
from legenda.plugins import Registry
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
"""The released codes whose weights can be read: AoANet and the ablations of its Table 4 (husthuaan/AoANet), X-LAN and
X-Transformer (JDAI-CV/image-captioning), MD-SAN, its plain and its multi-branch form
(Young499/image-captioning-MDSANet), MCAN for questions (MILVLG/mcan-vqa, MILVLG/openvqa) and for grounding
(MILVLG/mmnas). Each is a function of a StateDictMapper, `num_heads` and options of the model that returns the model."""

_PLAIN = (np.ndarray, np.dtype, np._core.multiarray._reconstruct, np._core.multiarray.scalar, type(np.dtype(np.uint32)))


def load(
    kind: str,
    weights: str | Path | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    vocabulary: str | Path | Vocabulary | QuestionVocabulary | None = None,
    answers: str | Path | AnswerVocabulary | None = None,
    **options: Any,
) -> Model:
    """A released model, in evaluation mode, as a Legenda model: same log-probabilities, same captions, same answers.

    weights: a checkpoint (.pth, .pt, .pkl, .npz, .safetensors), or its tensors under their released names; a "module."
    before all of them is passed over. Dimensions, layers, branches and which ablation it is are read from names and
    shapes; what they cannot tell is said here: num_heads (8 unless told; X-Linear blocks tell it themselves, and MCAN
    has one for every 64 channels), and any option of the model, such as `dropout`.
    vocabulary: the release's own file of words (see `load_vocab`), or a Vocabulary; without it the model gives tokens
    only. A captioner has the rule of search of its release, special ids included. For MCAN it is a vocabulary.txt of
    Legenda, whose words stand in the order in which the release first sees them.
    answers: for MCAN, its answer_dict.json or another list that `read_answers` reads, or an AnswerVocabulary.

    Raises UserError for an unknown kind, for a file that cannot be read, and for a tensor that is missing, left over or
    misshapen, by its released name.
    """
    build = IMPORTERS.get(kind)
    if isinstance(weights, str | Path):
        source, tensors = str(weights), read_tensors(Path(weights))
    else:
        source, tensors = f"the {kind} weights", weights
    model = build(StateDictMapper(tensors, source), num_heads=num_heads, **options)
    if isinstance(model, CoAttentionModel):
        set_vocabulary(model, vocabulary, answers, source)
        return model
    if answers is not None:
        raise UserError(f"{kind} writes captions and chooses from no answers; leave answers out")
    if isinstance(vocabulary, QuestionVocabulary):
        raise UserError(f"{kind} writes captions; give the vocabulary of captions, not one of questions")
    if vocabulary is not None:
        words = vocabulary if isinstance(vocabulary, Vocabulary) else load_vocab(kind, Path(vocabulary))
        check_size(model, len(words), source)
        model.vocabulary = words
        model.generation_config = replace(
            model.generation_config, bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id
        )
    return model


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint file; a .pth is read without running anything that is in it."""
    hint = "give a .pth, .pt, .pkl, .npz or .safetensors file with the state dict of the released model"
    match path.suffix:
        case ".safetensors":
            return verified(lambda: safetensors.torch.load_file(path), path, hint)
        case ".npz":

            def read() -> dict[str, Tensor]:
                with np.load(path, allow_pickle=False) as arrays:
                    return {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}

            return verified(read, path, hint)
        case ".pth" | ".pt" | ".pkl" | ".bin":
            # Checkpoints of training hold the state of numpy's random numbers beside the weights.
            with torch.serialization.safe_globals([*_PLAIN]):
                content = verified(lambda: torch.load(path, map_location="cpu", weights_only=True), path, hint)
            return _state_dict(content, path, hint)
        case _:
            raise UserError(f"{path} is no checkpoint that can be read; {hint}")


def _state_dict(content: Any, path: Path, hint: str) -> dict[str, Tensor]:
    """The tensors of what a checkpoint holds, be it the state dict or a dictionary with one in it."""
    if isinstance(content, Mapping):
        for candidate in (content, content.get("state_dict"), content.get("model")):
            if isinstance(candidate, Mapping) and candidate:
                tensors = {str(name): value for name, value in candidate.items() if isinstance(value, Tensor)}
                if len(tensors) == len(candidate):
                    return tensors
    raise UserError(f"{path} holds no state dict; {hint}")
