"""Tokenizers and vocabularies."""

from legenda.text.ptb import ptb_tokenize
from legenda.text.vocabulary import Vocabulary

__all__ = ["Vocabulary", "ptb_tokenize"]
