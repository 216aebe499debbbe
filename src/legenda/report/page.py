"""The report as one HTML file: its content as plain data, and pages whose styles, scripts and data are inlined."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Self

import numpy as np
from pydantic import model_validator

from legenda.config import Config, NonNegativeInt
from legenda.errors import ConfigError, DataError
from legenda.io import write_text
from legenda.metrics import Difference, compare
from legenda.metrics.results import EvaluationResult, Prediction

_BOX_TOLERANCE = 1e-3  # boxes from pixel arithmetic may miss the edge by a rounding


class ReportOptions(Config):
    """The contents of a report on runs and a split, and the files that it is made of."""

    split: str = "val"
    """The split: train, val, test, or another of the data set, such as testA of RefCOCO."""
    out: Path | None = None
    """The HTML file to write; by default report.html or, where that exists, report-2.html and so on."""
    num_images: NonNegativeInt = 100
    """The number of examples on the page; of more, those with the best, the worst and the most different scores, and
    some in between."""
    images: Path | None = None
    """The folder of the photographs, if they are neither next to the annotations nor one folder below; with
    --annotations and without --features, the runs' extractors read them, as models of transformers (hf:MODEL) need."""
    annotations: Path | None = None
    """Annotations to use instead of the runs', in any supported layout; required for imported models."""
    features: Path | None = None
    """The features of the images in --annotations."""
    overlays: Path | None = None
    """A folder for the attention as PNG too: a sheet for each image and run, one tile for each word."""
    head: NonNegativeInt | None = None
    """The attention head that these sheets show, from 0; by default the mean of all. The page has all heads."""

    @model_validator(mode="after")
    def _check_report(self) -> Self:
        if self.head is not None and self.overlays is None:
            raise ConfigError("--head selects what --overlays FOLDER draws; name the folder too")
        return self


@dataclass(frozen=True)
class ScoreColumn:
    """One column of the score table, of which the best value is marked: the highest, unless `lower_is_better`.

    `key` selects the value from `ModelRun.scores`; `percent` shows 0..1 as 0..100 %.
    """

    key: str
    label: str
    explanation: str
    percent: bool = False
    lower_is_better: bool = False


@dataclass(frozen=True)
class ModelRun:
    """One trained model: its number of parameters and its training time, None when unknown, and its scores.

    `scores` maps keys of columns and breakdowns to values, None or not finite where there is none; `intervals` some of
    them to (low, high); `differences` are those of the scores from the first run's.
    """

    name: str
    description: str
    parameters: int | None
    seconds: float | None
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        description: str,
        results: Mapping[str, EvaluationResult],
        parameters: int | None = None,
        seconds: float | None = None,
    ) -> Self:
        """Return a model with its scores, and their differences from those of the first of all results, by name."""
        result, first = results[name], next(iter(results.values()))
        differences = {} if result is first else compare(result.comparable, first.comparable)
        scores = {key: metric.value for key, metric in result.columns.items()}
        intervals = {key: metric.interval for key, metric in result.columns.items() if metric.interval is not None}
        known = {metric: difference for metric, difference in differences.items() if difference is not None}
        return cls(name, description, parameters, seconds, scores, intervals, known)


@dataclass(frozen=True)
class ExampleCard:
    """One example with its image, its regions, and the caption, or another prediction, of each model by name.

    `image` is a data URL, None for an example without one; `boxes` (N, 4) are x1 y1 x2 y2 in 0..1 of the image,
    `kind` names its group. `facts` are (label, text) pairs above the captions, such as a question; `box` is the
    reference box.
    """

    id: str
    kind: str
    image: str | None
    boxes: Sequence[Sequence[float]]
    references: Sequence[str]
    captions: Mapping[str, Prediction]
    facts: Sequence[tuple[str, str]] = ()
    box: Sequence[float] | None = None


@dataclass(frozen=True)
class Report:
    """The content of the page.

    `lead` introduces the page in a sentence or two, `about` the scores, `score_name` names the scores of captions,
    `noun` the examples in the plural, `verdicts` the two verdicts. `breakdowns` are tables of one score by groups of
    examples: for each grouping, such as "type of question", rows of (key, label, number of examples), where the key
    selects the value, 0..1, from `ModelRun.scores`.
    """

    title: str
    lead: str
    columns: Sequence[ScoreColumn]
    runs: Sequence[ModelRun]
    examples: Sequence[ExampleCard]
    footnotes: Sequence[str]
    about: str = ""
    score_name: str = "score"
    noun: str = "images"
    verdicts: tuple[str, str] = ("true", "false")
    breakdowns: Mapping[str, Sequence[tuple[str, str, int]]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The keys of all scores that the page shows."""
        groups = [key for rows in self.breakdowns.values() for key, _, _ in rows]
        return [*(column.key for column in self.columns), *groups]


def write_report(report: Report, path: str | Path) -> Path:
    """Write the report as one self-contained HTML file and return its path.

    Raise DataError for boxes or attention weights of invalid shape or value, and when the file cannot be written.
    """
    path = Path(path)
    page = render_html(
        "report.html",
        styles=("theme.css", "page.css", "attention-viewer.css", "report.css"),
        scripts=("dom.js", "attention-viewer.js", "report.js"),
        data=_report_json(report),
        placeholders={"title": report.title, "lead": report.lead},
        sources={"img-src": "data:"},
    )
    write_text(path, page)
    return path


def render_html(
    body: str | Traversable,
    *,
    styles: Sequence[str | Traversable],
    scripts: Sequence[str | Traversable],
    data: object,
    placeholders: Mapping[str, str],
    sources: Mapping[str, str],
) -> str:
    """Return an HTML page made from the assets of this package.

    body: the asset with what <body> holds. placeholders: the values of those in it and of "title", which are escaped.
    styles, scripts: names of assets, or files of other packages, in order. data: the JSON data that the page's script
    reads. sources: further directives of the Content-Security-Policy, such as {"img-src": "data:"}; nothing else may
    be loaded.
    """
    style_sheets = [read_asset(name) for name in styles]
    # after "<!--" and "<script", a parser of HTML would not end the element at "</script>"
    script_sources = [read_asset(name).replace("<!--", r"\x3C!--") for name in scripts]
    policy = {
        "default-src": "'none'",
        "style-src": _hashes(style_sheets),
        "script-src": _hashes(script_sources),
        "base-uri": "'none'",
        "form-action": "'none'",
        **sources,
    }
    # file names may hold lone surrogates, which UTF-8 cannot encode
    escaped = {name: html.escape(text.encode("utf-8", "replace").decode()) for name, text in placeholders.items()}
    json_text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":  # so that the JSON cannot close the script element
        json_text = json_text.replace(character, f"\\u{ord(character):04x}")
    return Template(read_asset("page.html")).substitute(
        title=escaped["title"],
        body=Template(read_asset(body)).substitute(escaped),
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        styles="\n".join(f"<style>{text}</style>" for text in style_sheets),
        scripts="\n".join(f"<script>{text}</script>" for text in script_sources),
        data=json_text,
    )


def read_asset(name: str | Traversable) -> str:
    """Return the text of an asset of this package, or of a file of another one."""
    file = resources.files("legenda.report").joinpath("assets", name) if isinstance(name, str) else name
    return file.read_text(encoding="utf-8")


def _hashes(assets: Sequence[str]) -> str:
    digests = (hashlib.sha256(asset.encode()).digest() for asset in assets)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _report_json(report: Report) -> dict[str, object]:
    """Return the data that the page's script reads."""
    keys = report.keys
    return {
        "about": report.about,
        "columns": [vars(column) for column in report.columns],
        "breakdowns": [
            {"title": title, "rows": [dict(zip(("key", "label", "count"), row, strict=True)) for row in rows]}
            for title, rows in report.breakdowns.items()
        ],
        "runs": [
            {
                **vars(run),
                "seconds": _finite(run.seconds),
                "scores": {key: _finite(run.scores.get(key)) for key in keys},
                "intervals": {key: bounds for key, bounds in run.intervals.items() if all(map(math.isfinite, bounds))},
                "differences": {key: vars(value) for key, value in run.differences.items() if key in keys},
            }
            for run in report.runs
        ],
        "examples": [_example_json(example) for example in report.examples],
        "footnotes": report.footnotes,
        "scoreName": report.score_name,
        "noun": report.noun,
        "verdicts": report.verdicts,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _example_json(example: ExampleCard) -> dict[str, object]:
    where = f"example {example.id!r}"
    boxes = _boxes_json(example.boxes, where)
    return {
        "id": example.id,
        "kind": example.kind,
        "image": example.image,
        "boxes": boxes,
        "box": None if example.box is None else _boxes_json([example.box], where)[0],
        "facts": example.facts,
        "references": example.references,
        "captions": {
            name: _caption_json(caption, len(boxes), f"{where}, model {name!r}")
            for name, caption in example.captions.items()
        },
    }


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


def _caption_json(caption: Prediction, regions: int, where: str) -> dict[str, object]:
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
        heads = _encode_heads(weights) if weights.ndim == 3 and weights.shape[1] > 1 else None
        attention = np.round(weights if weights.ndim == 2 else weights.mean(axis=1), 4).tolist()
    return {
        **vars(caption),
        "attention": attention,
        "heads": heads,
        "score": _finite(caption.score),
        "boxes": boxes,
        "box": None if caption.box is None else _boxes_json([caption.box], where)[0],
    }


def _encode_heads(attention: np.ndarray) -> dict[str, object]:
    """Return non-negative weights `(T, H, N)` in a JSON form that assets/attention-viewer.js decodes.

    count: H. largest: the largest weight of each word and head, T lists of H. levels: every weight in units of 1/255
    of that largest one, a byte each in the order of the array, in base64. A decoded weight is off by at most half a
    unit, and by 0.00005 more because the largest weights have four decimals.
    """
    largest = attention.max(axis=-1, initial=0.0)
    ratios = np.divide(attention, largest[..., None], out=np.zeros_like(attention), where=largest[..., None] > 0)
    levels = np.round(ratios * 255).astype(np.uint8)
    return {
        "count": attention.shape[1],
        "largest": np.round(largest, 4).tolist(),
        "levels": base64.b64encode(levels.tobytes()).decode(),
    }


def encoded_size(attention: np.ndarray) -> int:
    """Return the approximate number of characters that the weights of all heads, `(T, H, N)`, take in the page."""
    return attention.size * 4 // 3 + 7 * (attention.size // max(1, attention.shape[-1]))
