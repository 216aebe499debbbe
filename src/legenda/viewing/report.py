"""One HTML file that shows what models learnt: scores, training curves, captions and where each word looked.

The file needs no network and no server: styles, scripts, pictures and data are inside it, and its
Content-Security-Policy lets nothing else in.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from legenda.errors import UserError
from legenda.files import write_text

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "report.css")
_SCRIPTS = ("dom.js", "attention-viewer.js", "curve-chart.js", "report.js")
_MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_BOX_TOLERANCE = 1e-3  # boxes from pixel arithmetic may miss the edge by a rounding


@dataclass(frozen=True)
class ScoreColumn:
    """One column of the score table; higher values are better.

    `key` picks the value from `ModelRun.scores`; `percent` shows 0..1 as 0..100 %.
    """

    key: str
    label: str
    explanation: str
    percent: bool = False


@dataclass(frozen=True)
class ModelRun:
    """One trained model: its number of parameters, its seconds of training and what came out.

    `scores` maps column keys to values, `curves` maps names such as "training loss" to (step, value) pairs. A value
    that is None or not finite is shown as a dash in the table and as a gap in a curve.
    """

    name: str
    description: str
    parameters: int
    seconds: float
    scores: Mapping[str, float | None]
    curves: Mapping[str, Sequence[tuple[float, float]]]
    configuration: Mapping[str, Any]


@dataclass(frozen=True)
class CaptionView:
    """One model's caption of one picture.

    `attention` (T, N) holds, for each of the T words, its non-negative weights over the N regions of the picture; None
    shows the words alone. `verdict` says whether the caption is true, None when nobody can tell.
    """

    words: Sequence[str]
    attention: np.ndarray | None
    verdict: bool | None
    note: str = ""
    score: float | None = None


@dataclass(frozen=True)
class Example:
    """One picture with its regions and its captions, one per model name.

    `picture` is the encoded file, `boxes` (N, 4) are x1 y1 x2 y2 in 0..1 of the picture, `kind` is what the page
    filters by.
    """

    identity: str
    kind: str
    picture: bytes
    media_type: str
    boxes: Sequence[Sequence[float]]
    references: Sequence[str]
    captions: Mapping[str, CaptionView]


@dataclass(frozen=True)
class Report:
    """All that the page shows; `lead` says in a sentence or two what the reader is looking at."""

    title: str
    lead: str
    columns: Sequence[ScoreColumn]
    runs: Sequence[ModelRun]
    examples: Sequence[Example]
    footnotes: Sequence[str]


def write_report(report: Report, path: str | Path) -> Path:
    """Writes the report as one self-contained HTML file and gives its path.

    Raises UserError when models or columns share a name, an example names an unknown model, holds no showable picture,
    or its boxes or attention weights are wrong in shape or value, and when the file cannot be written.
    """
    path = Path(path)
    write_text(path, _page(report))
    return path


def _page(report: Report) -> str:
    styles = [_asset(name) for name in _STYLES]
    scripts = [_asset(name) for name in _SCRIPTS]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hashes(styles)}",
            f"script-src {_hashes(scripts)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return Template(_asset("report.html")).substitute(
        policy=policy,
        title=_markup(report.title),
        lead=_markup(report.lead),
        styles="\n".join(f"<style>{text}</style>" for text in styles),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
        data=_json_in_script(_plain_report(report)),
    )


def _asset(name: str) -> str:
    return resources.files("legenda.viewing").joinpath("assets", name).read_text(encoding="utf-8")


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _markup(text: str) -> str:
    # names of files may hold lone surrogates, which UTF-8 cannot write
    return html.escape(text.encode("utf-8", "replace").decode())


def _json_in_script(value: Any) -> str:
    """JSON in which no string can close or open an element: <, > and & only occur as escapes."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain_report(report: Report) -> dict[str, Any]:
    if not report.runs:
        raise UserError(f"the report {report.title!r} has no model; give it at least one ModelRun")
    names = [run.name for run in report.runs]
    _check_unique(names, "models", report.title)
    _check_unique([column.key for column in report.columns], "score columns", report.title)
    return {
        "columns": [
            {"key": column.key, "label": column.label, "explanation": column.explanation, "percent": column.percent}
            for column in report.columns
        ],
        "runs": [_plain_run(run, report.columns) for run in report.runs],
        "examples": [_plain_example(example, names) for example in report.examples],
        "footnotes": list(report.footnotes),
    }


def _check_unique(names: Sequence[str], what: str, title: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the report {title!r} has two {what} called {name!r}; give each a name of its own")


def _plain_run(run: ModelRun, columns: Sequence[ScoreColumn]) -> dict[str, Any]:
    return {
        "name": run.name,
        "description": run.description,
        "parameters": run.parameters,
        "seconds": _finite(run.seconds),
        "scores": {column.key: _finite(run.scores.get(column.key)) for column in columns},
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


def _plain_example(example: Example, names: Sequence[str]) -> dict[str, Any]:
    where = f"example {example.identity!r}"
    if not example.picture or example.media_type not in _MEDIA_TYPES:
        raise UserError(
            f"{where} has no picture that a browser shows ({example.media_type}, {len(example.picture)} bytes); "
            f"give the bytes of a file and one of {', '.join(_MEDIA_TYPES)}"
        )
    unknown = [name for name in example.captions if name not in names]
    if unknown:
        raise UserError(f"{where} has a caption by {unknown[0]!r}, which is no model of the report; add its ModelRun")
    boxes = _checked_boxes(example.boxes, where)
    return {
        "identity": example.identity,
        "kind": example.kind,
        "picture": f"data:{example.media_type};base64,{base64.b64encode(example.picture).decode()}",
        "boxes": np.round(boxes, 4).tolist(),
        "references": list(example.references),
        "captions": {
            name: _plain_caption(example.captions[name], len(boxes), f"{where}, model {name!r}")
            for name in names
            if name in example.captions
        },
    }


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
    attention = None
    if caption.attention is not None:
        weights = np.asarray(caption.attention, dtype=np.float64)
        expected = (len(caption.words), regions)
        if weights.shape != expected:
            raise UserError(
                f"{where}: attention has the shape {weights.shape}, but {expected[0]} words over {regions} regions "
                f"need {expected}; give one row per word and one column per box"
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise UserError(f"{where}: attention has a negative or not finite weight; give weights of 0 or more")
        attention = np.round(weights, 4).tolist()
    return {
        "words": list(caption.words),
        "attention": attention,
        "verdict": caption.verdict,
        "note": caption.note,
        "score": _finite(caption.score),
    }
