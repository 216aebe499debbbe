"""Subword tokenizers of translation models."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from legenda.errors import DataError, import_extra
from legenda.io import atomic_write, read_text, verified, write_text
from legenda.text.detokenize import detokenize
from legenda.text.vocabulary import END, UNKNOWN, Vocabulary

_HINT = "name the subwords.model of a run, or a file of BPE merges"
_JOINT = "@@"
_SPACES_ONLY = "#spaces"
_MOST_LINES = 1_000_000
"""Lines of text that subwords are learned from; of more, every n-th is taken."""


class SentencePieceTokenizer:
    """A sentencepiece model (Kudo and Richardson, 2018), whose subwords include the spaces of raw text."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = _sentencepiece().SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)

    @classmethod
    def train(cls, lines: Sequence[str], pieces: int) -> SentencePieceTokenizer:
        """Byte-pair encoding learned from lines of text of all languages: `pieces` of them, unknown included.

        Raises DataError where the text has fewer, or so many different characters that they alone are more, and where
        there is no text.
        """
        if not lines:
            raise DataError("there is no line of text to learn subwords from; give training files with sentences")
        written = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter(lines[:: -(-len(lines) // _MOST_LINES)]),
                model_writer=written,
                vocab_size=pieces,
                model_type="bpe",
                character_coverage=1.0,
                num_threads=1,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=3,
            )
        except (RuntimeError, OSError) as error:
            reason = str(error).split("] ")[-1].strip()
            raise DataError(
                f"{pieces} subwords cannot be learned from {len(lines)} lines ({reason}); choose another data.pieces"
            ) from error
        return cls(written.getvalue())

    def vocabulary(self) -> Vocabulary:
        """Its pieces after the end and the unknown one."""
        every = (self._processor.id_to_piece(number) for number in range(self._processor.get_piece_size()))
        return Vocabulary((END, UNKNOWN, *(piece for piece in every if piece not in (END, UNKNOWN))))

    def tokenize(self, text: str) -> list[str]:
        """The pieces; a space is a mark at the beginning of the next one."""
        return self._processor.encode(text, out_type=str)

    def detokenize(self, pieces: Sequence[str]) -> str:
        """Text with its spaces and punctuation as people write them."""
        return self._processor.decode(list(pieces)) if pieces else ""

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model, which `load_subwords` reads."""
        with atomic_write(path) as partial:
            partial.write_bytes(self.model)


class BPETokenizer:
    """Text that is tokenized already, and whose words fall into pieces that end in "@@" where the word goes on.

    It is the way of WMT's shared sets (Sennrich et al., 2016, subword-nmt). Given merges split words into pieces; with
    none the text has its pieces already, or its words are to stay whole.
    """

    def __init__(self, merges: str | None = None) -> None:
        """merges: the text of a file of merges, a pair in each line, the first one learned first."""
        self._text = merges
        lines = [] if merges is None else merges.rstrip("\n").split("\n")
        self._old = not lines or not lines[0].startswith("#version: 0.2")  # where the end of a word is a piece apart
        ranks = (line.split() for line in lines if line and not line.startswith("#version"))
        self._ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(ranks)))}
        if wrong := [pair for pair in self._ranks if len(pair) != 2]:
            raise DataError(f"{' '.join(wrong[0])!r} is no pair of pieces to be merged; {_HINT}")
        self._known: dict[str, tuple[str, ...]] = {}

    @classmethod
    def read(cls, path: str | Path) -> BPETokenizer:
        """A file of merges as subword-nmt writes it."""
        return cls(read_text(path, _HINT))

    def tokenize(self, text: str) -> list[str]:
        """The pieces of text whose tokens stand apart."""
        words = text.split()
        return words if self._text is None else [piece for word in words for piece in self._pieces(word)]

    def detokenize(self, pieces: Sequence[str]) -> str:
        """Running text: the pieces of a word joined, the tokens set as in print."""
        words = f"{' '.join(pieces)} ".replace(f"{_JOINT} ", "")
        return detokenize(words.split())

    def save(self, path: str | Path) -> None:
        """Write the merges, with a line that names their version; `load_subwords` reads them."""
        text = f"{_SPACES_ONLY}\n" if self._text is None else self._text
        if self._text is not None and not self._text.startswith("#version"):
            text = f"#version: 0.1\n{text}"
        write_text(path, text)

    def _pieces(self, word: str) -> tuple[str, ...]:
        if word not in self._known:
            parts = [*word, "</w>"] if self._old else [*word[:-1], f"{word[-1]}</w>"]
            while len(parts) > 1:
                pairs = [(self._ranks[pair], pair) for pair in pairwise(parts) if pair in self._ranks]
                if not pairs:
                    break
                parts = _merged(parts, min(pairs)[1])
            pieces = [part.removesuffix("</w>") for part in parts]
            pieces = pieces if pieces[-1] else pieces[:-1]
            self._known[word] = (*(f"{part}{_JOINT}" for part in pieces[:-1]), pieces[-1])
        return self._known[word]


SubwordTokenizer = SentencePieceTokenizer | BPETokenizer
"""Converts text to subwords and back; vocabularies consist of subwords."""


def _merged(parts: Sequence[str], pair: tuple[str, ...]) -> list[str]:
    """Return the parts with each occurrence of the pair merged."""
    merged: list[str] = []
    index = 0
    while index < len(parts):
        matches = tuple(parts[index : index + 2]) == pair
        merged.append("".join(pair) if matches else parts[index])
        index += 2 if matches else 1
    return merged


def build_subword_vocabulary(subwords: SubwordTokenizer, lines: Iterable[str]) -> Vocabulary:
    """The vocabulary of all pieces that lines of text have."""
    return Vocabulary.build((subwords.tokenize(line) for line in lines), min_count=1)


def load_subwords(path: str | Path) -> SubwordTokenizer:
    """Reads what `save` wrote; DataError names a file that is missing or is neither of the two kinds."""
    content = verified(lambda: Path(path).read_bytes(), path, _HINT)
    if content.startswith(_SPACES_ONLY.encode()):
        return BPETokenizer()
    if content.startswith(b"#version"):
        return BPETokenizer.read(path)
    _sentencepiece()  # a missing library is no fault of the file
    return verified(lambda: SentencePieceTokenizer(content), path, _HINT)


def _sentencepiece() -> Any:
    return import_extra("sentencepiece", "translation")
