"""Subwords of translators: SentencePiece and BPE by their libraries."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from legenda.errors import DataError, import_extra
from legenda.io import atomic_write, read_text, verified, write_text
from legenda.text.vocabulary import END, UNKNOWN, Vocabulary

_MAX_CHARACTERS = 1000
"""Characters of the longest word that BPE merges split, which takes quadratic time."""
_HINT = "name the subwords.model of a run, or a file of BPE merges"
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
        """Learn byte-pair encoding from lines of text of all languages: `pieces` of them, unknown included.

        Raise DataError without text, where it has fewer pieces, and where it has more distinct characters alone.
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
        """Return "<end>", "<unk>" and then its pieces."""
        pieces = (self._processor.id_to_piece(number) for number in range(self._processor.get_piece_size()))
        return Vocabulary((END, UNKNOWN, *(piece for piece in pieces if piece not in (END, UNKNOWN))))

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces; a space is a mark at the beginning of the next piece."""
        return self._processor.encode(text, out_type=str)

    def detokenize(self, pieces: Sequence[str]) -> str:
        """Return running text."""
        return self._processor.decode(list(pieces)) if pieces else ""

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model, which `load_subwords` reads."""
        with atomic_write(path) as partial:
            partial.write_bytes(self.model)


class BPETokenizer:
    """Byte-pair encoding of tokenized text by subword-nmt (Sennrich et al., 2016), as in WMT's shared sets.

    Pieces end in "@@" where the word goes on. Without merges the text has its pieces already, or its words stay whole.

    merges: the text of a file of merges, one pair a line. Raise DataError for a line that is no pair, and ConfigError
    where subword-nmt is not installed.
    """

    def __init__(self, merges: str | None = None) -> None:
        self._text, self._bpe = merges, None
        if merges is not None:
            lines = merges.rstrip("\n").split("\n")
            pairs = (lines[1:] or [""]) if lines[0] in ("#version: 0.1", "#version: 0.2") else lines
            for pair in pairs:
                if len(pair.strip("\r ").split(" ")) != 2 or pair.startswith("#version"):
                    raise DataError(f"{pair!r} is no pair of pieces to be merged; {_HINT}")
            self._bpe = import_extra("subword_nmt.apply_bpe", "translation").BPE(io.StringIO(merges))

    @classmethod
    def read(cls, path: str | Path) -> BPETokenizer:
        """Read a file of merges as subword-nmt writes it."""
        return cls(read_text(path, _HINT))

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces of text whose tokens are separated by spaces; raise DataError for a token too long."""
        tokens = text.split()
        if self._bpe is None:
            return tokens
        if long := next((token for token in tokens if len(token) > _MAX_CHARACTERS), None):
            raise DataError(
                f"the word {long[:60]!r}... has {len(long):,} characters; BPE merges take {_MAX_CHARACTERS:,} at most"
            )
        return self._bpe.segment_tokens(tokens)

    def detokenize(self, pieces: Sequence[str]) -> str:
        """Return running text: pieces joined to tokens, and tokens joined by the Moses detokenizer (sacremoses).

        Raise ConfigError where sacremoses is not installed.
        """
        tokens = f" {' '.join(pieces)} ".replace("@@ ", "").replace(" ##AT##-##AT## ", " @-@ ").split()
        return _moses().detokenize(tokens)

    def save(self, path: str | Path) -> None:
        """Write the merges, with a line that names their version; `load_subwords` reads them."""
        text = f"{_SPACES_ONLY}\n" if self._text is None else self._text
        if self._text is not None and not self._text.startswith("#version"):
            text = f"#version: 0.1\n{text}"
        write_text(path, text)


SubwordTokenizer = SentencePieceTokenizer | BPETokenizer
"""Converts text to subwords and back; vocabularies consist of subwords."""


def build_subword_vocabulary(subwords: SubwordTokenizer, lines: Iterable[str]) -> Vocabulary:
    """Return the vocabulary of all pieces of some lines of text."""
    return Vocabulary.build((subwords.tokenize(line) for line in lines), min_count=1)


def load_subwords(path: str | Path) -> SubwordTokenizer:
    """Read what `save` wrote; raise DataError for a file that is missing or of neither kind."""
    content = verified(lambda: Path(path).read_bytes(), path, _HINT)
    if content.startswith(_SPACES_ONLY.encode()):
        return BPETokenizer()
    if content.startswith(b"#version"):
        return BPETokenizer.read(path)
    _sentencepiece()  # a missing library is no fault of the file
    return verified(lambda: SentencePieceTokenizer(content), path, _HINT)


def _sentencepiece() -> Any:
    return import_extra("sentencepiece", "translation")


@functools.cache
def _moses() -> Any:
    return import_extra("sacremoses", "translation").MosesDetokenizer(lang="en")
