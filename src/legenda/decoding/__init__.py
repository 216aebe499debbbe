"""Generation of token sequences: beam search, greedy decoding and sampling with any decoder, and ensembles."""

from legenda.decoding.ensemble import Ensemble
from legenda.decoding.generation import Decoder, GenerationConfig, GenerationOutput, State, SupportsGeneration
from legenda.decoding.search import beam_search, greedy, sample

__all__ = [
    "Decoder",
    "Ensemble",
    "GenerationConfig",
    "GenerationOutput",
    "State",
    "SupportsGeneration",
    "beam_search",
    "greedy",
    "sample",
]
