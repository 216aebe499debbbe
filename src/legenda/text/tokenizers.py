"""Tokenizers of captions."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable
from typing import Literal

from legenda.errors import import_extra
from legenda.text.ptb import ptb_tokenize

TokenizerName = Literal["ptb", "words", "spacy", "vatex"]
Tokenizer = Callable[[str], list[str]]

_WORDS = re.compile(r"\w+").findall
_BRACKETS = {"-LRB-", "-RRB-", "-LCB-", "-RCB-"}
_PUNCTUATION = {"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"} | _BRACKETS


def create_tokenizer(name: TokenizerName) -> Tokenizer:
    """Return a tokenizer.

    "ptb": `ptb_tokenize`. "words": runs of word characters in lower case, the closest known rule to the `tokens` of
    Karpathy's files. "spacy": spaCy's English tokenizer on the caption in lower case, without 17 punctuation tokens, as
    the Meshed-Memory Transformer and MD-SAN have released it; raise ConfigError where spaCy is not installed. "vatex":
    words and punctuation in lower case, as in VATEX's release (eric-xw/Video-guided-Machine-Translation).
    """
    if name == "spacy":
        return _spacy_tokenizer()
    return {"ptb": ptb_tokenize, "words": _word_tokenize, "vatex": _vatex_tokenize}[name]


def _word_tokenize(caption: str) -> list[str]:
    return _WORDS(caption.lower())


def _vatex_tokenize(caption: str) -> list[str]:
    """Split before and after runs of other than word characters; marks are tokens of their own, but for full stops."""
    runs = [run.strip() for run in re.split(r"(\W+)", caption.lower())]
    marks = [set(run) <= set(string.punctuation) and set(run) != {"."} for run in runs]
    return [token for run, are_marks in zip(runs, marks, strict=True) if run for token in (run if are_marks else [run])]


@functools.cache
def _spacy_tokenizer() -> Tokenizer:
    tokenizer = import_extra("spacy", "spacy").blank("en").tokenizer

    def tokenize(caption: str) -> list[str]:
        tokens = (token.text for token in tokenizer(caption.lower().rstrip("\n")))
        return [token for token in tokens if token not in _PUNCTUATION and not token.isspace()]

    return tokenize
