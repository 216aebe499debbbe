"""The models, one file per paper, and their registry. Names are imported when first used, so listing needs no torch."""

from typing import TYPE_CHECKING

from legenda.lazy import lazy_names

if TYPE_CHECKING:
    from legenda.models.captioner import Captioner
    from legenda.models.checkpoint import load
    from legenda.models.config import ModelConfig
    from legenda.models.registry import create_model, describe_model, list_models, register_model

__getattr__ = lazy_names(
    __name__,
    {
        "captioner": ["Captioner"],
        "checkpoint": ["load"],
        "config": ["ModelConfig"],
        "registry": ["create_model", "describe_model", "list_models", "register_model"],
    },
)

__all__ = [
    "Captioner",
    "ModelConfig",
    "create_model",
    "describe_model",
    "list_models",
    "load",
    "register_model",
]
