"""The options of a recipe's model: its configuration, and that of another model's decoder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import tyro

from legenda.config import merge
from legenda.models.registry import COMMON_FIELDS, configure, describe_decoder, describe_model

if TYPE_CHECKING:
    from legenda.recipes.recipe import Recipe


@dataclass(frozen=True)
class ModelOptions:
    """The options that a recipe's model has on the command line.

    defaults: an instance of a dataclass with the fields of the model's configuration but without those that follow from
    the data, which tyro fills. hidden: the latter.
    """

    name: str
    defaults: Any
    hidden: frozenset[str]

    @classmethod
    def of(cls, recipe: Recipe, decoder: str | None) -> ModelOptions:
        """Return the options of a recipe; `decoder` is the model whose decoder the command line names, if it does."""
        entry = describe_model(recipe.model)
        values = {**entry.settings, **recipe.model_overrides}
        names = {field.name for field in dataclasses.fields(entry.config)}
        hidden = names & set(entry.config.derived)
        fields: list[tuple[str, Any, Any]] = [(name, tyro.conf.Suppress[int], 1) for name in hidden]
        if "decoder" in names:
            chosen = values.pop("decoder", None) or {}
            chosen = {"name": chosen} if isinstance(chosen, str) else chosen
            if decoder is not None and decoder != chosen.get("name"):
                chosen = {"name": decoder}
            nested = _decoder_class(chosen["name"]) if chosen else _NoDecoder
            fields.append(("decoder", nested, merge(nested, chosen, f"{recipe.model}.decoder")))
        options = dataclasses.make_dataclass("Model", fields, bases=(entry.config,), frozen=True, kw_only=True)
        return cls(recipe.model, merge(options, values, recipe.model), frozenset(hidden))

    def changes(self, chosen: Any) -> dict[str, Any]:
        """Return the options of the model that differ from what its name fixes, as a recipe holds them."""
        settings = describe_model(self.name).settings
        values = {field.name: getattr(chosen, field.name) for field in dataclasses.fields(chosen)}
        decoder = values.pop("decoder", None)
        changed = {
            name: value for name, value in values.items() if name not in self.hidden and value != settings.get(name)
        }
        if decoder is not None and decoder.name:
            plain = type(decoder)()
            values = {field.name: getattr(decoder, field.name) for field in dataclasses.fields(decoder)}
            changed["decoder"] = {
                name: value for name, value in values.items() if name == "name" or value != getattr(plain, name)
            }
        configure(self.name, {**changed, **dict.fromkeys(self.hidden, 1)})  # raises for a name that is not registered
        return changed


@dataclass(frozen=True)
class _NoDecoder:
    name: str = ""
    """Another model whose decoder attends to this model's encoder; its own options follow, as in
    --model.decoder.num-layers 3."""


def _decoder_class(name: str) -> type:
    """Return a dataclass with `name` and the options of that model; None stands for the value of the outer model."""
    entry = describe_decoder(name)
    hints = get_type_hints(entry.config, include_extras=True)
    fields: list[tuple[str, Any, Any]] = [("name", str, name)]
    for field in dataclasses.fields(entry.config):
        if field.name in (*entry.config.derived, "decoder"):
            fields.append((field.name, tyro.conf.Suppress[Any], None))
        elif field.name in COMMON_FIELDS:
            fields.append((field.name, hints[field.name] | None, None))
        elif field.name in entry.settings:
            fields.append((field.name, hints[field.name], entry.settings[field.name]))
    unchecked = {"__post_init__": lambda _: None}  # its sizes are not known before it is in a model
    return dataclasses.make_dataclass(
        "Decoder", fields, bases=(entry.config,), frozen=True, kw_only=True, namespace=unchecked
    )
