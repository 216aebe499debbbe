"""Legenda turns pictures into sentences with attention.

Names are loaded when first used, so `import legenda` needs neither torch nor a tenth of a second.
"""

from importlib import import_module
from typing import Any

_KINDS = (
    *("attention", "dataset", "decoder", "distance", "extractor", "feature_store", "geometry"),
    *("metric", "model", "norm", "recipe", "reward", "schedule", "task", "window"),
)
_NAMES = {
    "Regions": "legenda.regions",
    "Memory": "legenda.regions",
    "create_model": "legenda.models",
    "list_models": "legenda.models",
    "load": "legenda.models",
    "open": "legenda.pipeline",
    "Pipeline": "legenda.pipeline",
    "train": "legenda.experiment",
    "load_plugin": "legenda.plugins",
    **{f"register_{kind}": "legenda.register" for kind in _KINDS},
    "CheckpointError": "legenda.errors",
    "ConfigError": "legenda.errors",
    "DataError": "legenda.errors",
    "LegendaError": "legenda.errors",
}
_MODULES = (
    "attention",
    "data",
    "decoding",
    "evaluation",
    "extractors",
    "importers",
    "metrics",
    "models",
    "papers",
    "recipes",
    "tasks",
    "text",
    "training",
    "report",
)

__all__ = [*_NAMES, *_MODULES]
__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _MODULES:
        return import_module(f"legenda.{name}")
    raise AttributeError(f"module 'legenda' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
