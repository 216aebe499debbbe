"""`legenda compare`: the predictions of two runs or files, with paired differences, and where they disagree."""

from typing import Annotated, ClassVar

from legenda.cli.options import Arguments, Flat, JsonFile
from legenda.config import Config
from legenda.errors import ConfigError
from legenda.evaluation.comparison import CompareOptions


class CompareCommand(Config):
    """Compare the predictions of two runs, as legenda evaluate wrote them, or two files of captions.

    Prints the scores of both with 95 % intervals (bootstrap over examples), the difference of each score with its
    interval (paired bootstrap) and p (approximate randomization), and the examples with the largest differences. For
    tasks other than captioning, scores that are means over examples are compared. For two folders of legenda train
    --seeds, it prints means and standard deviations over seeds, the paired differences with Student's interval, and p
    of a permutation test.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine runs/other",
        "captions.json others.json --references references.json",
    )
    usual: ClassVar[tuple[str, ...]] = ("references", "split", "metrics", "num_examples", "resamples", "out")

    compare: Annotated[CompareOptions, Flat, Arguments]
    out: JsonFile | None = None
    """A JSON file for all results, with the scores of each image."""


def run(options: CompareCommand) -> None:
    """Print the tables and write the JSON file."""
    from legenda.cli.score import print_report
    from legenda.evaluation.comparison import compare_predictions, compare_seeds
    from legenda.run_folder import find_seeds
    from legenda.terminal import progress_bar

    compared, first, second = options.compare, options.compare.first, options.compare.second
    seeds = [bool(find_seeds(path)) for path in (first, second)]
    if any(seeds):
        if not all(seeds):
            folder = first if seeds[0] else second
            raise ConfigError(f"only {folder} holds several seeds; name one of its runs, such as {folder / 'seed0'}")
        for name in ("references", "metrics", "num_examples", "resamples", "seed"):
            if getattr(compared, name) != type(compared).model_fields[name].default:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is for single runs and files; leave it out for folders of seeds")
        print_report(compare_seeds(first, second, split=compared.split), options.out)
        return
    with progress_bar(f"comparing {first} with {second}"):
        report = compare_predictions(compared)
    print_report(report, options.out)
