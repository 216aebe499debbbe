"""`legenda table`: the rows of a paper's table, trained and evaluated, beside the paper's numbers."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError, nearest
from legenda.io import read_json, write_json, write_text

if TYPE_CHECKING:
    from legenda.recipes.tables import PaperRow, PaperTable

_OF_ROWS = ("--model.", "--data.", "--training.", "--fine-tuning.")
"""Options that go to the training of each row, as `legenda train` has them."""
_SETTINGS = "table.json"
_WIDTH = 160
"""Columns of what is printed where no terminal says."""


@dataclass(frozen=True)
class Options:
    """Trains and evaluates the rows of a paper's table, and prints our scores beside the paper's.

    The table comes first: legenda table ngsan.table2 --data.annotations dataset_coco.json --data.features
    coco.safetensors. Every option of legenda train that begins with --model., --data., --training. or --fine-tuning.
    holds for all rows. Each row is a run of its own, OUT/ROW, or OUT/ROW/seed0 and so on with several seeds; called
    again, finished ones are used and others go on. Writes OUT/table.md and OUT/table.html, one page that opens offline.

    Without a table it lists them all. A row that fails takes no other with it: it is named at the end.
    """

    name: tyro.conf.Positional[str | None] = None
    """A table such as ngsan.table2."""
    out: Path | None = None
    """The folder of the runs and the table; runs/TABLE where it is not given."""
    rows: tuple[str, ...] = ()
    """Some of the rows, by the ends of their recipes' names; all where none is given."""
    seeds: int = 1
    """How often each row is trained."""
    processes: int | None = None
    """Rows trained at once; as many as there are CUDA devices where it is not given, and 1 where there are none."""
    split: Literal["val", "test"] = "test"
    """Which images are captioned and scored."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""
    scenes: bool = False
    """Small models on the embedded scenes in place of COCO: minutes a row, and nothing to download. What they reach is
    not comparable with the paper."""

    @property
    def metrics(self) -> str:
        """Which `legenda evaluate` computes: the papers', or for scenes those that need no Java."""
        return "fast" if self.scenes else "auto"


@dataclass(frozen=True)
class _Job:
    """One training of a row, and its evaluation."""

    row: "PaperRow"
    recipe: str
    folder: Path
    options: Options
    training: tuple[str, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """What stands before its lines."""
        seed = f"/{self.folder.name}" if self.options.seeds > 1 else ""
        return f"{self.row.key}{seed}"

    def scores(self) -> dict[str, float | None] | None:
        """Its scores, where it is trained and has been evaluated just as this table evaluates."""
        from legenda.evaluation.results_file import caption_settings, evaluation_path, read_scores
        from legenda.models.checkpoint import CONFIG, WEIGHTS

        path = evaluation_path(self.folder, self.options.split)
        if not self._trained() or not path.exists():
            return None
        if path.stat().st_mtime < (self.folder / WEIGHTS).stat().st_mtime:
            return None
        config = read_json(self.folder / CONFIG, "delete the folder to train the row again")
        return read_scores(
            path, caption_settings(config, self.options.split, self.options.beam_size, self.options.metrics)
        )

    def commands(self) -> list[list[str]]:
        """What is left to do."""
        folder, search = str(self.folder), ["--split", self.options.split, "--beam-size", str(self.options.beam_size)]
        train = ["train", self.recipe, "--out", folder, *self.training]
        evaluate = ["evaluate", folder, *search, "--metrics", self.options.metrics]
        return [evaluate] if self._trained() else [train, evaluate]

    def _trained(self) -> bool:
        from legenda.training import is_finished

        return is_finished(self.folder, self.recipe)


def run(arguments: Sequence[str]) -> None:
    """Trains what is not trained yet, and writes and prints the table."""
    own, of_rows = _parted(arguments)
    options = parse(Options, own, "table")
    if options.name is None:
        if arguments:
            raise UserError("the table comes first, as in legenda table ngsan.table2; legenda table lists them")
        _list_tables()
        return
    for name, value in (("seeds", options.seeds), ("processes", options.processes), ("beam-size", options.beam_size)):
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, not {value}")
    if options.seeds > 1 and any(part.startswith(("--training.seed", "--fine-tuning.seed")) for part in of_rows):
        raise UserError("--seeds gives every run its seed; leave out --training.seed and --fine-tuning.seed")
    from legenda.cli._parallel import run_parallel
    from legenda.recipes.tables import get_table

    table = get_table(options.name)
    out = options.out or Path("runs") / (f"scenes.{table.name}" if options.scenes else table.name)
    jobs = _jobs(table, options, out, of_rows)
    _claim(out, {"table": table.name, "scenes": options.scenes, "several seeds": options.seeds > 1, "options": of_rows})
    work = {job.name: job.commands() for job in jobs if job.scores() is None}
    failed = run_parallel(work, _places(options.processes)) if work else {}
    _show(table, options, out, jobs, failed)
    if failed:
        told = "; ".join(f"{name} ({said})" for name, said in failed.items())
        raise UserError(f"{len(failed)} of {len(jobs)} trainings failed: {told}; mend that and call again")


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of this command, and those of the rows' trainings."""
    own: list[str] = []
    of_rows: list[str] = []
    chosen = own
    for argument in arguments:
        if argument.startswith("--"):
            chosen = of_rows if argument.startswith(_OF_ROWS) else own
        chosen.append(argument)
    return own, of_rows


def _list_tables() -> None:
    from legenda.recipes.tables import all_tables

    tables = all_tables()
    width = max(map(len, tables))
    for name, table in tables.items():
        print(f"{name:<{width}}  {table.title} ({table.source})")
    print("\nlegenda table NAME trains the rows of one; with --scenes in small, on the embedded scenes.")


def _jobs(table: "PaperTable", options: Options, out: Path, of_rows: Sequence[str]) -> list[_Job]:
    """Every training there is to be, each checked before any begins."""
    rows = {row.key: row for row in table.rows if row.key is not None}
    for key in options.rows:
        if key not in rows:
            raise UserError(f"{table.name} has no row {key!r}; {nearest(key, rows)}")
    jobs = []
    for key, row in rows.items():
        if options.rows and key not in options.rows:
            continue
        recipe = f"scenes.{row.recipe}" if options.scenes else str(row.recipe)
        stages = _checked(recipe, key, of_rows)
        for seed in range(options.seeds):
            folder = out / key / f"seed{seed}" if options.seeds > 1 else out / key
            seeds = [part for stage in stages for part in (f"--{stage}.seed", str(seed))] if options.seeds > 1 else []
            jobs.append(_Job(row, recipe, folder, options, (*of_rows, *seeds)))
    return jobs


def _checked(name: str, key: str, of_rows: Sequence[str]) -> list[str]:
    """The stages of a row's recipe, after a look at its options and its data."""
    from legenda.cli._train_options import parse_train
    from legenda.recipes import get_recipe
    from legenda.recipes.overrides import stage_names

    try:
        recipe = parse_train(get_recipe(name), of_rows).recipe
    except UserError as error:
        raise UserError(f"row {key}: {error}") from error
    for value in vars(recipe.data).values():
        if isinstance(value, Path) and not value.exists():
            raise UserError(
                f"{value} does not exist; name the data with --data.annotations and --data.features, or try the table "
                "on the embedded scenes with --scenes"
            )
    return [name.replace("_", "-") for name in stage_names(recipe)]


def _claim(out: Path, settings: Mapping[str, object]) -> None:
    """Makes the folder this table's own, or checks that it is."""
    path = out / _SETTINGS
    if path.exists():
        if read_json(path, "delete the folder to start again") != settings:
            raise UserError(f"{out} holds a table with other settings; name another folder with --out")
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty and holds no table; name another folder with --out")
    else:
        write_json(path, settings)


def _places(processes: int | None) -> list[dict[str, str]]:
    """What each process at a time may use: a CUDA device of its own, or its share of the cores."""
    import torch

    count = torch.cuda.device_count()
    if count > 1:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = named.split(",") if named else [str(device) for device in range(count)]
        return [{"CUDA_VISIBLE_DEVICES": devices[place % count]} for place in range(processes or count)]
    if "OMP_NUM_THREADS" in os.environ:
        return [{}] * (processes or 1)
    return [{"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // (processes or 1)))}] * (processes or 1)


def _show(table: "PaperTable", options: Options, out: Path, jobs: Sequence[_Job], failed: Mapping[str, str]) -> None:
    """Writes the page and the Markdown, and prints the table."""
    from rich.console import Console

    from legenda.visualization.paper_table import score_table, terminal_table
    from legenda.visualization.score_table import markdown, write_score_page

    found: dict[str, list[dict[str, float | None]]] = {}
    notes: dict[str, str] = {}
    for job in jobs:
        scores = job.scores()
        if scores is not None:
            found.setdefault(str(job.row.key), []).append(scores)
        elif job.name in failed:
            notes[str(job.row.key)] = f"training failed: {failed[job.name]}"
    made = score_table(table, found, notes, options.split, options.beam_size, scenes=options.scenes)
    write_text(out / "table.md", markdown(made))
    write_score_page(made, out / "table.html")
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(terminal_table(made))
    for text in (made.lead, *made.notes):
        console.print(text, highlight=False, markup=False)
    print(f"{out / 'table.html'}: the table as a page; {out / 'table.md'}: as Markdown")
