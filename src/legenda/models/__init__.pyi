from legenda.models.captioner import Captioner
from legenda.models.checkpoint import load
from legenda.models.config import CaptionerConfig
from legenda.models.registry import create_model, describe_model, list_models, register_model

__all__ = [
    "Captioner",
    "CaptionerConfig",
    "create_model",
    "describe_model",
    "list_models",
    "load",
    "register_model",
]
