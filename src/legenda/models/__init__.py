"""The models, a file for each with its configuration, encoder and decoder, and their registry.

Names are loaded when first used: the registry lists the models without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from legenda.models.registry import create_model, describe_model, list_models, register_model

if TYPE_CHECKING:
    from legenda.models.base import Captioner, CaptionerConfig, Encoder, ModelConfig
    from legenda.models.checkpoint import load, load_any

__all__ = [
    "Captioner",
    "CaptionerConfig",
    "Encoder",
    "ModelConfig",
    "create_model",
    "describe_model",
    "list_models",
    "load",
    "load_any",
    "register_model",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'legenda.models' has no attribute '{name}'")
    return getattr(
        import_module("legenda.models.checkpoint" if name in ("load", "load_any") else "legenda.models.base"), name
    )
