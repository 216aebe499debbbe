"""The registries of models and decoders, and how a model is made from its name.

A variant of a model, such as a row of a paper's ablation, is a base model and overrides: a recipe of `legenda.papers`.
The lists of names need no PyTorch: the classes of configurations, and all that builds models, are imported when used.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

from legenda.config import merge, to_json
from legenda.errors import ConfigError
from legenda.registry import Registry

if TYPE_CHECKING:
    from legenda.models.base import Captioner, CaptionerConfig, Model, ModelConfig

C = TypeVar("C", bound="type[ModelConfig]")

_COMMON_FIELDS = ("vocab_size", "feature_dim", "dim", "num_heads", "ff_dim")
"""What the decoder of another model takes over from the model that it is in, unless its own options name it."""


@dataclass(frozen=True)
class Entry:
    """One named model: its configuration, what the name fixes in it, and where it comes from.

    source: the class of the configuration, or "module:class", which is imported when `config` is first read.
    vocab_size: the size of the paper's vocabulary with its special ids, for which parameters are counted.
    task: what it is for. parameters: their number at the paper's size; 0 where it is not known without building one.
    """

    source: type[ModelConfig] | str
    paper: str
    summary: str
    settings: Mapping[str, object] = field(default_factory=dict)
    vocab_size: int = 9488
    task: str = "captioning"
    parameters: int = 0

    @property
    def config(self) -> type[ModelConfig]:
        """The class of the configuration."""
        return resolve_name(self.source) if isinstance(self.source, str) else self.source


MODELS: Registry[Entry] = Registry(
    "model",
    {
        "transformer": Entry(
            "legenda.models.transformer:TransformerConfig",
            "Guo et al., CVPR 2020",
            "SAN: the Transformer, the baseline",
            parameters=40_202_000,
        ),
        "nsan": Entry(
            "legenda.models.transformer:TransformerConfig",
            "Guo et al., CVPR 2020",
            "N-SAN: instance-normalized queries",
            {"norm": "in"},
            parameters=40_202_000,
        ),
        "gsan": Entry(
            "legenda.models.transformer:TransformerConfig",
            "Guo et al., CVPR 2020",
            "G-SAN: query-dependent geometry",
            {"geometry": "query"},
            parameters=41_252_944,
        ),
        "ngsan": Entry(
            "legenda.models.transformer:TransformerConfig",
            "Guo et al., CVPR 2020",
            "NG-SAN: normalized queries and query-dependent geometry",
            {"norm": "in", "geometry": "query"},
            parameters=41_252_944,
        ),
        "ort": Entry(
            "legenda.models.transformer:TransformerConfig",
            "Herdade et al., NeurIPS 2019",
            "Object Relation Transformer: relative geometry, six layers, normalization first",
            {"geometry": "relative", "num_layers": 6, "norm_first": True},
            parameters=54_917_952,
        ),
        "aoanet": Entry(
            "legenda.models.aoanet:AoANetConfig",
            "Huang et al., ICCV 2019",
            "AoANet: attention on attention in encoder and decoder",
            vocab_size=10370,
            parameters=87_369_858,
        ),
        "updown": Entry(
            "legenda.models.updown:UpDownConfig",
            "Anderson et al., CVPR 2018",
            "Up-Down: an attention LSTM and a language LSTM",
            vocab_size=10010,
            parameters=57_991_098,
        ),
        "xlan": Entry(
            "legenda.models.xlan:XLanConfig",
            "Pan et al., CVPR 2020",
            "X-LAN: X-Linear attention in an encoder and an LSTM",
            parameters=75_189_781,
        ),
        "xtransformer": Entry(
            "legenda.models.xtransformer:XTransformerConfig",
            "Pan et al., CVPR 2020",
            "X-Transformer: X-Linear attention in a Transformer",
            parameters=137_521_826,
        ),
        "mdsan": Entry(
            "legenda.models.mdsan:MdsanConfig",
            "Ji et al., MD-SAN",
            "MD-SAN: distance-sensitive attention of several branches",
            vocab_size=10201,
            parameters=39_884_432,
        ),
        "meshed": Entry(
            "legenda.models.mdsan:MeshedConfig",
            "Cornia et al., CVPR 2020",
            "Meshed-Memory Transformer, on which MD-SAN's release is based",
            vocab_size=10201,
            parameters=38_411_264,
        ),
    },
)

DECODERS: Registry[type[CaptionerConfig]] = Registry("decoder", {})
"""Decoders that users register apart from a model, for `decoder` of any captioner: the class of a configuration, a
`CaptionerConfig` with `build_decoder`."""


def list_models(pattern: str = "*", task: str = "captioning") -> list[str]:
    """Return the sorted names of the models of a task that match a shell pattern such as "x*"."""
    return sorted(name for name in fnmatch.filter(MODELS, pattern) if MODELS.get(name).task == task)


def describe_model(name: str) -> Entry:
    """Return the entry of a named model; raise ConfigError with the nearest name when there is none."""
    return MODELS.get(name)


def summarize(name: str, config: ModelConfig) -> str:
    """Return one line about a model: what its name stands for, and the options that make it another one.

    These are kinds, switches and heads that differ from the named configuration; sizes and rates are left out.
    """
    from legenda.attention.config import DECLARED

    entry, changed = describe_model(name), []
    for option, info in type(config).model_fields.items():
        default = info.get_default(call_default_factory=True)
        value, named = getattr(config, option), entry.settings.get(option, default)
        is_choice = option in ("branches", *DECLARED) or any(
            isinstance(v, str | bool | Mapping) for v in (value, named)
        )
        if value != named and is_choice:
            shown = value["name"] if option == "decoder" and isinstance(value, Mapping) else to_json(value)
            changed.append(f"{option}={shown}")
    return f"{entry.summary}, with {', '.join(changed)}" if changed else entry.summary


def describe_decoder(name: str) -> Entry:
    """Return the entry of a registered decoder, or of the model of that name, whose decoder it is."""
    return Entry(DECODERS.get(name), "", "") if name in DECODERS else describe_model(name)


def register_model(
    name: str,
    *,
    summary: str = "",
    paper: str = "",
    settings: Mapping[str, object] | None = None,
    task: str = "captioning",
) -> Callable[[C], C]:
    """Return a decorator that adds the class of a configuration as the model `name`.

    The class is a `CaptionerConfig` with `build_encoder` and `build_decoder`, or another `ModelConfig` with `build`.
    settings: fields of it that the name fixes. task: what the model is for. Raise ConfigError for a field `name`, which
    recipes and config.json have for the model's.
    """

    def decorate(config: C) -> C:
        if "name" in config.model_fields:
            raise ConfigError(f"{config.__name__} has a field `name`, which is that of the model; call it otherwise")
        MODELS.add(name, Entry(config, paper, summary, settings or {}, task=task), config.__module__)
        return config

    return decorate


def create_model(name: str, **options: object) -> Captioner:
    """Return a new captioner with random weights: the named configuration with `options` over it.

    `vocab_size` is required; every other field has the paper's value. `decoder` names another model whose decoder
    attends to this model's encoder, "transformer" or {"name": "transformer", "num_layers": 2}; width, heads and inner
    channels are this model's unless they are given. Raises ConfigError for an unknown name or option (the nearest right
    one is suggested) and for a value of the wrong type.
    """
    from legenda.models.base import Captioner

    model = build_model(name, options)
    if not isinstance(model, Captioner):
        raise ConfigError(f"{name} is no captioner but a model for {MODELS.get(name).task}; legenda models lists both")
    return model


def build_model(name: str, options: Mapping[str, object]) -> Model:
    """Return a new model of any task with random weights, as `create_model` makes captioners."""
    from legenda.models.base import Captioner, CaptionerConfig

    config = configure(name, options)
    model = Captioner(config, _decoder_config(name, config)) if isinstance(config, CaptionerConfig) else config.build()
    model.name = name
    return model


def configure(name: str, options: Mapping[str, object]) -> ModelConfig:
    """Return the configuration of a named model with `options` over it, checked field by field."""
    entry = describe_model(name)
    options = {**entry.settings, **options}
    decoder = options.get("decoder")
    if decoder is not None:
        options["decoder"] = {"name": decoder} if isinstance(decoder, str) else to_json(decoder)
    config = merge(entry.config, options, name)
    _decoder_config(name, config)  # raises where it names none
    return config


def configure_sizeless(name: str, overrides: Mapping[str, object]) -> ModelConfig:
    """Return the configuration of a recipe's model, with 1 for the fields that follow from the data."""
    kind = describe_model(name).config
    return configure(name, {**overrides, **{field: 1 for field in kind.derived if field in kind.model_fields}})


def _decoder_config(name: str, config: ModelConfig) -> CaptionerConfig | None:
    """Return the configuration that `config.decoder` names; None where the model has its own decoder, or none."""
    from legenda.models.base import CaptionerConfig

    if not isinstance(config, CaptionerConfig) or config.decoder is None:
        return None
    options: dict[str, object] = {"name": config.decoder} if isinstance(config.decoder, str) else dict(config.decoder)
    if not isinstance(other := options.pop("name", None), str):
        raise ConfigError(f'{name} needs the name of its decoder; write decoder={{"name": "transformer", ...}}')
    entry = describe_decoder(other)
    fields = set(entry.config.model_fields)
    common = {key: getattr(config, key) for key in _COMMON_FIELDS if key in fields and hasattr(config, key)}
    common |= {"feature_dim": config.memory_dim, "dim": config.memory_dim}
    decoder_config = merge(entry.config, {**entry.settings, **common, **options}, f"{name}.decoder")
    if not isinstance(decoder_config, CaptionerConfig):
        raise ConfigError(f"decoder={other!r} is no captioner, so it has no decoder for {name}; choose another")
    if decoder_config.memory_dim != config.memory_dim:
        raise ConfigError(
            f"a decoder with dim={decoder_config.dim} cannot attend to {name} with dim={config.memory_dim}; "
            "leave dim out"
        )
    return decoder_config
