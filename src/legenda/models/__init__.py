"""The models, one file per paper, and their registry."""

from legenda.models.captioner import Captioner
from legenda.models.checkpoint import load
from legenda.models.registry import create_model, describe_model, list_models

__all__ = [
    "Captioner",
    "create_model",
    "describe_model",
    "list_models",
    "load",
]
