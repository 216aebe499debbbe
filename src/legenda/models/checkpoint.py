"""A model as a folder: config.json, model.safetensors and its words; nothing is pickled.

The words are vocabulary.txt and, beside it, answers.txt where the model answers questions and subwords.model where it
translates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from legenda.config import merge, to_json
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import UserError
from legenda.io import atomic_write, read_json, verified, write_json
from legenda.models.captioner import Captioner
from legenda.models.model import Model
from legenda.models.registry import build_model
from legenda.run_files import CONFIG, VOCABULARY, WEIGHTS


def save(model: Model, folder: str | Path, **sections: Any) -> Path:
    """Writes the model's folder, each file whole; `sections` are further parts of config.json."""
    folder = Path(folder)
    model.save_words(folder)  # first, for it may refuse
    save_weights(model.state_dict(), folder)
    write_json(folder / CONFIG, {"model": describe(model), **sections})
    return folder


def save_weights(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Writes model.safetensors alone, from a model's state, as training does when a better model is found."""
    with atomic_write(folder / WEIGHTS) as partial:
        state = {name: tensor.contiguous() for name, tensor in weights.items()}
        safetensors.torch.save_file(state, partial)


def describe(model: Model) -> dict[str, Any]:
    """The "model" part of config.json: name, options, rule of search, and whether a vocabulary lies beside it."""
    rule = {} if model.generation_config is None else {"generation_config": to_json(model.generation_config)}
    return {
        "name": model.name,
        "options": to_json(model.config),
        **rule,
        "vocabulary": model.vocabulary is not None,
    }


def load(folder: str | Path) -> Captioner:
    """The captioner of a folder, in evaluation mode on the CPU.

    Raises UserError naming the file when one is missing, truncated or does not fit the others.
    """
    model = load_any(folder)
    if not isinstance(model, Captioner):
        raise UserError(f"{folder} holds {model.name}, which is no captioner; legenda evaluate {folder} uses it")
    return model


def load_any(folder: str | Path) -> Model:
    """The model of a folder, whatever its task; as `load` in all else."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder with a model; train one with `legenda train` or check the path")
    path = folder / CONFIG
    described = read_json(path, "a model folder holds config.json, model.safetensors and vocabulary.txt")
    try:
        section = described["model"]
        model = build_model(section["name"], section["options"])
        if model.generation_config is not None:
            model.generation_config = merge(GenerationConfig, section["generation_config"], "generation_config")
            if max(model.generation_config.token_ids) >= model.config.vocab_size:
                raise UserError("generation_config names token ids outside the vocabulary")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f'{path} has no usable "model" part with a name and options; save the model again') from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    load_weights(model, folder / WEIGHTS)
    if section.get("vocabulary"):
        model.load_words(folder)
        assert model.vocabulary is not None
        if len(model.vocabulary) != section["options"]["vocab_size"]:
            raise UserError(
                f"{folder / VOCABULARY} has {len(model.vocabulary)} words but {path} says vocab_size="
                f"{section['options']['vocab_size']}; put back the vocabulary the model was trained with"
            )
    return model.eval()


def load_weights(model: Model, path: Path) -> None:
    """Fills the model with the tensors of a file; every one must be there, of the right shape, and none beside."""
    hint = "copy the file again or train the model again"
    tensors: dict[str, torch.Tensor] = verified(lambda: safetensors.torch.load_file(path), path, hint)
    own = model.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"holds {extra[0]}, which the model does not have"
        raise UserError(f"{path} {what}; {hint}")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise UserError(
                f"{path} holds {name} with shape {tuple(tensors[name].shape)} where config.json makes it "
                f"{tuple(tensor.shape)}; the two files belong to different models"
            )
    model.load_state_dict(tensors)
