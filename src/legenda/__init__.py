"""Legenda turns pictures into sentences with attention.

Names are loaded when first used, so `import legenda` needs neither torch nor a tenth of a second.
"""

import os
from importlib import import_module

# huggingface_hub, transformers and datasets read it when they are first imported; otherwise they tell the hub which
# libraries are installed. A value of the user's stays.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

_NAMES = {
    "Regions": "legenda.regions",
    "Memory": "legenda.regions",
    "create_model": "legenda.models",
    "list_models": "legenda.models",
    "load": "legenda.models",
    "open": "legenda.pipeline",
    "Pipeline": "legenda.pipeline",
    "train": "legenda.experiment",
    "load_plugin": "legenda.registry",
    "register_attention": "legenda.attention.config",
    "register_metric": "legenda.metrics.evaluation",
    "register_model": "legenda.models.registry",
    "register_recipe": "legenda.papers",
    "register_task": "legenda.tasks.base",
    "CheckpointError": "legenda.errors",
    "ConfigError": "legenda.errors",
    "DataError": "legenda.errors",
    "LegendaError": "legenda.errors",
    "__version__": "legenda.io",
}
_REGISTRIES = {
    "register_dataset": "legenda.data.registry:DATASETS",
    "register_decoder": "legenda.models.registry:DECODERS",
    "register_distance": "legenda.attention.distance:DISTANCES",
    "register_extractor": "legenda.features.extractors:EXTRACTORS",
    "register_feature_store": "legenda.features.readers:STORES",
    "register_geometry": "legenda.attention.geometry:GEOMETRIES",
    "register_norm": "legenda.attention.normalization:NORMS",
    "register_reward": "legenda.tasks.self_critical:REWARDS",
    "register_schedule": "legenda.training.schedules:SCHEDULES",
    "register_window": "legenda.attention.distance:WINDOWS",
}
"""Decorators that take a name and add a part to a registry, whose docstring says what a part is."""
_MODULES = (
    "attention",
    "data",
    "decoding",
    "evaluation",
    "extractors",
    "features",
    "images",
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

__all__ = [*_NAMES, *_REGISTRIES, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _REGISTRIES:
        module, registry = _REGISTRIES[name].split(":")
        return getattr(import_module(module), registry).register
    if name in _MODULES:
        return import_module(f"legenda.{name}")
    raise AttributeError(f"module 'legenda' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
