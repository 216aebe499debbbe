"""`legenda evaluate`: what a model says of a split, and its scores; or captions for COCO's server."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.datasets.captions import CaptionDataset
    from legenda.evaluation.runs import CaptionerRun


@dataclass(frozen=True)
class Options:
    """Captions a split of the run's data, scores it, and writes both to evaluation_SPLIT.json in the run folder.

    A run of another task answers, locates or translates instead and takes --split and --beam-size alone. Where the data
    withhold the captions or answers of a split, its predictions are written and nothing is scored.

    Several captioners caption together, by the mean of their probabilities for each word; the data are those of the
    first, whose folder gets evaluation_SPLIT_ensemble.json.

    With --submission-dir it writes instead the two files of COCO's captioning server,
    captions_val2014_NAME_results.json and captions_test2014_NAME_results.json. The run's annotations and features must
    then hold all of val2014, and --test-features all of test2014.
    """

    run: tyro.conf.Positional[Path]
    """A run folder."""
    others: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Further run folders with the same vocabulary and features."""
    split: str = "val"
    """Which examples: train, val, test, or what else the data have, such as testA of RefCOCO."""
    annotations: Path | None = None
    """Other annotations than the run's, in Karpathy's layout; an imported model has none of its own."""
    features: Path | None = None
    """The features of their images."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""
    metrics: Literal["fast", "auto"] = "fast"
    """fast: those that need no Java; auto: METEOR and SPICE too, where their programs are there."""
    submission_dir: Path | None = None
    """The folder for the files of COCO's server."""
    test_features: Path | None = None
    """The features of test2014, by the run's extractor; for --submission-dir."""
    algorithm: str | None = None
    """The NAME in the names of the server's files; the run folder's where it is not given."""


def run(arguments: Sequence[str]) -> None:
    """Prints the scores, or the files for the server, and writes the files."""
    options = parse(Options, arguments, "evaluate")
    if options.submission_dir is None and (options.test_features or options.algorithm):
        raise UserError("--test-features and --algorithm are for --submission-dir; name its folder too")
    from legenda.cli.progress import progress_bar
    from legenda.evaluation.data import resolve_data
    from legenda.evaluation.generate import generate
    from legenda.evaluation.results_file import caption_settings, evaluation_path, format_scores, write_evaluation
    from legenda.evaluation.runs import CaptionerRun, describe_data, load_captioner_run, load_run
    from legenda.evaluation.tasks import evaluate_task, reject_captioner_options

    opened = load_run(options.run)
    if not isinstance(opened, CaptionerRun):
        reject_captioner_options(opened, options, ("others", "annotations", "features", "metrics", "submission_dir"))
        evaluate_task(opened, options.split, options.beam_size, progress_bar=progress_bar)
        return
    members = [load_captioner_run(folder) for folder in options.others]
    if options.submission_dir is not None:
        _submit(options, opened, members, options.submission_dir)
        return
    data = resolve_data(opened, options.annotations, options.features)
    split = data.split(options.split)
    captions = generate(opened, split, options.beam_size, members, progress_bar=progress_bar)
    other = None if options.annotations is None else describe_data(data)
    settings = {
        "images": len(split),
        **caption_settings(opened.config, options.split, options.beam_size, options.metrics, other),
    }
    if members:
        settings["runs"] = [str(folder) for folder in (options.run, *options.others)]
    path = evaluation_path(options.run, options.split, ensemble=bool(members))
    scores = write_evaluation(path, settings, "captions", captions, lambda: _score(captions, split, options.metrics))
    print(format_scores(scores, options.split, split.missing_targets))
    print(f"{len(split)} images of {options.split}, beam {options.beam_size}; captions in {path}")


def _score(
    captions: dict[str, str], split: "CaptionDataset", metrics: Literal["fast", "auto"]
) -> dict[str, float | None]:
    from legenda.metrics import evaluate
    from legenda.tasks.predict import score_captions

    if split.missing_targets is not None:
        return {}
    scores = score_captions(captions, split)
    if metrics == "auto":
        references = dict(zip(split.ids, split.references, strict=True))
        with warnings.catch_warnings(action="ignore"):  # they are the notices
            found = evaluate(captions, references, metrics="auto")
        scores |= found.corpus
        for notice in found.notices:
            print(notice, file=sys.stderr)
    return scores


def _submit(options: Options, opened: "CaptionerRun", members: Sequence["CaptionerRun"], folder: Path) -> None:
    from legenda.cli.progress import progress_bar
    from legenda.evaluation.data import check_extractor
    from legenda.evaluation.generate import generate
    from legenda.evaluation.submission import coco_splits, write_submission

    sets = coco_splits(opened, options.test_features)
    for images in sets.values():
        check_extractor(opened, images)
    captions = {
        part: generate(opened, images, options.beam_size, members, progress_bar=progress_bar)
        for part, images in sets.items()
    }
    paths = write_submission(folder, options.algorithm or opened.folder.resolve().name, captions)
    for path, told in zip(paths, captions.values(), strict=True):
        print(f"{path}: {len(told)} images")
