"""The Transformer of NG-SAN and its variants (Guo et al., CVPR 2020)."""

from legenda.models.transformer.config import TransformerConfig
from legenda.models.transformer.decoder import TransformerDecoder, TransformerState
from legenda.models.transformer.encoder import EncoderLayer, TransformerEncoder

__all__ = ["EncoderLayer", "TransformerConfig", "TransformerDecoder", "TransformerEncoder", "TransformerState"]
