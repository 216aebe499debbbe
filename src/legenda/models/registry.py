"""The named models and how one is made from its name."""

from __future__ import annotations

import dataclasses
import fnmatch
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from legenda.errors import UserError, nearest
from legenda.models.captioner import Captioner
from legenda.models.fields import fits, named
from legenda.models.transformer import TransformerCaptioner, TransformerConfig


@dataclass(frozen=True)
class Entry:
    """One named model: its class, its configuration, what the name fixes, and where it comes from."""

    build: Callable[[Any], Captioner]
    config: type
    paper: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_NGSAN = "Guo et al., CVPR 2020"

_MODELS: dict[str, Entry] = {
    "transformer": Entry(TransformerCaptioner, TransformerConfig, _NGSAN, "SAN: the Transformer baseline"),
    "nsan": Entry(
        TransformerCaptioner, TransformerConfig, _NGSAN, "N-SAN: instance-normalised queries", {"norm": "in"}
    ),
    "gsan": Entry(
        TransformerCaptioner, TransformerConfig, _NGSAN, "G-SAN: query-dependent geometry", {"geometry": "query"}
    ),
    "ngsan": Entry(
        TransformerCaptioner, TransformerConfig, _NGSAN, "NG-SAN: both", {"norm": "in", "geometry": "query"}
    ),
}


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern such as "x*", sorted."""
    return sorted(fnmatch.filter(_MODELS, pattern))


def describe_model(name: str) -> Entry:
    """The entry of a named model; UserError with the nearest name when there is none."""
    if name not in _MODELS:
        raise UserError(f"there is no model {name!r}; {nearest(name, _MODELS)}")
    return _MODELS[name]


def create_model(name: str, **options: Any) -> Captioner:
    """A new model with random weights: the named configuration with `options` over it.

    `vocab_size` is required; every other field has the paper's value. Raises UserError for an unknown name or option
    (the nearest right one is suggested) and for a value of the wrong type.
    """
    entry = describe_model(name)
    hints = typing.get_type_hints(entry.config)
    fields = {f.name: f for f in dataclasses.fields(entry.config)}
    for key, value in options.items():
        if key not in fields:
            raise UserError(f"{name} has no option {key!r}; {nearest(key, fields)}")
        if not fits(value, hints[key]):
            raise UserError(f"{name} takes {key} as {named(hints[key])}, not {value!r}")
        if hints[key] is int and value < 1:
            raise UserError(f"{name} takes {key} as a positive number, not {value}")
    options = {key: float(value) if hints[key] is float else value for key, value in options.items()}
    if "vocab_size" not in options:
        raise UserError(f"{name} needs vocab_size, the number of words with the special ids, such as 9488")
    model = entry.build(entry.config(**{**entry.settings, **options}))
    model.name = name
    return model
