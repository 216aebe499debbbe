"""Tokenizers of captions, questions and expressions that models learn from. Metrics always use `ptb_tokenize`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Literal

from legenda.errors import import_extra
from legenda.text.ptb import ptb_tokenize

TokenizerName = Literal["ptb", "words", "spacy"]
Tokenizer = Callable[[str], list[str]]

_QUESTION_PUNCTUATION = str.maketrans("-/", "  ", ".,'!?\"()*#:;")
_WORDS = re.compile(r"\w+").findall
_BRACKETS = {"-LRB-", "-RRB-", "-LCB-", "-RCB-"}
_PUNCTUATION = {"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"} | _BRACKETS


def create_tokenizer(name: TokenizerName) -> Tokenizer:
    """Return a tokenizer.

    "ptb": `ptb_tokenize`. "words": runs of word characters in lower case, the closest known rule to the `tokens` of
    Karpathy's files. "spacy": spaCy's English tokenizer on the caption in lower case, without 17 punctuation tokens, as
    the Meshed-Memory Transformer and MD-SAN have released it; raise ConfigError where spaCy is not installed.
    """
    return {"ptb": lambda: ptb_tokenize, "words": lambda: _word_tokenize, "spacy": _spacy_tokenizer}[name]()


def _word_tokenize(caption: str) -> list[str]:
    return _WORDS(caption.lower())


@functools.cache
def _spacy_tokenizer() -> Tokenizer:
    tokenizer = import_extra("spacy", "spacy").blank("en").tokenizer

    def tokenize(caption: str) -> list[str]:
        tokens = (token.text for token in tokenizer(caption.lower().rstrip("\n")))
        return [token for token in tokens if token not in _PUNCTUATION and not token.isspace()]

    return tokenize


def tokenize_question(text: str) -> list[str]:
    """Return the words of a question as the released codes of MCAN and OpenVQA split them.

    Words are in lower case; hyphens and slashes become spaces, and other punctuation is removed.
    """
    return text.lower().translate(_QUESTION_PUNCTUATION).split()
