"""The vocabularies of the released codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legenda.errors import UserError
from legenda.importers.unpickling import read_pickle
from legenda.io import read_json, read_text
from legenda.models.model import Model
from legenda.text import Vocabulary
from legenda.text.vocabulary import BEGIN, END, PAD, UNKNOWN

_SPECIALS = {"UNK": UNKNOWN, "<unk>": UNKNOWN, "<pad>": PAD, "<bos>": BEGIN, "<eos>": END}
"""What the releases call their special words, and what we do."""


def load_vocab(kind: str, path: Path) -> Vocabulary:
    """The vocabulary of a release, with the ids that its weights have.

    - our own vocabulary.txt;
    - a text with one word a line, ids from 1, as in X-LAN's release (a first line "." stands for the id 0);
    - a JSON with "ix_to_word", as cocotalk.json and infos files have it, or nothing but that table;
    - a pickle: infos_*.pkl of AoANet's release, or vocab.pkl of MD-SAN's, both read without running what is in them.
    """
    match path.suffix:
        case ".json":
            return Vocabulary(_numbered(read_json(path, "give the cocotalk.json of the release"), path))
        case ".pkl" | ".pickle":
            return Vocabulary(_unpickled(read_pickle(path), path))
        case ".txt":
            lines = read_text(path, "give one word a line").removesuffix("\n").split("\n")
            if END in lines:
                return Vocabulary.load(path)
            words = lines[1:] if lines[0] == "." else lines
            return Vocabulary((END, *map(_ours, words)))
        case _:
            raise UserError(f"{path} is no vocabulary of {kind} that can be read; give a .txt, .json or .pkl file")


def check_size(model: Model, words: int, source: str) -> None:
    """UserError where a vocabulary of so many words is not that of a model whose weights came from `source`."""
    expected = model.config.vocab_size
    if words != expected:
        raise UserError(
            f"the vocabulary has {words} words with the special ones but {source} has {expected}; give the file that "
            "the model was trained with"
        )


def _ours(word: str) -> str:
    return _SPECIALS.get(word, word)


def _numbered(content: Any, path: Path) -> tuple[str, ...]:
    """The words of a table from ids, counted from 1, to words; the id 0 begins and ends captions."""
    table = content.get("ix_to_word", content) if isinstance(content, Mapping) else None
    try:
        assert table
        words = {int(number): str(word) for number, word in table.items()}
        return (END, *(_ours(words[number]) for number in range(1, len(words) + 1)))
    except (AssertionError, KeyError, ValueError, AttributeError) as error:
        raise UserError(f'{path} has no "ix_to_word" with the ids 1, 2, 3 ...; give the release\'s own file') from error


def _unpickled(content: Any, path: Path) -> tuple[str, ...]:
    if isinstance(content, Mapping) and isinstance(content.get("vocab"), Mapping):
        return _numbered(content["vocab"], path)
    words = content if isinstance(content, Sequence) else getattr(content, "itos", None)
    if isinstance(words, Sequence) and not isinstance(words, str) and all(isinstance(word, str) for word in words):
        return tuple(map(_ours, words))
    raise UserError(f"{path} holds no vocabulary; give infos_*.pkl of AoANet or vocab.pkl of MD-SAN")
