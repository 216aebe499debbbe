"""A report as JSON knows it, checked on the way."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from legenda.errors import UserError
from legenda.visualization.report.content import CaptionView, ExampleCard, ModelRun, Report
from legenda.visualization.report.encode_attention import pack_heads

_MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_BOX_TOLERANCE = 1e-3  # boxes from pixel arithmetic may miss the edge by a rounding


def plain_report(report: Report) -> dict[str, Any]:
    """What the page's script reads; UserError, naming model or example, for what cannot be shown."""
    if not report.runs:
        raise UserError(f"the report {report.title!r} has no model; give it at least one ModelRun")
    names = [run.name for run in report.runs]
    _check_unique(names, "models", report.title)
    keys = [column.key for column in report.columns]
    keys += [key for breakdown in report.breakdowns for key, _, _ in breakdown.rows]
    _check_unique(keys, "score columns", report.title)
    return {
        "columns": [
            {"key": column.key, "label": column.label, "explanation": column.explanation, "percent": column.percent}
            for column in report.columns
        ],
        "breakdowns": [
            {
                "title": breakdown.title,
                "rows": [{"key": key, "label": label, "count": count} for key, label, count in breakdown.rows],
            }
            for breakdown in report.breakdowns
        ],
        "runs": [_plain_run(run, keys) for run in report.runs],
        "examples": [_plain_example(example, names) for example in report.examples],
        "footnotes": list(report.footnotes),
        "scoreName": report.score_name,
        "noun": report.noun,
        "verdicts": list(report.verdicts),
    }


def _check_unique(names: Sequence[str], what: str, title: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the report {title!r} has two {what} called {name!r}; give each a name of its own")


def _plain_run(run: ModelRun, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "name": run.name,
        "description": run.description,
        "parameters": run.parameters,
        "seconds": _finite(run.seconds),
        "scores": {key: _finite(run.scores.get(key)) for key in keys},
        "intervals": {
            key: [_finite(low), _finite(high)]
            for key, (low, high) in run.intervals.items()
            if math.isfinite(low) and math.isfinite(high)
        },
        "curves": {name: _plain_curve(points, name, run.name) for name, points in run.curves.items()},
        "configuration": _plain(run.configuration),
    }


def _plain_curve(points: Sequence[tuple[float, float]], name: str, run: str) -> list[list[float | None]]:
    if not all(math.isfinite(step) for step, _ in points):
        raise UserError(f"curve {name!r} of model {run!r} has a step that is not finite; number its steps")
    return [[float(step), _finite(value)] for step, value in sorted(points, key=lambda point: point[0])]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _plain(value: Any) -> Any:
    """A configuration value as JSON knows it; what JSON lacks (paths, classes, infinity) becomes its text."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bool() | int() | str() | None:
            return value
        case float() if math.isfinite(value):
            return float(value)
        case _:
            return str(value)


def _plain_example(example: ExampleCard, names: Sequence[str]) -> dict[str, Any]:
    where = f"example {example.identity!r}"
    unknown = [name for name in example.captions if name not in names]
    if unknown:
        raise UserError(f"{where} has a caption by {unknown[0]!r}, which is no model of the report; add its ModelRun")
    boxes = _checked_boxes(example.boxes, where)
    return {
        "identity": example.identity,
        "kind": example.kind,
        "picture": None if example.picture is None else _plain_picture(example.picture, example.media_type, where),
        "boxes": np.round(boxes, 4).tolist(),
        "box": _plain_box(example.box, where),
        "facts": [list(fact) for fact in example.facts],
        "references": list(example.references),
        "captions": {
            name: _plain_caption(example.captions[name], len(boxes), f"{where}, model {name!r}")
            for name in names
            if name in example.captions
        },
    }


def _plain_picture(picture: bytes, media_type: str, where: str) -> str:
    if not picture or media_type not in _MEDIA_TYPES:
        raise UserError(
            f"{where} has no picture that a browser shows ({media_type}, {len(picture)} bytes); "
            f"give the bytes of a file and one of {', '.join(_MEDIA_TYPES)}"
        )
    return f"data:{media_type};base64,{base64.b64encode(picture).decode()}"


def _plain_box(box: Sequence[float] | None, where: str) -> list[float] | None:
    return None if box is None else np.round(_checked_boxes([box], where)[0], 4).tolist()


def _checked_boxes(boxes: Sequence[Sequence[float]], where: str) -> np.ndarray:
    """The boxes as (N, 4) floats clipped to 0..1."""
    try:
        array = np.asarray(boxes, dtype=np.float64).reshape(len(boxes), 4)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} has boxes that are not rows of four numbers; give x1 y1 x2 y2 for each") from error
    inside = (array >= -_BOX_TOLERANCE) & (array <= 1 + _BOX_TOLERANCE)  # False for NaN
    ordered = array[:, :2] <= array[:, 2:]
    if not (inside.all() and ordered.all()):
        raise UserError(f"{where} has a box outside 0..1 or with x1 > x2 or y1 > y2; divide by the picture's size")
    return array.clip(0, 1)


def _plain_caption(caption: CaptionView, regions: int, where: str) -> dict[str, Any]:
    attention = heads = None
    own = None if caption.boxes is None else _checked_boxes(caption.boxes, where)
    regions = regions if own is None else len(own)
    if caption.attention is not None:
        weights = np.asarray(caption.attention, dtype=np.float64)
        expected = (len(caption.words), regions)
        if weights.ndim not in (2, 3) or (weights.shape[0], weights.shape[-1]) != expected or 0 in weights.shape[1:-1]:
            raise UserError(
                f"{where}: attention has the shape {weights.shape}, but {expected[0]} words over {regions} regions "
                f"need {expected}, or the heads between them; give one row per word and one column per box"
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise UserError(f"{where}: attention has a negative or not finite weight; give weights of 0 or more")
        heads = pack_heads(weights) if weights.ndim == 3 and weights.shape[1] > 1 else None
        attention = np.round(weights if weights.ndim == 2 else weights.mean(axis=1), 4).tolist()
    return {
        "words": list(caption.words),
        "attention": attention,
        "heads": heads,
        "verdict": caption.verdict,
        "note": caption.note,
        "score": _finite(caption.score),
        "boxes": None if own is None else np.round(own, 4).tolist(),
        "box": _plain_box(caption.box, where),
    }
