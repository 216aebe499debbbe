"""What a report holds, as plain data: runs with scores and curves, examples with what each model said of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


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
class Breakdown:
    """A second table, of one score by part: a row for each part of the examples, a column for each model.

    `title` heads the parts, such as "type of question"; `rows` are (key, label, number of examples), where the key
    picks the value, 0..1, from `ModelRun.scores`.
    """

    title: str
    rows: Sequence[tuple[str, str, int]]


@dataclass(frozen=True)
class ModelRun:
    """One trained model: its number of parameters, its seconds of training (None when unknown) and what came out.

    `scores` maps keys of columns and breakdowns to values, `intervals` some of them to the (low, high) that hold the
    score, `curves` maps names such as "training loss" to (step, value) pairs. A value that is None or not finite is
    shown as a dash in the table and as a gap in a curve.
    """

    name: str
    description: str
    parameters: int
    seconds: float | None
    scores: Mapping[str, float | None]
    curves: Mapping[str, Sequence[tuple[float, float]]]
    configuration: Mapping[str, Any]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaptionView:
    """One model's caption of one picture, or what else it said of an example.

    `attention` (T, N) holds, for each of the T words, its non-negative weights over the N regions of the picture, or
    (T, H, N) those of H heads, of which the page shows the mean or one; None shows the words alone. `verdict` says
    whether the caption is true, None when nobody can tell. `boxes` (N, 4) are the regions that this model read where
    they are not those of the example. `box` is the place in the picture that it means, of a model that finds places
    and says no words.
    """

    words: Sequence[str]
    attention: np.ndarray | None
    verdict: bool | None
    note: str = ""
    score: float | None = None
    boxes: Sequence[Sequence[float]] | None = None
    box: Sequence[float] | None = None


@dataclass(frozen=True)
class ExampleCard:
    """One picture with its regions and its captions, one per model name.

    `picture` is the encoded file, None of an example without one; `boxes` (N, 4) are x1 y1 x2 y2 in 0..1 of the
    picture, `kind` is what the page filters by. `facts` are (label, text) pairs that stand above all, such as a
    question; `box` is the place that is to be found.
    """

    identity: str
    kind: str
    picture: bytes | None
    media_type: str
    boxes: Sequence[Sequence[float]]
    references: Sequence[str]
    captions: Mapping[str, CaptionView]
    facts: Sequence[tuple[str, str]] = ()
    box: Sequence[float] | None = None


@dataclass(frozen=True)
class Report:
    """All that the page shows.

    `lead` says in a sentence or two what the reader is looking at, `score_name` what the scores of captions are,
    `noun` what the examples are called, `verdicts` what a verdict of either kind is.
    """

    title: str
    lead: str
    columns: Sequence[ScoreColumn]
    runs: Sequence[ModelRun]
    examples: Sequence[ExampleCard]
    footnotes: Sequence[str]
    score_name: str = "score"
    noun: str = "pictures"
    verdicts: tuple[str, str] = ("true", "false")
    breakdowns: Sequence[Breakdown] = ()
