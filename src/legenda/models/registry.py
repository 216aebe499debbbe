"""The named models and how one is made from its name."""

from __future__ import annotations

import dataclasses
import fnmatch
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legenda.errors import UserError, nearest
from legenda.models.aoanet import AoANetConfig
from legenda.models.captioner import Captioner
from legenda.models.config import ModelConfig, read_decoder
from legenda.models.fields import fits, named
from legenda.models.transformer import TransformerConfig


@dataclass(frozen=True)
class Entry:
    """One named model: its configuration, what the name fixes in it, and where it comes from.

    row: the table of the paper, and the row in it, that this model is; empty for none.
    words: the size of the paper's vocabulary with its special ids, for which parameters are told.
    """

    config: type[ModelConfig]
    paper: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    words: int = 9488


_COMMON = ("vocab_size", "feature_dim", "dim", "num_heads", "ff_dim")
"""What a borrowed decoder takes over from the model that borrows it."""

_NGSAN = "Guo et al., CVPR 2020"
_AOANET = "Huang et al., ICCV 2019"

_ADDITIVE = {"num_layers": 0, "multi_head": False}
_UNREFINED = {"num_layers": 0}


def _transformer(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(TransformerConfig, _NGSAN, summary, settings, row)


def _aoanet(summary: str, row: str, **settings: Any) -> Entry:
    return Entry(AoANetConfig, _AOANET, summary, settings, row, words=10370)


_MODELS: dict[str, Entry] = {
    "transformer": _transformer("SAN: the Transformer baseline", "Table 1, SAN"),
    "nsan": _transformer("N-SAN: instance-normalised queries", "Table 1, N-SAN", norm="in"),
    "gsan": _transformer("G-SAN: query-dependent geometry", "Table 4, query-dependent", geometry="query"),
    "ngsan": _transformer("NG-SAN: both", "Table 6, NG-SAN", norm="in", geometry="query"),
    "aoanet": _aoanet("AoANet as released", "Table 4, full"),
    "aoanet_paper": _aoanet(
        "AoANet as printed",
        "Equations 6 to 14",
        reading="paper",
        aoa_dropout=0.0,
        attention_dropout=0.0,
        context_dropout=False,
    ),
    "aoanet_base": _aoanet(
        "no refiner, additive attention, linear context", "Table 4, base", **_ADDITIVE, context="linear"
    ),
    "aoanet_refine": _aoanet(
        "base with a Transformer's refiner",
        "Table 4, + Enc: refine (w/o AoA)",
        refiner_aoa=False,
        refiner_ff=True,
        multi_head=False,
        context="linear",
    ),
    "aoanet_refine_aoa": _aoanet(
        "base with AoA in the refiner", "Table 4, + Enc: refine (w/ AoA)", multi_head=False, context="linear"
    ),
    "aoanet_lstm": _aoanet("base with an LSTM as context", "Table 4, + Dec: LSTM", **_ADDITIVE, context="lstm"),
    "aoanet_aoa": _aoanet("base with AoA as context", "Table 4, + Dec: AoA", **_ADDITIVE),
    "aoanet_lstm_aoa": _aoanet(
        "base with AoA on an LSTM as context", "Table 4, + Dec: LSTM + AoA", **_ADDITIVE, context="lstm_aoa"
    ),
    "aoanet_mh": _aoanet("base with multi-head attention", "Table 4, + Dec: MH-Att", **_UNREFINED, context="linear"),
    "aoanet_mh_lstm": _aoanet(
        "multi-head attention, LSTM as context", "Table 4, + Dec: MH-Att, LSTM", **_UNREFINED, context="lstm"
    ),
    "aoanet_mh_aoa": _aoanet("multi-head attention, AoA as context", "Table 4, + Dec: MH-Att, AoA", **_UNREFINED),
    "updown": Entry(
        AoANetConfig,
        "Anderson et al., CVPR 2018",
        "two LSTMs with additive attention, in AoANet's frame",
        {**_ADDITIVE, "context": "lstm"},
        words=10370,
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

    `vocab_size` is required; every other field has the paper's value. `decoder` names another model whose decoder is to
    read this model's encoder, "transformer" or "transformer(num_layers=2)"; what is not said in brackets is as wide,
    and has as many heads and inner channels, as this model. Raises UserError for an unknown name or option (the nearest
    right one is suggested) and for a value of the wrong type.
    """
    config = configure(name, options)
    model = Captioner(config, _decoder_config(name, config))
    model.name = name
    return model


def configure(name: str, options: Mapping[str, Any]) -> ModelConfig:
    """The configuration of a named model with `options` over it, checked field by field."""
    entry = describe_model(name)
    hints = typing.get_type_hints(entry.config)
    fields = {f.name: f for f in dataclasses.fields(entry.config)}
    for key, value in options.items():
        if key not in fields:
            raise UserError(f"{name} has no option {key!r}; {nearest(key, fields)}")
        if not fits(value, hints[key]):
            raise UserError(f"{name} takes {key} as {named(hints[key])}, not {value!r}")
    options = {key: float(value) if hints[key] is float else value for key, value in options.items()}
    if "vocab_size" not in options:
        raise UserError(f"{name} needs vocab_size, the number of words with the special ids, such as 9488")
    return entry.config(**{**entry.settings, **options})


def _decoder_config(name: str, config: ModelConfig) -> ModelConfig | None:
    """The configuration that `config.decoder` names; None where the model keeps its own decoder."""
    if not config.decoder:
        return None
    other, options = read_decoder(config.decoder)
    fields = {field.name for field in dataclasses.fields(describe_model(other).config)}
    common = {key: getattr(config, key) for key in _COMMON if key in fields and hasattr(config, key)}
    found = configure(other, common | options)
    if found.dim != config.dim:
        raise UserError(f"a decoder with dim={found.dim} cannot read {name} with dim={config.dim}; leave dim out")
    return found
