"""`legenda evaluate`: predictions for a split and their scores; or captions for COCO's server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro
from pydantic import Field

from legenda.cli.options import Flat, Search
from legenda.compute import RunOptions
from legenda.config import Config, PositiveInt
from legenda.errors import ConfigError
from legenda.terminal import counted


class EvaluateOptions(Config):
    """Caption a split of the run's data, score it, and write both to evaluation_SPLIT.json in the run folder or, for
    photo and USER/MODEL of Hugging Face's hub, to evaluation_NAME_SPLIT.json in the current folder.

    Runs of other tasks answer, locate or translate instead and take --split, --features, --beam-size and --stage. Where
    a split has no reference captions or answers, its predictions are written and nothing is scored.

    Several captioners form an ensemble, which averages their probabilities for each word; the data are those of the
    first, whose folder gets evaluation_SPLIT_ensemble.json.

    With --submission-dir it writes instead the two files of COCO's captioning server,
    captions_val2014_NAME_results.json and captions_test2014_NAME_results.json. The run's annotations and features must
    then hold all of val2014, and --test-features all of test2014. For questions it is EvalAI's result file of --split.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "runs/mine",
        "runs/mine --split test --metrics auto",
        "photo --annotations mine/table.csv --images mine",
    )
    usual: ClassVar[tuple[str, ...]] = ("split", "annotations", "features", "images", "metrics", "out")

    run: tyro.conf.Positional[Path]
    """A run folder, a folder of legenda train --seeds, photo, or USER/MODEL of Hugging Face's hub."""
    others: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Further run folders with the same vocabulary and features."""
    split: str = "val"
    """The split: train, val, test, or another one of the data, such as testA of RefCOCO."""
    annotations: Path | None = None
    """Annotations to use instead of the run's, in any form of data.annotations; imported models have none."""
    features: Path | None = None
    """The features of their images; or, without --annotations, of the split's images in the run's own data, as of
    test2015, where the run was trained on the features of other images."""
    images: Path | None = None
    """The folder of the images of --annotations, instead of features; for hf:MODEL, a model of transformers."""
    metrics: Literal["fast", "auto"] = "fast"
    """fast: metrics without Java; auto: METEOR and SPICE too, where their programs are installed."""
    submission_dir: Path | None = None
    """A folder for the files of COCO's or EvalAI's server."""
    test_features: Path | None = None
    """The features of test2014, by the run's extractor; for --submission-dir."""
    algorithm: str | None = None
    """The NAME in the file names for the server; by default that of the run folder."""
    out: Path | None = None
    """The file .json, or the folder, to write instead of the run folder."""
    repeats: Literal["auto", "keep", "collapse"] = "auto"
    """Whether a word that follows itself is dropped before scoring (collapse), as MD-SAN's release does; auto: as in
    the training's validation."""
    stage: PositiveInt | None = None
    """1 for the model of the first stage of two; the files have _stage1 in their names. By default the last one."""
    search: Search = Field(default_factory=dict)
    compute: Annotated[RunOptions, Flat] = RunOptions()


def run(options: EvaluateOptions) -> None:
    """Write the files and print the scores, or the paths of the files for the server."""
    if options.images is not None and (options.annotations is None or options.features is not None):
        raise ConfigError("--images are those of --annotations, in place of --features; name these two together")
    from legenda.run_folder import find_seeds

    seeds = find_seeds(options.run)
    if not seeds:
        _evaluate(options)
        return
    if options.others or options.out or options.submission_dir or options.stage:
        raise ConfigError(f"{options.run} holds runs of several seeds; name one of them, such as {seeds[0]}, for that")
    from legenda.cli.score import print_report
    from legenda.evaluation.comparison import seed_scores
    from legenda.metrics.scoring import ScoringReport, seed_table

    for folder in seeds:
        print(folder)
        _evaluate(options.replace(run=folder))
    title = f"{counted(len(seeds), 'seeds')} of {options.run}"
    print_report(ScoringReport([title, seed_table(seed_scores(seeds, options.split))], {}, []), None)


def _evaluate(options: EvaluateOptions) -> None:
    if options.submission_dir is None and (options.test_features or options.algorithm):
        raise ConfigError("--test-features and --algorithm are for --submission-dir; name its folder too")
    from legenda.evaluation import evaluate as evaluation
    from legenda.evaluation.runs import CaptionerRun, load_captioner_run, load_run, resolve_data
    from legenda.run_folder import evaluation_path

    first = load_run(options.run, options.compute).load_stage(options.stage)
    split, search = options.split, options.search
    path = evaluation_path(first.folder, split, ensemble=bool(options.others), stage=options.stage)
    path = evaluation.choose_path(path, options.run, options.out)
    if not isinstance(first, CaptionerRun):
        of_captioners = ("others", "annotations", "images", "metrics", "repeats")
        evaluation.reject_captioner_options(first, options, of_captioners, search)
        result = evaluation.evaluate_task(
            first,
            split,
            path,
            search,
            features=options.features,
            submission_dir=options.submission_dir,
            algorithm=options.algorithm,
        )
        print(result.format_scores(split))
        print(f"{counted(result.examples, 'examples')} of {split}; predictions in {result.path}")
        return
    members = [load_captioner_run(folder, options.compute).load_stage(options.stage) for folder in options.others]
    if options.submission_dir is not None:
        if options.out is not None:
            raise ConfigError("--out is not for --submission-dir, which names the folder of all files; leave it out")
        files = evaluation.caption_coco_server(
            first, members, options.submission_dir, search, options.test_features, algorithm=options.algorithm
        )
        print("\n".join(f"{path}: {counted(count, 'images')}" for path, count in files.items()))
        return
    data = resolve_data(first, options.annotations, options.features, options.images)
    collapse = None if options.repeats == "auto" else options.repeats == "collapse"
    result = evaluation.evaluate_captions(
        first, members, data, split, search, options.metrics, collapse_repeats=collapse, path=path
    )
    print(result.format_scores(split))
    searched = first.model.generation_config.replace(**search).describe()
    print(f"{counted(result.examples, 'images')} of {split}, {searched}; captions in {result.path}")
