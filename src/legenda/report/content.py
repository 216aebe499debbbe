"""What a report holds, as plain data: runs with scores and curves, examples with the predictions of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legenda.metrics import Difference
    from legenda.tasks.reporting import Prediction


@dataclass(frozen=True)
class ScoreColumn:
    """One column of the score table; higher values are better.

    `key` selects the value from `ModelRun.scores`; `percent` shows 0..1 as 0..100 %.
    """

    key: str
    label: str
    explanation: str
    percent: bool = False


@dataclass(frozen=True)
class Breakdown:
    """A table of one score by groups of examples: a row for each group, a column for each model.

    `title` names the grouping, such as "type of question"; `rows` are (key, label, number of examples), where the key
    selects the value, 0..1, from `ModelRun.scores`.
    """

    title: str
    rows: Sequence[tuple[str, str, int]]


@dataclass(frozen=True)
class ModelRun:
    """One trained model: its number of parameters, its training time (None when unknown), scores and curves.

    `scores` maps keys of columns and breakdowns to values, `intervals` some of them to (low, high), `curves` maps names
    such as "training loss" to (step, value) pairs. A value that is None or not finite is shown as a dash in the table
    and as a gap in a curve. `differences` are those of the scores from the first run's.
    """

    name: str
    description: str
    parameters: int
    seconds: float | None
    scores: Mapping[str, float | None]
    curves: Mapping[str, Sequence[tuple[float, float]]]
    configuration: Mapping[str, Any]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)


@dataclass(frozen=True)
class ExampleCard:
    """One example with its image, its regions, and the caption, or another prediction, of each model by name.

    `image` is the encoded file, None for an example without one; `boxes` (N, 4) are x1 y1 x2 y2 in 0..1 of the image,
    `kind` is the group that the page filters by. `facts` are (label, text) pairs above the captions, such as a
    question; `box` is the reference box.
    """

    id: str
    kind: str
    image: bytes | None
    media_type: str
    boxes: Sequence[Sequence[float]]
    references: Sequence[str]
    captions: Mapping[str, Prediction]
    facts: Sequence[tuple[str, str]] = ()
    box: Sequence[float] | None = None


@dataclass(frozen=True)
class Report:
    """The content of the page.

    `lead` introduces the page in a sentence or two, `score_name` names the scores of captions, `noun` the examples in
    the plural, `verdicts` the two verdicts.
    """

    title: str
    lead: str
    columns: Sequence[ScoreColumn]
    runs: Sequence[ModelRun]
    examples: Sequence[ExampleCard]
    footnotes: Sequence[str]
    score_name: str = "score"
    noun: str = "images"
    verdicts: tuple[str, str] = ("true", "false")
    breakdowns: Sequence[Breakdown] = ()
