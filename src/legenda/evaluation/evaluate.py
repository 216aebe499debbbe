"""Evaluate a split: predict, score, and write predictions and scores, to the run folder or for a server.

Captions come from one run or from several as an ensemble.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from legenda.config import Config, to_json
from legenda.data.captions import CaptionDataset, KarpathyData, stored_captions
from legenda.data.registry import Data, Split
from legenda.decoding import Ensemble, GenerationConfig, GenerationOutput
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.evaluation.runs import CaptionerRun, Run, check_extractor, replace_features
from legenda.features.readers import open_features
from legenda.hub import is_run_folder
from legenda.images.extractor import describe_unfamiliar, find_unfamiliar
from legenda.io import COCO_NAME, coco_id, read_json, write_json, write_text
from legenda.metrics import evaluate
from legenda.models.base import inference
from legenda.models.packing import PackedWeights
from legenda.regions import Regions
from legenda.run_folder import RunConfig, evaluation_path, stages_of
from legenda.runtime.settings import Overrides, override
from legenda.tasks.base import predict_split
from legenda.tasks.captioning import collapse_repeats as collapse
from legenda.tasks.captioning import generate_captions, score_captions
from legenda.terminal import counted, progress_bar
from legenda.text.annotations import CaptionedImage, read_annotations

ScoreDict = dict[str, float | None]
"""Scores by metric, 1 is 100 %; None where a metric has no value."""


def choose_path(path: Path, model: Path, out: Path | None) -> Path:
    """Return where the file is written whose path in the folder of a model is `path`.

    model: the name of the model, as `find_model` takes it. out: a file .json or a folder; None for `path` itself or,
    for a packaged model or one of the hub, evaluation_NAME_SPLIT.json in the current folder.
    """
    if out is not None:
        return out if out.suffix == ".json" and not out.is_dir() else out / path.name
    return path if is_run_folder(model) else Path(path.name.replace("_", f"_{model.name}_", 1))


def caption_settings(
    config: RunConfig,
    split: str,
    search: Overrides,
    metrics: str,
    data: object = None,
    collapse_repeats: bool | None = None,
) -> dict[str, object]:
    """Return the settings on which captions and their scores depend, except the weights, as the file holds them.

    config: the run's config.json. search: what is set over its generation_config. data: as JSON, where the data are
    not those of the run. collapse_repeats: whether repeated words were dropped; None for what the run's training did.
    """
    validated = any(stage.get("eval_collapse_repeats") for stage in [*stages_of(config).values()][-1:])
    return {
        "split": split,
        "beam_size": _beam_size(config, search),
        "search": {name: value for name, value in sorted(to_json(search).items()) if name != "beam_size"},
        "metrics": metrics,
        "generation_config": config.get("generation_config"),
        "data": config.get("data") if data is None else data,
        "collapse_repeats": validated if collapse_repeats is None else collapse_repeats,
    }


def _beam_size(config: RunConfig, search: Overrides) -> object:
    """Return the number of beams of a search with a run's config.json."""
    defaults = {"beam_size": GenerationConfig().beam_size}
    return {**defaults, **config.get("generation_config", {}), **search}["beam_size"]


def read_scores(path: Path, settings: Mapping[str, object]) -> ScoreDict | None:
    """Return the scores of a file with these settings; None for other settings, and where scoring failed."""
    content = read_json(path, "delete it to evaluate again")
    if not isinstance(content, dict) or any(content.get(name) != value for name, value in settings.items()):
        return None
    return content.get("scores")


def write_evaluation(
    path: Path,
    settings: Mapping[str, object],
    kind: str,
    predictions: Mapping[str, object],
    score: Callable[[], ScoreDict],
) -> ScoreDict:
    """Score the predictions, write settings, scores and, under the name `kind`, predictions; return the scores.

    Where `score` raises, the predictions are written with scores of null.
    """
    scores: ScoreDict | None = None
    try:
        scores = score()
    finally:
        write_json(path, {**settings, "scores": scores, kind: predictions})
    return scores


SUBMISSION_WEIGHTS = "weights.json"
"""The checksums of the weights beside the files for a server."""
IMAGE_COUNTS = {"val2014": 40_504, "test2014": 40_775}
"""The number of images of each part of COCO; the server takes captions of all of them or none."""


def _coco_splits(run: CaptionerRun, test_features: Path | None) -> dict[str, CaptionDataset]:
    """Return val2014, from the annotations and features of the run, and test2014, from `test_features`.

    Raise LegendaError where the run's data is not COCO, an image is missing, or an image is of another part.
    """
    data = run.data()
    if not isinstance(data, KarpathyData):
        raise ConfigError(f"--submission-dir is for models of COCO, but {run.folder} was trained on other data")
    if test_features is None:
        raise ConfigError("--submission-dir also captions test2014; name its features with --test-features")

    def part(name: str) -> str | None:
        """Return the part of COCO in the name of an image file."""
        match = COCO_NAME.fullmatch(name)
        return None if match is None else match["part"]

    def check_count(name: str, count: int, source: Path) -> None:
        if count != IMAGE_COUNTS[name]:
            raise DataError(
                f"{source} names {counted(count, 'images')} of {name}, but COCO's server takes captions of all "
                f"{IMAGE_COUNTS[name]} or none"
            )

    images = read_annotations(data.annotations)
    val = [replace(image, captions=()) for image in images if part(PurePosixPath(image.file).stem) == "val2014"]
    check_count("val2014", len(val), data.annotations)
    store = open_features(test_features, sizes=data.sizes)
    for name in store.ids:
        if coco_id(name) is None or part(name) not in (None, "test2014"):
            raise DataError(
                f"{test_features} holds {name}, which is not an image of test2014; extract features of test2014 only"
            )
    check_count("test2014", len({coco_id(name) for name in store.ids}), test_features)
    if wrong := [image.id for image in val if coco_id(image.id) is None]:
        raise DataError(
            f"{data.annotations} gives an image of val2014 the id {wrong[0]}, not one of COCO; add a cocoid"
        )
    test = [CaptionedImage(name, name, (), "test") for name in store.ids]
    return {"val2014": stored_captions(val, data.open_store()), "test2014": stored_captions(test, store)}


def _algorithm(run: Run, algorithm: str | None) -> str:
    """Return the name in the files for a server, by default that of the run's folder.

    Characters other than letters, digits and hyphens become hyphens, as underscores separate the fields of file names.
    """
    name = algorithm or run.folder.resolve().name
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "captions"


_LOG = logging.getLogger(__name__)
_MIN_IMAGES, _MAX_SHARE = 20, 0.5

GenerationCallback = Callable[[np.ndarray, Regions, GenerationOutput], None]
"""Receives the positions of a batch in its split, the regions, and the generated output."""


def generate(
    run: CaptionerRun,
    split: CaptionDataset,
    search: Overrides,
    members: Sequence[CaptionerRun] = (),
    *,
    positions: np.ndarray | None = None,
    attention_callback: GenerationCallback | None = None,
) -> dict[str, str]:
    """Return the best caption of every image of a split, by id; one search for each image.

    search: what is set over the model's generation_config. members: further runs that caption together with `run`, by
    the mean of their probabilities. positions: the images to caption, by default all. attention_callback: called after
    each batch with its positions, regions and generated output, which then holds the attention. Raise DataError where
    the features are not those of a run's extractor. Warn of images unlike those of the training, and of one caption for
    most images.
    """
    for member in (run, *members):
        check_extractor(member, split)
        if members and hasattr(member.model, "generate"):
            raise ConfigError(f"{member.folder} has a search of its own and is of no ensemble; evaluate it alone")
    count = len(split) if positions is None else len(positions)
    done = 0
    extractor = run.extractor.name
    unfamiliar: list[str] = []
    with progress_bar(f"captioning {split.source}") as update:

        def callback(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
            nonlocal done
            if attention_callback is not None:
                attention_callback(batch, regions, output)
            if regions.boxes is not None:
                names = [split.ids[position] for position in batch]
                unfamiliar.extend(find_unfamiliar(extractor, zip(names, regions.boxes.cpu().numpy(), strict=True)))
            done += len(batch)
            update(done, count)

        captions = generate_captions(
            Ensemble([run.model, *(member.model for member in members)]) if members else run.model,
            split,
            config=override(run.model.generation_config, search, run.model.require_vocabulary()),
            vocabulary=run.model.vocabulary,
            need_attention=attention_callback is not None,
            indices=positions,
            callback=callback,
        )
    for warning in (describe_unfamiliar(unfamiliar), describe_one_caption(captions)):
        if warning is not None:
            _LOG.warning(warning)
    return captions


def describe_one_caption(captions: Mapping[str, str]) -> str | None:
    """Return a warning where more than half of at least 20 images have the same caption, else None."""
    ((caption, count),) = Counter(captions.values()).most_common(1) or [("", 0)]
    if len(captions) < _MIN_IMAGES or count <= _MAX_SHARE * len(captions):
        return None
    return (
        f"{count} of {len(captions)} images have the same caption, {caption!r}: the model does not use its images; "
        "train it longer, or check that the features are those of its training"
    )


_CHUNK_SIZE = 200
"""Examples between two updates of the progress bar."""


def find_changed(options: Config, names: Iterable[str]) -> list[str]:
    """Return the names of the fields whose values are not the defaults."""
    fields = type(options).model_fields
    return [name for name in names if getattr(options, name) != fields[name].default]


def reject_captioner_options(run: Run, options: Config, names: Iterable[str], search: Overrides) -> None:
    """Raise ConfigError where one of the named options, for captioners, is set for the run of another task."""
    for name in (*find_changed(options, names), *(search.keys() - {"beam_size"})):
        raise ConfigError(
            f"--{name.replace('_', '-')} is for captioners, but {run.folder} was trained for {run.task.name}; leave it "
            "out"
        )


def load_examples(run: Run, split: str, features: Path | None = None) -> Split:
    """Return a split of the run's data; raise LegendaError where it is empty or of another extractor.

    features: a store of the regions of its images, in place of those of the training.
    """
    examples = replace_features(run.data(), features).split(split)
    check_extractor(run, examples)
    if not len(examples):
        raise DataError(f"{examples.source} has no examples in the split {split!r}; choose another with --split")
    return examples


def predict(run: Run, examples: Split, search: Overrides) -> dict[str, object]:
    """Return the predictions for all examples of a split, by id.

    search: fields that replace those of the model's generation_config.
    """
    predictions: dict[str, object] = {}
    with inference(run.model, PackedWeights()) as model, progress_bar(f"predicting {examples.source}") as update:
        for indices in np.array_split(np.arange(len(examples)), -(-len(examples) // _CHUNK_SIZE)):
            predictions |= predict_split(run.task, model, examples, indices, search)
            update(len(predictions), len(examples))
    return predictions


Metrics = Literal["fast", "auto"]


@dataclass(frozen=True)
class Evaluation:
    """The scores of a split, its number of examples, and the file with predictions and scores.

    missing_targets: what the split lacks, such as "captions", so that it has no scores; None where it is complete.
    """

    path: Path
    examples: int
    scores: ScoreDict
    missing_targets: str | None

    def format_scores(self, split: str) -> str:
        """Return the scores as lines of text, or the remark that there are none."""
        if self.missing_targets is not None:
            return f"the split {split} has no {self.missing_targets}, so nothing is scored"
        return "\n".join(
            f"{name:<8} {'none' if value is None else f'{value:.4f}'}" for name, value in self.scores.items()
        )


def evaluate_captions(
    run: CaptionerRun,
    members: Sequence[CaptionerRun],
    data: Data,
    split: str,
    search: Overrides,
    metrics: Metrics = "fast",
    *,
    collapse_repeats: bool | None = None,
    path: Path | None = None,
) -> Evaluation:
    """Caption a split, score the captions, and write both to `path`, or to evaluation_SPLIT.json in the run folder.

    members: further runs that caption together with `run`. data: those of the run, or others, which the file then
    holds. metrics: "auto" adds METEOR and SPICE where their programs are installed. Without reference captions nothing
    is scored. collapse_repeats: whether words that follow themselves are dropped; None for what the training did.
    """
    path = path or evaluation_path(run.folder, split, ensemble=bool(members), stage=run.stage)
    dataset = data.split(split)
    other = True
    with suppress(LegendaError):
        other = path.parent != run.folder or data != run.data()  # config.json beside the file names the run's data
    stored = to_json(data, path.parent) if other else None
    settings = caption_settings(run.config, split, search, metrics, stored, collapse_repeats)
    captions = generate(run, dataset, search, members)
    settings = {"images": len(dataset), **settings, "weights": [member.weights for member in (run, *members)]}
    if settings["collapse_repeats"]:
        captions = collapse(captions)
    if members:
        settings["runs"] = [str(member.folder) for member in (run, *members)]
    scores = write_evaluation(path, settings, "captions", captions, lambda: _score(captions, dataset, metrics))
    return Evaluation(path, len(dataset), scores, dataset.missing_targets)


def evaluate_task(
    run: Run,
    split: str,
    path: Path,
    search: Overrides,
    *,
    features: Path | None = None,
    submission_dir: Path | None = None,
    algorithm: str | None = None,
) -> Evaluation:
    """Predict a split with a model of any task, score the predictions, and write both to `path`.

    features: a store of the regions of its images, in place of those of the training. submission_dir: a folder that
    also gets the file of the task's server, whose name holds `algorithm`, by default that of the run.
    """
    if submission_dir is not None and run.task.submit({}, split, "") is None:
        raise ConfigError(
            f"no server takes predictions of {run.task.name}, as of {run.folder}; leave out --submission-dir"
        )
    task, examples = run.task, load_examples(run, split, features)
    predictions = predict(run, examples, search)
    settings: dict[str, object] = {"task": task.name, "split": split, "examples": len(predictions)}
    settings |= {"beam_size": _beam_size(run.config, search), "weights": [run.weights]}
    if path.parent != run.folder or features is not None:
        settings["data"] = to_json(replace_features(run.data(), features), path.parent)
    missing_targets = getattr(examples, "missing_targets", None)
    scores = write_evaluation(
        path, settings, "predictions", predictions, lambda: {} if missing_targets else task.score(predictions, examples)
    )
    if submission_dir is not None:
        submission = run.task.submit(predictions, split, _algorithm(run, algorithm))
        assert submission is not None
        path = submission_dir / submission[0]
        write_json(path, submission[1])
        write_json(submission_dir / SUBMISSION_WEIGHTS, settings["weights"])
    return Evaluation(path, len(predictions), scores, missing_targets)


def caption_coco_server(
    run: CaptionerRun,
    members: Sequence[CaptionerRun],
    folder: Path,
    search: Overrides,
    test_features: Path | None,
    *,
    algorithm: str | None = None,
) -> Mapping[Path, int]:
    """Write captions_PART_ALGORITHM_results.json, the two files of COCO's captioning server, to `folder`.

    Return their paths with the numbers of images. A third file holds the checksums of the weights.
    """
    splits = _coco_splits(run, test_features)
    for split in splits.values():
        check_extractor(run, split)
    captions = {part: generate(run, split, search, members) for part, split in splits.items()}
    counts = {}
    for part, by_image in captions.items():
        entries = [{"image_id": coco_id(image), "caption": caption} for image, caption in by_image.items()]
        path = folder / f"captions_{part}_{_algorithm(run, algorithm)}_results.json"
        write_text(path, json.dumps(entries) + "\n")
        counts[path] = len(entries)
    write_json(folder / SUBMISSION_WEIGHTS, [member.weights for member in (run, *members)])
    return counts


def _score(captions: dict[str, str], split: CaptionDataset, metrics: Metrics) -> ScoreDict:
    if split.missing_targets is not None:
        return {}
    scores = score_captions(captions, split)
    if metrics == "auto":
        references = dict(zip(split.ids, split.references, strict=True))
        with warnings.catch_warnings(action="ignore"):  # the notices repeat the warnings
            result = evaluate(captions, references, metrics="auto", df=split.frequencies)
        scores |= result.corpus
        for notice in result.notices:
            _LOG.warning(notice)
    return scores
