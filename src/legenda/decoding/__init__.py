"""Search: from a model and the memory of images to captions. It knows only a decoder's start and step."""

from legenda.decoding.beam import beam_search
from legenda.decoding.common import Decodable, Decoded
from legenda.decoding.decoder import Decoder, DecodingRule, State
from legenda.decoding.ensemble import Ensemble
from legenda.decoding.sampling import greedy, sample

__all__ = ["Decodable", "Decoded", "Decoder", "DecodingRule", "Ensemble", "State", "beam_search", "greedy", "sample"]
