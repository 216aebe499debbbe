"""The models, one file per paper, and their registry. Names are imported when first used, so listing needs no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legenda.models.captioner import Captioner
    from legenda.models.checkpoint import load
    from legenda.models.config import ModelConfig
    from legenda.models.registry import create_model, describe_model, list_models, register_model

_MODULES = {
    "Captioner": "captioner",
    "ModelConfig": "config",
    "create_model": "registry",
    "describe_model": "registry",
    "list_models": "registry",
    "load": "checkpoint",
    "register_model": "registry",
}

__all__ = [
    "Captioner",
    "ModelConfig",
    "create_model",
    "describe_model",
    "list_models",
    "load",
    "register_model",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"legenda.models.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'legenda.models' has no attribute {name!r}")
