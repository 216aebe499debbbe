"""The named models and how one is made from its name."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import Any

from legenda.config import merge
from legenda.errors import UserError, nearest
from legenda.models.captioner import Captioner
from legenda.models.config import ModelConfig, read_decoder
from legenda.models.model import Config, Model
from legenda.models.model_table import MODELS, Entry

_COMMON = ("vocab_size", "feature_dim", "dim", "num_heads", "ff_dim")
"""What a borrowed decoder takes over from the model that borrows it."""


def list_models(pattern: str = "*", task: str = "captioning") -> list[str]:
    """Names of the models of a task that match a shell pattern such as "x*", sorted."""
    return sorted(name for name in fnmatch.filter(MODELS, pattern) if MODELS[name].task == task)


def describe_model(name: str) -> Entry:
    """The entry of a named model; UserError with the nearest name when there is none."""
    if name not in MODELS:
        raise UserError(f"there is no model {name!r}; {nearest(name, MODELS)}")
    return MODELS[name]


def create_model(name: str, **options: Any) -> Captioner:
    """A new captioner with random weights: the named configuration with `options` over it.

    `vocab_size` is required; every other field has the paper's value. `decoder` names another model whose decoder is to
    read this model's encoder, "transformer" or "transformer(num_layers=2)"; what is not said in brackets is as wide,
    and has as many heads and inner channels, as this model. Raises UserError for an unknown name or option (the nearest
    right one is suggested) and for a value of the wrong type.
    """
    model = build_model(name, options)
    if not isinstance(model, Captioner):
        raise UserError(f"{name} is no captioner but a model for {MODELS[name].task}; legenda models lists both")
    return model


def build_model(name: str, options: Mapping[str, Any]) -> Model:
    """A new model of any task with random weights, as `create_model` makes captioners."""
    config = configure(name, options)
    model = Captioner(config, _decoder_config(name, config)) if isinstance(config, ModelConfig) else config.build()
    model.name = name
    return model


def configure(name: str, options: Mapping[str, Any]) -> Config:
    """The configuration of a named model with `options` over it, checked field by field."""
    entry = describe_model(name)
    return merge(entry.config, {**entry.settings, **options}, name)


def _decoder_config(name: str, config: ModelConfig) -> ModelConfig | None:
    """The configuration that `config.decoder` names; None where the model keeps its own decoder."""
    if not config.decoder:
        return None
    other, options = read_decoder(config.decoder)
    fields = {field.name for field in dataclasses.fields(describe_model(other).config)}
    common = {key: getattr(config, key) for key in _COMMON if key in fields and hasattr(config, key)}
    found = configure(other, common | options)
    if not isinstance(found, ModelConfig):
        raise UserError(f"decoder={other!r} is no captioner, so it has no decoder for {name}; choose another")
    if found.dim != config.dim:
        raise UserError(f"a decoder with dim={found.dim} cannot read {name} with dim={config.dim}; leave dim out")
    return found
