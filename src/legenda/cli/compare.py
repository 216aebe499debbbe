"""`legenda compare`: the predictions of two runs or files, with paired differences, and where they disagree."""

from pathlib import Path
from typing import ClassVar, Literal

import tyro

from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.errors import ConfigError


class CompareOptions(Config):
    """Compare the predictions of two runs, as legenda evaluate wrote them, or two files of captions.

    Prints the scores of both with 95 % intervals (bootstrap over examples), the difference of each score with its
    interval (paired bootstrap) and p (approximate randomization), and the examples with the largest differences. Of
    tasks other than captioning, scores that are means over examples are compared. Of two folders of legenda train
    --seeds, prints means and standard deviations over seeds, the paired differences with Student's interval, and p of a
    permutation test.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine runs/other",
        "captions.json others.json --references references.json",
    )
    usual: ClassVar[tuple[str, ...]] = ("references", "split", "metrics", "num_examples", "resamples", "out")

    first: tyro.conf.Positional[Path]
    """A run folder with evaluation_SPLIT.json, such a file, or a file of captions as legenda score reads it."""
    second: tyro.conf.Positional[Path]
    """The predictions for the same examples to compare with."""
    references: Path | None = None
    """COCO's or Karpathy's annotations or {id: [captions]}; by default those of the runs' data."""
    split: str = "val"
    """The split whose evaluation_SPLIT.json is read from run folders."""
    metrics: Literal["fast", "auto"] = "fast"
    """Of captions, fast: metrics without Java; auto: METEOR and SPICE too, where their programs are installed."""
    num_examples: NonNegativeInt = 10
    """The number of examples to list, those with the largest differences."""
    resamples: PositiveInt = 1000
    """Number of draws of the bootstrap and of rounds of the randomization."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""
    out: Path | None = None
    """A JSON file for all results, with the scores of each image."""


def run(options: CompareOptions) -> None:
    """Print the tables and write the JSON file."""
    from legenda.cli.score import print_report
    from legenda.evaluation.comparison import compare_predictions, compare_seeds
    from legenda.run_folder import find_seeds
    from legenda.terminal import progress_bar

    seeds = [bool(find_seeds(path)) for path in (options.first, options.second)]
    if any(seeds):
        if not all(seeds):
            folder = options.first if seeds[0] else options.second
            raise ConfigError(f"only {folder} holds several seeds; name one of its runs, such as {folder / 'seed0'}")
        if options.references is not None:
            raise ConfigError("--references is for single runs and files; leave it out for folders of seeds")
        print_report(compare_seeds(options.first, options.second, split=options.split), options.out)
        return
    with progress_bar(f"comparing {options.first} with {options.second}"):
        report = compare_predictions(options)
    print_report(report, options.out)
