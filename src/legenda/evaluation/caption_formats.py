"""Captions in the forms that people read and programs take."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from legenda.errors import UserError

Form = Literal["text", "json", "csv", "coco"]


@dataclass(frozen=True)
class Captioned:
    """A picture's captions, best first, each with the score that the search ranks by (the sum of log-probabilities)."""

    picture: str
    captions: tuple[tuple[str, float], ...]


def write_captions(captioned: Iterable[Captioned], form: Form) -> Iterator[str]:
    """The lines of a form, without their ends, each as soon as it can be said.

    text: picture and caption, with the score where there are several; json: a list of objects with picture and
    captions; csv: picture, rank, score, caption under a heading; coco: the list of image_id and caption that COCO's
    server takes. Raises UserError for a picture that COCO's form cannot name.
    """
    if form == "text":
        yield from _text(captioned)
    elif form == "csv":
        yield from _csv(captioned)
    else:
        yield from _list(_coco_entry(one) if form == "coco" else _json_entry(one) for one in captioned)


def _text(captioned: Iterable[Captioned]) -> Iterator[str]:
    for one in captioned:
        for caption, score in one.captions:
            said = f"{score:.3f} " if len(one.captions) > 1 else ""
            yield f"{one.picture}: {said}{caption}"


def _csv(captioned: Iterable[Captioned]) -> Iterator[str]:
    yield "picture,rank,score,caption"
    for one in captioned:
        for rank, (caption, score) in enumerate(one.captions, start=1):
            row = io.StringIO()
            csv.writer(row, lineterminator="").writerow([one.picture, rank, f"{score:.6f}", caption])
            yield row.getvalue()


def _list(entries: Iterable[dict[str, object]]) -> Iterator[str]:
    """One JSON list, an entry a line."""
    before = "["
    for entry in entries:
        if before != "[":
            yield before + ","
        before = ("[" if before == "[" else " ") + json.dumps(entry, ensure_ascii=False)
    yield before + "]"


def _json_entry(one: Captioned) -> dict[str, object]:
    captions = [{"caption": caption, "score": round(score, 6)} for caption, score in one.captions]
    return {"picture": one.picture, "captions": captions}


def _coco_entry(one: Captioned) -> dict[str, object]:
    from legenda.evaluation.submission import coco_id

    number = coco_id(Path(one.picture).stem)
    if number is None:
        raise UserError(f"{one.picture} has no name of COCO's, whose form names pictures by number; use --form json")
    return {"image_id": number, "caption": one.captions[0][0]}
