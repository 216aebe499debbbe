"""AoANet: attention on attention in encoder and decoder (Huang et al., ICCV 2019)."""

from legenda.models.aoanet.config import AoANetConfig
from legenda.models.aoanet.decoder import AoANetDecoder
from legenda.models.aoanet.encoder import AoANetEncoder

__all__ = ["AoANetConfig", "AoANetDecoder", "AoANetEncoder"]
