"""The options of `legenda evaluate`."""

from pathlib import Path
from typing import Literal

import tyro

from legenda.decoding.search import RunSearchOptions


class Options(RunSearchOptions):
    """Caption a split of the run's data, score it, and write both to evaluation_SPLIT.json in the run folder or, for
    photo and USER/MODEL of Hugging Face's hub, to evaluation_NAME_SPLIT.json in the current folder.

    Runs of other tasks answer, locate or translate instead and take --split, --beam-size and --stage. Where a split has
    no reference captions or answers, its predictions are written and nothing is scored.

    Several captioners form an ensemble, which averages their probabilities for each word; the data are those of the
    first, whose folder gets evaluation_SPLIT_ensemble.json.

    With --submission-dir it writes instead the two files of COCO's captioning server,
    captions_val2014_NAME_results.json and captions_test2014_NAME_results.json. The run's annotations and features must
    then hold all of val2014, and --test-features all of test2014. For questions it is EvalAI's result file of --split.
    """

    run: tyro.conf.Positional[Path]
    """A run folder, photo, or USER/MODEL of Hugging Face's hub."""
    others: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Further run folders with the same vocabulary and features."""
    split: str = "val"
    """The split: train, val, test, or another one of the data, such as testA of RefCOCO."""
    annotations: Path | None = None
    """Annotations to use instead of the run's, in Karpathy's layout; imported models have none."""
    features: Path | None = None
    """The features of their images."""
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
    stage: int | None = None
    """1 for the model of the first stage of two; the files have _stage1 in their names. By default the last one."""
