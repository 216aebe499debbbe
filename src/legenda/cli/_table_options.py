"""Options of `legenda table`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import tyro

from legenda.cli.options import parse
from legenda.config import Bounded, Count, PositiveInt
from legenda.errors import ConfigError

ROW_OPTIONS = ("--model.", "--data.", "--training.", "--fine-tuning.")
"""Prefixes of options of `legenda train`, which apply to every row."""


@dataclass(frozen=True)
class TableOptions(Bounded):
    """Train and evaluate the rows of a paper's table, and print their scores with the paper's.

    The table comes first: legenda table ngsan.table2 --data.annotations dataset_coco.json --data.features
    coco.safetensors. Every option of legenda train that starts with --model., --data., --training. or --fine-tuning.
    applies to all rows. The runs of a row are OUT/RECIPE/seed0 and so on; called again, or for another table with a row
    of the same configuration, finished runs are used and others are resumed. Rows that are ensembles train their
    members. Writes OUT/TABLE.md and OUT/TABLE.html, one page that opens offline.

    Without a table it lists all tables. A row that fails does not affect the others and is named at the end.
    """

    section: ClassVar[str] = "--"

    name: tyro.conf.Positional[str | None] = None
    """A table such as ngsan.table2."""
    out: Path | None = None
    """The folder of the runs and the tables; by default runs/tables, with --scenes runs/scenes.tables."""
    rows: tuple[str, ...] = ()
    """Rows, by the ends of their recipes' names; by default all."""
    seeds: Count = 1
    """Runs of each row."""
    processes: PositiveInt | None = None
    """Rows trained at once; by default the number of CUDA devices, or 1 without any."""
    split: Literal["val", "test"] = "test"
    """The split that is captioned and scored."""
    beam_size: Count = 3
    """Number of beams."""
    scenes: bool = False
    """Train small models on the embedded scenes instead of COCO: minutes for each row, and no downloads. The scores are
    not comparable with the paper's."""
    test_features: Path | None = None
    """The features of test2014, for tables that COCO's server scores; its files are written to OUT/TABLE/ROW."""
    estimate: Literal["first", "only", "none"] = "first"
    """Print the hours of the trainings that remain, measured in a few steps of each: before them, or without them."""

    @property
    def search(self) -> tuple[int, str]:
        """The --beam-size and --metrics of `legenda evaluate`; scenes have those without Java."""
        return self.beam_size, "fast" if self.scenes else "auto"


def parse_table(arguments: Sequence[str]) -> tuple[TableOptions, list[str]]:
    """Return the options of the command, and the options of `legenda train` for every row."""
    for_table: list[str] = []
    for_rows: list[str] = []
    target = for_table
    for argument in arguments:
        if argument.startswith("--"):
            target = for_rows if argument.startswith(ROW_OPTIONS) else for_table
        target.append(argument)
    options = parse(TableOptions, for_table, "table")
    if options.name is None and arguments:
        raise ConfigError("the table comes first, as in legenda table ngsan.table2; legenda table lists them")
    if options.seeds > 1 and any(part.startswith(("--training.seed", "--fine-tuning.seed")) for part in for_rows):
        raise ConfigError("--seeds sets the seed of every run; leave out --training.seed and --fine-tuning.seed")
    return options, for_rows
