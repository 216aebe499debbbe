"""Captions as text, JSON, CSV, and in the format of COCO's evaluation server."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from legenda.errors import ConfigError
from legenda.terminal import escape_controls

Format = Literal["text", "json", "csv", "coco"]


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image, best first, each with the score the search ranked it by, or why there are none."""

    image: str
    captions: tuple[tuple[str, float], ...] = ()
    error: str | None = None


def format_captions(results: Iterable[ImageCaptions], output_format: Format) -> Iterator[str]:
    """Yield the lines of an output, without line ends, each as soon as its image is captioned.

    text: image, its control characters and line feeds as escapes, and caption, with the score where an image has
    several; json: a list of objects with `image` and
    `captions`; csv: image, rank, score and caption, with a header; coco: a list of objects with `image_id` and
    `caption`. Raise ConfigError for an image whose name is not one of COCO's.
    """
    if output_format == "text":
        yield from _text_lines(results)
    elif output_format == "csv":
        yield from _csv_lines(results)
    else:
        yield from _json_lines(map(_coco_entry if output_format == "coco" else json_entry, results))


def _text_lines(results: Iterable[ImageCaptions]) -> Iterator[str]:
    for result in results:
        name = escape_controls(result.image).replace("\n", "\\n")
        for caption, score in result.captions:
            prefix = f"{score:.3f} " if len(result.captions) > 1 else ""
            yield f"{name}: {prefix}{caption}"


def _csv_lines(results: Iterable[ImageCaptions]) -> Iterator[str]:
    yield "image,rank,score,caption"
    for result in results:
        for rank, (caption, score) in enumerate(result.captions, start=1):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow([result.image, rank, f"{score:.6f}", caption])
            yield line.getvalue()


def _json_lines(entries: Iterable[dict[str, object]]) -> Iterator[str]:
    """Yield one JSON list, an entry a line."""
    pending = "["
    for entry in entries:
        if pending != "[":
            yield pending + ","
        pending = ("[" if pending == "[" else " ") + json.dumps(entry, ensure_ascii=False)
    yield pending + "]"


def json_entry(result: ImageCaptions) -> dict[str, object]:
    """Return the captions of an image with their scores for JSON."""
    captions = [{"caption": caption, "score": round(score, 6)} for caption, score in result.captions]
    return {"image": result.image, "captions": captions}


def check_coco_names(names: Iterable[str]) -> None:
    """Raise ConfigError unless all file names are those of COCO images, each with its own id."""
    images: dict[int, str] = {}
    for name in names:
        first = images.setdefault(_coco_id(name), name)
        if first is not name:
            raise ConfigError(
                f"{first} and {name} have the COCO id {_coco_id(name)}; leave one of them out, or use --format json"
            )


def _coco_id(name: str) -> int:
    from legenda.evaluation.submission import coco_id

    image_id = coco_id(Path(name).stem)
    if image_id is None:
        raise ConfigError(f"{name} is not the name of a COCO image, which ends in its id; use --format json")
    return image_id


def _coco_entry(result: ImageCaptions) -> dict[str, object]:
    return {"image_id": _coco_id(result.image), "caption": result.captions[0][0]}
