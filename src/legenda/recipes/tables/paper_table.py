"""A table of a paper, with the recipe of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class PaperRow:
    """One row: its label in the paper, its recipe, and the paper's scores in percent.

    recipe: None for a system that is not implemented here. scores: one for each metric of the table, None for a blank.
    members: runs of the recipe, with different seeds, that form an ensemble.
    """

    label: str
    recipe: str | None
    scores: Scores
    members: int = 1

    @property
    def key(self) -> str | None:
        """The name of the row on the command line: the end of its recipe's name, and xN for an ensemble of N."""
        if self.recipe is None:
            return None
        return self.recipe.rpartition(".")[2] + (f"_x{self.members}" if self.members > 1 else "")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Scores as a paper reports them, most of them on Karpathy's test split of COCO.

    name: that on the command line. source: paper and number of the table. metrics: the columns, by the names of
    `legenda.metrics` ("CIDEr-D", which the papers also call CIDEr); "accuracy on testA" is that of another split, and
    columns that only a server computes have no scores here. note: a remark. stages: "first" where the rows end with
    cross-entropy. split: that of the scores, where the command line does not choose it.
    """

    name: str
    title: str
    source: str
    metrics: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""
    stages: Literal["all", "first"] = "all"
    split: str = ""

    @property
    def is_of_server(self) -> bool:
        """Whether only a server computes the scores: COCO's (c5, c40) or EvalAI's of VQA."""
        return all(metric.endswith((" c5", " c40")) or metric.startswith("test-") for metric in self.metrics)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.scores) != len(self.metrics):
                raise ValueError(f"{self.name}, {row.label}: {len(row.scores)} scores for {len(self.metrics)} metrics")
