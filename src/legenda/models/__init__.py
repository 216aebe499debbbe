"""The models, one file per paper, and their registry."""

from legenda.models.captioner import Captioner
from legenda.models.decoder import Decoder, DecodingRule, State
from legenda.models.registry import create_model, describe_model, list_models
from legenda.models.storage import load

__all__ = [
    "Captioner",
    "Decoder",
    "DecodingRule",
    "State",
    "create_model",
    "describe_model",
    "list_models",
    "load",
]
