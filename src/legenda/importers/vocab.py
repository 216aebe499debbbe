"""Vocabulary files of the released codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legenda.errors import DataError
from legenda.io import read_json, read_pickle, read_text
from legenda.models.base import Model
from legenda.models.weights import NUMPY_GLOBALS
from legenda.text import Vocabulary
from legenda.text.vocabulary import BEGIN, END, PAD, UNKNOWN

_SPECIALS = {"UNK": UNKNOWN, "<unk>": UNKNOWN, "<pad>": PAD, "<bos>": BEGIN, "<eos>": END}
"""Legenda's names of the releases' special tokens."""
_PICKLES = "give the release's own file, or its vocabulary as a text with one word a line"


class _Attributes:
    """Takes the place of an object in a pickle: its attributes, and none of its methods."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})


_ALLOWED: dict[str, Any] = {
    **{f"builtins.{kind.__name__}": kind for kind in (int, float, list, dict, str, set, frozenset, object)},
    "builtins.long": int,
    "copyreg._reconstructor": lambda kind, *_: kind(),  # of old protocols
    "_codecs.encode": lambda text, encoding: text.encode("latin-1" if encoding.startswith("latin") else "utf-8"),
    "collections.OrderedDict": dict,
    "collections.Counter": dict,
    "collections.defaultdict": lambda _, *arguments: dict(*arguments),
    **dict.fromkeys(("argparse.Namespace", "data.vocab.Vocab", "data.field.TextField", "vocab.Vocab"), _Attributes),
    **dict.fromkeys(NUMPY_GLOBALS, _Attributes),
}
"""What the releases' pickles of vocabularies and options name, and what replaces it."""


def load_vocab(kind: str, path: Path) -> Vocabulary:
    """Return the vocabulary of a release, with the ids of its weights.

    The file is one of:

    - a vocabulary.txt of Legenda;
    - a text file with one word a line, ids from 1, as in X-LAN's release (a first line "." has the id 0);
    - a JSON file with "ix_to_word", such as cocotalk.json and infos files, or only that mapping;
    - a pickle: infos_*.pkl of AoANet's release or vocab.pkl of MD-SAN's, read without executing code in them.
    """
    match path.suffix:
        case ".json":
            return Vocabulary(_parse_mapping(read_json(path, "give the cocotalk.json of the release"), path))
        case ".pkl" | ".pickle":
            return Vocabulary(_parse_pickle(read_pickle(path, _PICKLES, _ALLOWED), path))
        case ".txt":
            lines = read_text(path, "give one word a line").removesuffix("\n").split("\n")
            if END in lines:
                return Vocabulary.load(path)
            words = lines[1:] if lines[0] == "." else lines
            return Vocabulary((END, *map(_convert_special, words)))
        case _:
            raise DataError(f"{path} is not a vocabulary file of {kind}; give a .txt, .json or .pkl file")


def check_size(model: Model, vocab_size: int, source: str) -> None:
    """Raise DataError where a vocabulary's size differs from that of a model whose weights come from `source`."""
    expected = model.config.vocab_size
    if vocab_size != expected:
        raise DataError(
            f"the vocabulary has {vocab_size} tokens including special ones, but {source} has {expected}; give "
            "the file that the model was trained with"
        )


def _convert_special(word: str) -> str:
    return _SPECIALS.get(word, word)


def _parse_mapping(content: Any, path: Path) -> tuple[str, ...]:
    """Return the words of a mapping from ids, counted from 1; the id 0 is both BOS and EOS."""
    table = content.get("ix_to_word", content) if isinstance(content, Mapping) else None
    try:
        assert table
        words = {int(number): str(word) for number, word in table.items()}
        return (END, *(_convert_special(words[number]) for number in range(1, len(words) + 1)))
    except (AssertionError, KeyError, ValueError, AttributeError) as error:
        raise DataError(f'{path} has no "ix_to_word" with the ids 1, 2, 3 ...; give the release\'s own file') from error


def _parse_pickle(content: Any, path: Path) -> tuple[str, ...]:
    if isinstance(content, Mapping) and isinstance(content.get("vocab"), Mapping):
        return _parse_mapping(content["vocab"], path)
    words = content if isinstance(content, Sequence) else getattr(content, "itos", None)
    if isinstance(words, Sequence) and not isinstance(words, str) and all(isinstance(word, str) for word in words):
        return tuple(map(_convert_special, words))
    raise DataError(f"{path} contains no vocabulary; give infos_*.pkl of AoANet or vocab.pkl of MD-SAN")
