"""The JSON form of a report, validated."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from legenda.errors import DataError
from legenda.report.content import ExampleCard, ModelRun, Report
from legenda.report.encode_attention import encode_attention

if TYPE_CHECKING:
    from legenda.tasks.reporting import Prediction

_MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_BOX_TOLERANCE = 1e-3  # boxes from pixel arithmetic may miss the edge by a rounding


def report_to_json(report: Report) -> dict[str, Any]:
    """Return the data that the page's script reads; raise DataError, naming model or example, for invalid content."""
    if not report.runs:
        raise DataError(f"the report {report.title!r} has no model; give it at least one ModelRun")
    names = [run.name for run in report.runs]
    _check_unique(names, "models", report.title)
    keys = [column.key for column in report.columns]
    keys += [key for breakdown in report.breakdowns for key, _, _ in breakdown.rows]
    _check_unique(keys, "score columns", report.title)
    return {
        "columns": [vars(column) for column in report.columns],
        "breakdowns": [
            {
                "title": breakdown.title,
                "rows": [{"key": key, "label": label, "count": count} for key, label, count in breakdown.rows],
            }
            for breakdown in report.breakdowns
        ],
        "runs": [_run_json(run, keys) for run in report.runs],
        "examples": [_example_json(example, names) for example in report.examples],
        "footnotes": report.footnotes,
        "scoreName": report.score_name,
        "noun": report.noun,
        "verdicts": report.verdicts,
    }


def _check_unique(names: Sequence[str], what: str, title: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"the report {title!r} has two {what} called {name!r}; give each a unique name")


def _run_json(run: ModelRun, keys: Sequence[str]) -> dict[str, Any]:
    return {
        **vars(run),
        "seconds": _finite(run.seconds),
        "scores": {key: _finite(run.scores.get(key)) for key in keys},
        "intervals": {key: bounds for key, bounds in run.intervals.items() if all(map(math.isfinite, bounds))},
        "differences": {key: vars(found) for key, found in run.differences.items() if key in keys},
        "curves": {name: _curve_json(points, name, run.name) for name, points in run.curves.items()},
        # paths, classes and infinities become text
        "configuration": json.loads(json.dumps(run.configuration, default=str), parse_constant=str),
    }


def _curve_json(points: Sequence[tuple[float, float]], name: str, run: str) -> list[list[float | None]]:
    if not all(math.isfinite(step) for step, _ in points):
        raise DataError(f"curve {name!r} of model {run!r} has a step that is not finite; give finite step numbers")
    return [[float(step), _finite(value)] for step, value in sorted(points, key=lambda point: point[0])]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _example_json(example: ExampleCard, names: Sequence[str]) -> dict[str, Any]:
    where = f"example {example.id!r}"
    unknown = [name for name in example.captions if name not in names]
    if unknown:
        raise DataError(
            f"{where} has a caption of {unknown[0]!r}, which is not a model of the report; add its ModelRun"
        )
    boxes = _boxes_json(example.boxes, where)
    return {
        "id": example.id,
        "kind": example.kind,
        "image": None if example.image is None else _image_json(example.image, example.media_type, where),
        "boxes": boxes,
        "box": _box_json(example.box, where),
        "facts": example.facts,
        "references": example.references,
        "captions": {
            name: _caption_json(example.captions[name], len(boxes), f"{where}, model {name!r}")
            for name in names
            if name in example.captions
        },
    }


def _image_json(image: bytes, media_type: str, where: str) -> str:
    if not image or media_type not in _MEDIA_TYPES:
        raise DataError(
            f"{where} has no image that a browser shows ({media_type}, {len(image)} bytes); "
            f"give the bytes of an image file and one of {', '.join(_MEDIA_TYPES)}"
        )
    return f"data:{media_type};base64,{base64.b64encode(image).decode()}"


def _box_json(box: Sequence[float] | None, where: str) -> list[float] | None:
    return None if box is None else _boxes_json([box], where)[0]


def _boxes_json(boxes: Sequence[Sequence[float]], where: str) -> list[list[float]]:
    """Return N boxes clipped to 0..1, with four decimals."""
    try:
        array = np.asarray(boxes, dtype=np.float64).reshape(len(boxes), 4)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} has boxes that are not rows of four numbers; give x1 y1 x2 y2 for each") from error
    inside = (array >= -_BOX_TOLERANCE) & (array <= 1 + _BOX_TOLERANCE)  # False for NaN
    ordered = array[:, :2] <= array[:, 2:]
    if not (inside.all() and ordered.all()):
        raise DataError(f"{where} has a box outside 0..1 or with x1 > x2 or y1 > y2; divide by the size of the image")
    return np.round(array.clip(0, 1), 4).tolist()


def _caption_json(caption: Prediction, regions: int, where: str) -> dict[str, Any]:
    attention = heads = None
    boxes = None if caption.boxes is None else _boxes_json(caption.boxes, where)
    regions = regions if boxes is None else len(boxes)
    if caption.attention is not None:
        weights = np.asarray(caption.attention, dtype=np.float64)
        expected = (len(caption.words), regions)
        if weights.ndim not in (2, 3) or (weights.shape[0], weights.shape[-1]) != expected or 0 in weights.shape[1:-1]:
            raise DataError(
                f"{where}: attention has the shape {weights.shape}, but {expected[0]} words over {regions} regions "
                f"need {expected}, or (words, heads, regions); give one row for each word and one column for each box"
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise DataError(f"{where}: attention has a negative or non-finite weight; give weights of 0 or more")
        heads = encode_attention(weights) if weights.ndim == 3 and weights.shape[1] > 1 else None
        attention = np.round(weights if weights.ndim == 2 else weights.mean(axis=1), 4).tolist()
    return {
        **vars(caption),
        "attention": attention,
        "heads": heads,
        "score": _finite(caption.score),
        "boxes": boxes,
        "box": _box_json(caption.box, where),
    }
