"""`legenda evaluate`: captions and scores of a split, or captions for COCO's server."""

import dataclasses
import sys
import warnings
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from legenda.apps.options import parse
from legenda.errors import UserError
from legenda.files import write_json

if TYPE_CHECKING:
    from legenda.apps.runs import OpenRun
    from legenda.data.caption_sets import CaptionSet, DataSettings


@dataclass(frozen=True)
class Options:
    """Captions a split of the run's data, scores it, and writes both to evaluation_SPLIT.json in the run folder.

    Several runs caption together, by the mean of their probabilities for each word; the data are those of the first,
    whose folder gets evaluation_SPLIT_ensemble.json.

    With --submit it writes instead the two files of COCO's captioning server, captions_val2014_NAME_results.json and
    captions_test2014_NAME_results.json. The run's annotations and features must then hold all of val2014, and
    --test-features all of test2014.
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
    submit: Path | None = None
    """The folder for the files of COCO's server."""
    test_features: Path | None = None
    """The features of test2014, by the run's extractor; for --submit."""
    algorithm: str | None = None
    """The NAME in the names of the server's files; the run folder's where it is not given."""


def run(arguments: Sequence[str]) -> None:
    """Prints the scores, or the files for the server, and writes the files."""
    options = parse(Options, arguments, "evaluate")
    if options.submit is None and (options.test_features or options.algorithm):
        raise UserError("--test-features and --algorithm are for --submit; name its folder too")
    from legenda.apps.evaluate_task import evaluate_task
    from legenda.apps.runs import OpenRun, open_any, open_run

    opened = open_any(options.run)
    if not isinstance(opened, OpenRun):
        evaluate_task(opened, options.split, options.beam_size, _only_for_captions(options))
        return
    members = [open_run(folder) for folder in options.others]
    if options.submit is not None:
        _submit(options, opened, members, options.submit)
        return
    split = data_of(opened, options.annotations, options.features).split(options.split)
    captions = describe(opened, split, options.beam_size, members)
    scores = _score(captions, split, options.metrics)
    path = write_evaluation(options.run, options.split, options.beam_size, captions, scores, options.others)
    for name, value in scores.items():
        print(f"{name:<8} {'none' if value is None else f'{value:.4f}'}")
    print(f"{len(split)} images of {options.split}, beam {options.beam_size}; captions in {path}")


def _score(captions: dict[str, str], split: "CaptionSet", metrics: Literal["fast", "auto"]) -> dict[str, float | None]:
    from legenda.metrics import evaluate
    from legenda.training.validation import score_captions

    scores = score_captions(captions, split)
    if metrics == "auto":
        references = dict(zip(split.identities, split.references, strict=True))
        with warnings.catch_warnings(action="ignore"):  # they are the notices
            found = evaluate(captions, references, metrics="auto")
        scores |= found.corpus
        for notice in found.notices:
            print(notice, file=sys.stderr)
    return scores


def _only_for_captions(options: Options) -> str | None:
    """An option that was given and that only captioners have."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    given = (
        name
        for name in ("others", "annotations", "features", "metrics", "submit")
        if getattr(options, name) != fields[name].default
    )
    return next(given, None)


def data_of(opened: "OpenRun", annotations: Path | None, features: Path | None) -> "DataSettings":
    """The data that the command line names, or the run's own."""
    from legenda.data.caption_sets import KarpathyData

    if (annotations is None) != (features is None):
        raise UserError("--annotations and --features go together; name both")
    if annotations is None or features is None:
        return opened.data()
    return KarpathyData(annotations=annotations, features=features)


def write_evaluation(
    folder: Path,
    split: str,
    beam_size: int,
    captions: Mapping[str, str],
    scores: Mapping[str, float | None],
    others: Sequence[Path] = (),
) -> Path:
    """Keeps captions and scores of a split in the run folder, and says in which file.

    others: the runs that captioned together with that of the folder.
    """
    path = folder / (f"evaluation_{split}_ensemble.json" if others else f"evaluation_{split}.json")
    settings: dict[str, Any] = {"split": split, "images": len(captions), "beam_size": beam_size}
    if others:
        settings["runs"] = [str(run) for run in (folder, *others)]
    write_json(path, {**settings, "scores": scores, "captions": captions})
    return path


def _submit(options: Options, opened: "OpenRun", members: Sequence["OpenRun"], folder: Path) -> None:
    from legenda.apps.submission import coco_sets, write_submission

    sets = coco_sets(opened, options.test_features)
    for pictures in sets.values():
        _check_extractor(opened, pictures)
    captions = {part: describe(opened, pictures, options.beam_size, members) for part, pictures in sets.items()}
    paths = write_submission(folder, options.algorithm or opened.folder.resolve().name, captions)
    for path, told in zip(paths, captions.values(), strict=True):
        print(f"{path}: {len(told)} images")


def describe(
    opened: "OpenRun", pictures: "CaptionSet", beam_size: int, members: Sequence["OpenRun"] = ()
) -> dict[str, str]:
    """Captions of all pictures, with a bar of progress. members: runs that caption together with the first."""
    from legenda.apps.progress import progress_bar
    from legenda.decoding import Ensemble
    from legenda.training.validation import describe_images

    for run in (opened, *members):
        _check_extractor(run, pictures)
    models = [run.model for run in (opened, *members)]
    done = 0
    with progress_bar(f"captioning {pictures.source}") as show:

        def heard(positions: Sized, *_: object) -> None:
            nonlocal done
            done += len(positions)
            show(done, len(pictures))

        return describe_images(
            Ensemble(models) if members else opened.model,
            pictures,
            beam_size=beam_size,
            vocabulary=opened.model.vocabulary,
            heard=heard,
        )


def _check_extractor(opened: "OpenRun", pictures: "CaptionSet") -> None:
    wanted = opened.config.get("extractor")
    if opened.imported:
        return  # it reads its release's features, which nothing but their width can tell
    if pictures.extractor != wanted:
        raise UserError(
            f"{pictures.source} was made by the extractor {pictures.extractor}, but {opened.folder} was trained on "
            f"features of {wanted}; put the features of that extractor in their place"
        )
