"""A table of a paper, with the recipe of each row."""

from __future__ import annotations

from dataclasses import dataclass

Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class PaperRow:
    """One row: its label in the paper, its recipe, and the paper's scores in percent.

    recipe: None for a system that is not implemented here. scores: one for each metric of the table, None for a blank.
    """

    label: str
    recipe: str | None
    scores: Scores

    @property
    def key(self) -> str | None:
        """The name of the row on the command line: the end of its recipe's name."""
        return None if self.recipe is None else self.recipe.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Scores on Karpathy's test split of COCO, as a paper reports them.

    name: that on the command line. source: paper and number of the table. metrics: the columns, by the
    names of `legenda.metrics` ("CIDEr-D", which the papers also call CIDEr). note: a remark.
    """

    name: str
    title: str
    source: str
    metrics: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.scores) != len(self.metrics):
                raise ValueError(f"{self.name}, {row.label}: {len(row.scores)} scores for {len(self.metrics)} metrics")
