"""X-Transformer: X-Linear attention in a Transformer (Pan et al., CVPR 2020)."""

from legenda.models.xtransformer.config import XTransformerConfig
from legenda.models.xtransformer.decoder import XTransformerDecoder, positions

__all__ = ["XTransformerConfig", "XTransformerDecoder", "positions"]
