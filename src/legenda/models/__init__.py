"""The models, a file for each with its configuration, encoder and decoder, and their registry."""

from legenda.models.base import Captioner, CaptionerConfig, Encoder, ModelConfig
from legenda.models.checkpoint import load
from legenda.models.registry import create_model, describe_model, list_models, register_model

__all__ = [
    "Captioner",
    "CaptionerConfig",
    "Encoder",
    "ModelConfig",
    "create_model",
    "describe_model",
    "list_models",
    "load",
    "register_model",
]
