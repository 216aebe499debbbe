"""The words of questions and the answers of a model, each with its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from legenda.config import Integer, conform
from legenda.errors import DataError
from legenda.io import read_json, verified
from legenda.text.vocabulary import PAD, UNKNOWN, TokenList, invalid_line, repeated_line

CLS = "<cls>"
_PUNCTUATION = str.maketrans("-/", "  ", ".,'!?\"()*#:;")


def tokenize_question(text: str) -> list[str]:
    """Return the words of a question, split as in the released code of MCAN and OpenVQA.

    Words are in lower case; hyphens and slashes become spaces, and other punctuation is removed.
    """
    return text.lower().translate(_PUNCTUATION).split()


class QuestionVocabulary(TokenList):
    """The words of questions in the order of their ids: "<pad>", "<unk>", optionally "<cls>", then words.

    Raise DataError when the first two differ, or a word is empty, contains white space or occurs twice.
    """

    kind = "a vocabulary of questions"
    specials = (PAD, UNKNOWN, CLS)

    @classmethod
    def build(cls, questions: Iterable[Sequence[str]], *, with_cls: bool = False) -> Self:
        """Return all words of tokenized questions in order of first occurrence.

        with_cls: whether to include OpenVQA's unused "<cls>", which MCAN's released code does not have.
        """
        words = dict.fromkeys(word for question in questions for word in question if cls._is_word(word))
        return cls((*(cls.specials if with_cls else cls.specials[:2]), *words))

    @classmethod
    def _find_problem(cls, tokens: Sequence[str]) -> str | None:
        if tuple(tokens[:2]) != (PAD, UNKNOWN):
            return f"the first two words are not {PAD} and {UNKNOWN}"
        return invalid_line(tokens, spaces=False) or repeated_line(tokens)


class AnswerVocabulary(TokenList):
    """The answers that a model chooses from, in the order of their ids; one may be empty, and none is special.

    Raise DataError when there is none, or one occurs twice or contains a line break.
    """

    kind = "a list of answers"
    specials = ()

    @classmethod
    def build(cls, answers: Iterable[str], *, min_count: int = 9) -> Self:
        """Return the normalized answers that occur at least `min_count` times, in order of first occurrence."""
        return cls(
            tuple(answer for answer, count in Counter(answers).items() if count >= min_count and cls._is_word(answer))
        )

    @classmethod
    def _find_problem(cls, tokens: Sequence[str]) -> str | None:
        if not tokens:
            return "there is no answer"
        return invalid_line(tokens, empty=True) or repeated_line(tokens)


def encode_tokens(
    sentences: Iterable[Sequence[str]], vocabulary: QuestionVocabulary, length: int
) -> Int[Tensor, "Q L"]:
    """Return tokenized sentences as ids `(Q, length)`, truncated at the end and padded with 0."""
    ids = [vocabulary.encode(tokens[:length]) for tokens in sentences]
    padded = np.zeros((len(ids), length), np.int64)
    for row, sentence in zip(padded, ids, strict=True):
        row[: len(sentence)] = sentence
    return torch.from_numpy(padded)


def read_answers(path: str | Path) -> AnswerVocabulary:
    """Read a JSON list of answers, an object from answers to ids, or the list of two objects, from answers to ids and
    back, of MCAN's and OpenVQA's answer_dict.json.

    Raise DataError, naming the file, where the ids are not 0, 1, 2 and so on.
    """
    hint = "give a JSON list of answers, or an object from answers to their ids"
    path = Path(path)
    content = read_json(path, hint)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0]
    if isinstance(content, dict):
        by_id = sorted(conform(content, dict[str, Integer], path, hint).items(), key=lambda pair: pair[1])
        if [number for _, number in by_id] != list(range(len(by_id))):
            raise DataError(f"{path} does not number its answers 0, 1, 2 and so on; {hint}")
        content = [answer for answer, _ in by_id]
    answers = conform(content, list[str], f"{path}: answer", hint)
    return verified(lambda: AnswerVocabulary(tuple(answers)), path, hint)
