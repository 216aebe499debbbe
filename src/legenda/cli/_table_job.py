"""A training and its evaluation, as commands for a process of `legenda table`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.evaluation.results import RowRun
from legenda.plugins import plugin_options


@dataclass(frozen=True)
class TableJob:
    """The run of a row, or the ensemble of several, and the options of `legenda train`.

    is_evaluated: whether the run has scores of its own; members of ensembles need none. test_features: of test2014,
    for COCO's server.
    """

    run: RowRun
    options: tuple[str, ...]
    is_evaluated: bool = True
    test_features: Path | None = None

    def commands(self) -> list[list[str]]:
        """Return the commands that remain."""
        train = ["train", self.run.recipe, "--out", str(self.run.folders[0]), *self.options]
        server = () if self.test_features is None else ("--test-features", str(self.test_features))
        return remaining_commands(self.run, train, server, is_evaluated=self.is_evaluated)


def remaining_commands(
    run: RowRun, train: Sequence[str], server: Sequence[str] = (), *, is_evaluated: bool = True
) -> list[list[str]]:
    """Return the command `train` unless the training is finished, and the evaluation of each split without scores.

    server: options of evaluations that write files for a server.
    """
    rest = ["--beam-size", str(run.beam_size)]
    if run.stage is not None:
        rest += ["--stage", str(run.stage)]
    if run.submission is not None:
        rest += ["--submission-dir", str(run.submission), "--algorithm", run.key, *server]
    elif run.task == "captioning":
        rest += ["--metrics", run.metrics]
    rest += plugin_options()
    evaluate = [["evaluate", *map(str, run.folders), "--split", split, *rest] for split in run.splits]
    needs_evaluation = is_evaluated and not run.is_evaluated()
    return [*([] if run.is_trained() else [[*train, *plugin_options()]]), *(evaluate if needs_evaluation else [])]
