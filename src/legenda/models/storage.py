"""A model as a folder: config.json, model.safetensors and vocabulary.txt. Nothing is pickled."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from legenda.errors import UserError
from legenda.files import checked, read_json, whole_file, write_json
from legenda.models.captioner import Captioner
from legenda.models.decoder import DecodingRule
from legenda.models.registry import create_model
from legenda.text import Vocabulary

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocabulary.txt"


def save(model: Captioner, folder: str | Path, **sections: Any) -> Path:
    """Writes the model's folder, each file whole; `sections` are further parts of config.json."""
    folder = Path(folder)
    save_weights(model, folder)
    if model.vocabulary is not None:
        model.vocabulary.save(folder / VOCABULARY)
    write_json(folder / CONFIG, {"model": describe(model), **sections})
    return folder


def save_weights(model: Captioner, folder: Path) -> None:
    """Writes model.safetensors alone, as training does when a better model is found."""
    with whole_file(folder / WEIGHTS) as partial:
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        safetensors.torch.save_file(state, partial)


def describe(model: Captioner) -> dict[str, Any]:
    """The "model" part of config.json: name, options, rule of search, and whether a vocabulary lies beside it."""
    return {
        "name": model.name,
        "options": dataclasses.asdict(model.config),
        "decoding": dataclasses.asdict(model.decoding),
        "vocabulary": model.vocabulary is not None,
    }


def load(folder: str | Path) -> Captioner:
    """The model of a folder, in evaluation mode on the CPU.

    Raises UserError naming the file when one is missing, truncated or does not fit the others.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder with a model; train one with `legenda train` or check the path")
    path = folder / CONFIG
    described = read_json(path, "a model folder holds config.json, model.safetensors and vocabulary.txt")
    try:
        section = described["model"]
        options = _tuples(section["options"])
        model = create_model(section["name"], **options)
        rule = _tuples(section["decoding"])
        model.decoding = DecodingRule(**rule)
        if max(model.decoding.ids) >= model.config.vocab_size:
            raise UserError("decoding names ids outside the vocabulary")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f'{path} has no usable "model" part with a name and options; save the model again') from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    load_weights(model, folder / WEIGHTS)
    if section.get("vocabulary"):
        model.vocabulary = Vocabulary.load(folder / VOCABULARY)
        if len(model.vocabulary) != section["options"]["vocab_size"]:
            raise UserError(
                f"{folder / VOCABULARY} has {len(model.vocabulary)} words but {path} says vocab_size="
                f"{section['options']['vocab_size']}; put back the vocabulary the model was trained with"
            )
    return model.eval()


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Values as they were before JSON made lists of them."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def load_weights(model: Captioner, path: Path) -> None:
    """Fills the model with the tensors of a file; every one must be there, of the right shape, and none beside."""
    remedy = "copy the file again or train the model again"
    tensors: dict[str, torch.Tensor] = checked(lambda: safetensors.torch.load_file(path), path, remedy)
    own = model.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"holds {extra[0]}, which the model does not have"
        raise UserError(f"{path} {what}; {remedy}")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise UserError(
                f"{path} holds {name} with shape {tuple(tensors[name].shape)} where config.json makes it "
                f"{tuple(tensor.shape)}; the two files belong to different models"
            )
    model.load_state_dict(tensors)
