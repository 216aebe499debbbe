"""Tokenizers and vocabularies."""

from legenda.text.ptb import ptb_tokenize
from legenda.text.vocabulary import AnswerVocabulary, QuestionVocabulary, Vocabulary

__all__ = ["AnswerVocabulary", "QuestionVocabulary", "Vocabulary", "ptb_tokenize"]
