"""The JSON form of a report, validated."""

import base64
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from legenda.errors import DataError
from legenda.visualization.report.content import CaptionView, ExampleCard, ModelRun, Report
from legenda.visualization.report.encode_attention import encode_attention

_BOX_TOLERANCE = 1e-3  # boxes from pixel arithmetic may miss the edge by a rounding


def report_to_json(report: Report) -> dict[str, Any]:
    """Return the data that the page's script reads; raise DataError for invalid boxes or attention weights."""
    keys = [column.key for column in report.columns]
    keys += [key for breakdown in report.breakdowns for key, _, _ in breakdown.rows]
    names = [run.name for run in report.runs]
    return {
        "columns": [asdict(column) for column in report.columns],
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


def _run_json(run: ModelRun, keys: Sequence[str]) -> dict[str, Any]:
    return {
        **vars(run),
        "seconds": _finite(run.seconds),
        "scores": {key: _finite(run.scores.get(key)) for key in keys},
        "intervals": {
            key: [float(low), float(high)]
            for key, (low, high) in run.intervals.items()
            if math.isfinite(low) and math.isfinite(high)
        },
        "curves": {
            name: [[float(step), _finite(value)] for step, value in sorted(points, key=lambda point: point[0])]
            for name, points in run.curves.items()
        },
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _example_json(example: ExampleCard, names: Sequence[str]) -> dict[str, Any]:
    where = f"example {example.id!r}"
    boxes = _checked_boxes(example.boxes, where)
    image = example.image
    return {
        "id": example.id,
        "kind": example.kind,
        "image": image and f"data:{example.media_type};base64,{base64.b64encode(image).decode()}",
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


def _box_json(box: Sequence[float] | None, where: str) -> list[float] | None:
    return None if box is None else _checked_boxes([box], where)[0]


def _checked_boxes(boxes: Sequence[Sequence[float]], where: str) -> list[list[float]]:
    """Return the boxes clipped to 0..1, with four decimals."""
    array = np.asarray(boxes, dtype=np.float64).reshape(len(boxes), 4)
    inside = (array >= -_BOX_TOLERANCE) & (array <= 1 + _BOX_TOLERANCE)  # False for NaN
    ordered = array[:, :2] <= array[:, 2:]
    if not (inside.all() and ordered.all()):
        raise DataError(f"{where} has a box outside 0..1 or with x1 > x2 or y1 > y2; divide by the size of the image")
    return array.clip(0, 1).round(4).tolist()


def _caption_json(caption: CaptionView, regions: int, where: str) -> dict[str, Any]:
    attention = heads = None
    boxes = None if caption.boxes is None else _checked_boxes(caption.boxes, where)
    if caption.attention is not None:
        weights = np.asarray(caption.attention, dtype=np.float64)
        expected = (len(caption.words), regions if boxes is None else len(boxes))
        if weights.ndim not in (2, 3) or (weights.shape[0], weights.shape[-1]) != expected:
            raise DataError(
                f"{where}: attention has the shape {weights.shape}, but {expected[0]} words over {expected[1]} regions "
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
