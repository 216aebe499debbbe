"""Lists of answers in JSON files."""

from __future__ import annotations

from pathlib import Path

from legenda.errors import DataError
from legenda.io import read_json, verified
from legenda.text.vocabulary import AnswerVocabulary

_HINT = "give a JSON list of answers, or an object from answers to their ids"


def read_answers(path: str | Path) -> AnswerVocabulary:
    """Read a JSON list of answers, an object from answers to ids, or the two objects, from answers to ids and back,
    of MCAN's and OpenVQA's answer_dict.json.

    Raises DataError, naming the file, when the ids are not 0, 1, 2 and so on.
    """
    path = Path(path)
    content = read_json(path, _HINT)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0]
    if isinstance(content, dict):
        if not all(type(number) is int for number in content.values()):
            raise DataError(f"{path} has an answer whose id is not an integer; {_HINT}")
        by_id = sorted(content.items(), key=lambda pair: pair[1])
        if [number for _, number in by_id] != list(range(len(by_id))):
            raise DataError(f"{path} does not number its answers 0, 1, 2 and so on; {_HINT}")
        content = [answer for answer, _ in by_id]
    if not isinstance(content, list) or not content or not all(isinstance(answer, str) for answer in content):
        raise DataError(f"{path} holds no list of answers; {_HINT}")
    return verified(lambda: AnswerVocabulary(tuple(content)), path, _HINT)
