"""The report of captioners: one beam search for each run and image, scores, and captions with their attention.

Also the parts that every report has: scores with intervals, differences from the first run, the choice of examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from legenda.compute import SearchOptions
from legenda.data.captions import CaptionDataset
from legenda.decoding import GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.comparison import RANKING_METRIC, score_per_image
from legenda.evaluation.predict import generate
from legenda.evaluation.runs import CaptionerRun, Run, resolve_data
from legenda.metrics import METRICS, Difference, Scores, compare, intervals
from legenda.models.base import eval_mode
from legenda.pipeline import GeneratedCaption, extract_captions
from legenda.regions import Regions
from legenda.report.images import ReportImage, resolve_images
from legenda.report.overlay import average_heads, draw_caption_attention, write_sheet
from legenda.report.page import ExampleCard, ModelRun, Report, ScoreColumn, encoded_size, write_report
from legenda.run_folder import HISTORY
from legenda.tasks.reporting import Prediction
from legenda.terminal import ProgressBar, no_progress_bar
from legenda.training.history import read_history

if TYPE_CHECKING:
    from legenda.cli.report import ReportOptions

SCENE_METRICS = {
    "truth": "share of captions that are true as a whole, over all scenes",
    "pair": "near scenes: names the two that almost touch; about 1 in 12 by chance",
    "axis": "near scenes: the relation of the two, where the caption has one; 1 in 2 by chance",
    "size": "size scenes: which of two equal shapes is larger; 1 in 2 by chance",
    "bind": "bind scenes: the relation of the two things of one color; 1 in 2 by chance",
}
_METRICS = {
    **SCENE_METRICS,
    "CIDEr-D": "similarity to the references with rare n-grams weighted more; 0 to 10, often reported times 100",
    "BLEU-1": "share of words that a reference has, with a penalty for short captions",
    "BLEU-4": "the same for n-grams of one to four words",
    "ROUGE-L": "longest common subsequence with a reference",
}
"""The metrics of the page with their descriptions, in the order of the columns."""
_MAX_ATTENTION_CHARACTERS = 45_000
"""Characters of the page that the attention of an image may take, on average over the images."""


def write_caption_report(
    runs: Mapping[str, CaptionerRun], options: ReportOptions, *, progress_bar: ProgressBar = no_progress_bar
) -> str:
    """Write the page, and the overlays where they are asked for, and return a summary.

    Raise DataError where the runs have different images or the split has no references.
    """
    data = [resolve_data(run, options.annotations, options.features, options.image_folder) for run in runs.values()]
    splits = dict(zip(runs, (settings.split(options.split) for settings in data), strict=True))
    remedy = "report runs of the same data together, or name the data with --annotations and --features"
    split: CaptionDataset = common_split(runs, splits, options.split, "images", remedy)
    check_targets(split, options.split)
    if options.head is not None:
        for name, run in runs.items():
            check_head(run, splits[name], options.head)
    captions_by_run, scored = predict_and_score(runs, splits, options.beam_size, progress_bar=progress_bar)
    positions = select_examples(
        [[result.per_example[identity] for identity in split.ids] for result in scored.values()], options.num_images
    )
    captions: dict[int, Mapping[str, GeneratedCaption]] = {
        position: {name: by_id[split.ids[position]] for name, by_id in captions_by_run.items()}
        for position in positions
    }
    folder, opened = options.image_folder, split.open_images
    open_image = resolve_images(data[0], options.split, split.ids, positions, folder, opened)
    images = {
        position: open_image(position, next(iter(captions[position].values())).boxes.tolist()) for position in positions
    }
    with_heads = heads_fit_page_budget(captions.values())
    report = Report(
        title=report_title(list(runs)),
        lead=f"{count_models(len(runs))}, {len(split):,} images of the split {options.split}, captions by beam search "
        f"with beam size {options.beam_size}. Point at a word to see the attention when it was generated.",
        columns=_columns(scored),
        runs=model_runs(runs, scored),
        examples=[
            caption_card(
                split.ids[position],
                images[position],
                split.references[position],
                captions[position],
                scored,
                with_heads=with_heads,
            )
            for position in positions
        ],
        footnotes=_footnotes(options, len(split), images, captions, with_heads, several=len(runs) > 1),
        score_name=RANKING_METRIC,
    )
    path = write_report(report, options.out)
    lines = [f"{name}: {format_scores(result, (*_METRICS, *METRICS.registered))}" for name, result in scored.items()]
    if options.overlays is not None:
        by_id = {split.ids[position]: (images[position], captions[position]) for position in positions}
        lines.append(f"{options.overlays}: {write_overlays(options.overlays, by_id, options.head)} attention sheets")
    return "\n".join([*lines, describe_page(path, len(positions), "images")])


def _columns(scored: Mapping[str, Scored]) -> list[ScoreColumn]:
    measured = {name for result in scored.values() for name in result.scores}
    return [
        ScoreColumn(name, name, description, percent=name in SCENE_METRICS)
        for name, description in (_METRICS | _describe_registered()).items()
        if name in measured
    ]


def _describe_registered() -> dict[str, str]:
    """Return the metrics that users registered with the first lines of their docstrings."""
    return {name: (inspect.getdoc(METRICS.get(name)) or name).splitlines()[0] for name in METRICS.registered}


def _footnotes(
    options: ReportOptions,
    count: int,
    images: Mapping[int, ReportImage],
    captions: Mapping[int, Mapping[str, GeneratedCaption]],
    with_heads: bool,
    *,
    several: bool,
) -> list[str]:
    heads = (
        "the mean of all heads or a single head" if with_heads else "the mean of all heads (single heads take too much)"
    )
    notes = common_footnotes("images", len(images), count, several=several)
    notes.insert(1, f"The attention shown is that of the last decoder layer over the encoded regions, {heads}.")
    missing = sum(not image.found for image in images.values())
    if missing:
        folder = options.image_folder or "the folder of the annotations"
        notes.append(f"{missing} images were not found in {folder}; their regions are drawn on a blank canvas.")
    no_boxes = {name for by_run in captions.values() for name, caption in by_run.items() if not caption.has_boxes}
    if no_boxes:
        notes.append(f"The features of {', '.join(sorted(no_boxes))} have no boxes, so its attention is not shown.")
    return notes


def predict_with_attention(
    run: CaptionerRun,
    split: CaptionDataset,
    beam_size: int,
    *,
    positions: Sequence[int] | None = None,
    progress_bar: ProgressBar = no_progress_bar,
) -> dict[str, GeneratedCaption]:
    """Return the best caption of each image with its attention, by id; one beam search for each image.

    positions: those of the images in the split, by default all. The weights stay in memory: about 20 kB for a caption
    of 12 words, 8 heads and 50 regions.
    """
    vocabulary = run.model.require_vocabulary()
    captions: dict[str, GeneratedCaption] = {}

    def keep(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
        for image, position in enumerate(batch.tolist()):
            captions[split.ids[position]] = extract_captions(output, regions, vocabulary, image)[0]

    chosen = None if positions is None else np.asarray(positions, dtype=np.int64)
    generate(
        run,
        split,
        SearchOptions(beam_size=beam_size),
        positions=chosen,
        attention_callback=keep,
        progress_bar=progress_bar,
    )
    return captions


def check_head(run: CaptionerRun, split: CaptionDataset, head: int) -> None:
    """Raise ConfigError where the attention of the run's decoder has no such head; one decoding step, no search."""
    model = run.model
    if hasattr(model, "generate"):
        raise ConfigError(f"{run.folder} is a model of transformers, whose heads are not drawn; leave out --head")
    with eval_mode(model):
        memory = model.encode(split.read(np.array([0])).to(model.device))
        tokens = torch.full((1, 1), model.generation_config.bos_token_id, device=model.device)
        _, state = model.decoder.step(tokens, model.decoder.init_state(memory, 1), memory)
    assert state.attention is not None
    try:
        average_heads(state.attention[0].float().cpu().numpy(), head)
    except ConfigError as error:
        raise ConfigError(f"{run.folder}: {error}") from error


@dataclass(frozen=True)
class Scored:
    """Predictions of a split by one run, by id, with scores by the keys of the report's columns, some with intervals.

    per_example: the score of each prediction, the CIDEr-D of a caption, by id. result: all scores of captions.
    """

    predictions: Mapping[str, Any]
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    per_example: Mapping[str, float]
    result: Scores | None = None


def common_split(runs: Mapping[str, Run], splits: Mapping[str, Any], name: str, noun: str, remedy: str) -> Any:
    """Return the split of the first run; raise DataError unless all have the same examples."""
    first, split = next(iter(splits.items()))
    for run, other in splits.items():
        if other.ids != split.ids:
            raise DataError(f"{runs[run].folder} has other {noun} in {name} than {runs[first].folder}; {remedy}")
    return split


def check_targets(split: Any, name: str) -> None:
    """Raise DataError where a split has no references."""
    missing = getattr(split, "missing_targets", None)
    if missing is not None:
        raise DataError(f"the data set has no {missing} of {name}, so nothing can be scored; choose another --split")


def predict_and_score(
    runs: Mapping[str, CaptionerRun],
    splits: Mapping[str, CaptionDataset],
    beam_size: int,
    *,
    progress_bar: ProgressBar = no_progress_bar,
) -> tuple[dict[str, dict[str, GeneratedCaption]], dict[str, Scored]]:
    """Return the captions of each run by id, from one beam search for each image, and their scores."""
    captions = {
        name: predict_with_attention(run, splits[name], beam_size, progress_bar=progress_bar)
        for name, run in runs.items()
    }
    texts = {name: {key: caption.text for key, caption in by_id.items()} for name, by_id in captions.items()}
    return captions, {name: score_with_intervals(texts[name], splits[name]) for name in runs}


def common_footnotes(noun: str, shown: int, count: int, *, several: bool = False) -> list[str]:
    """Return the notes on intervals, on differences of `several` runs, and on the choice of examples."""
    notes = [
        f"Intervals: percentile bootstrap over {noun}, 95 %, 1,000 resamples; they do not cover the variation between "
        "training seeds."
    ]
    if several:
        notes.append(
            "Differences: intervals by paired bootstrap, p by approximate randomization with 1,000 rounds; p is not "
            "corrected for several metrics or models."
        )
    if shown < count:
        notes.append(
            f"{shown} of {count:,} {noun} are shown: a quarter each have the highest and the lowest scores and, for "
            "several models, the largest differences between models; the others are evenly spaced."
        )
    return notes


def score_with_intervals(captions: Mapping[str, str], split: CaptionDataset) -> Scored:
    """Return the metrics that need no Java and those of the data set, with 95 % bootstrap intervals over images."""
    scores = score_per_image(captions, dict(zip(split.ids, split.references, strict=True)), split.score)
    return Scored(
        captions,
        scores.corpus,
        {name: (interval.low, interval.high) for name, interval in intervals(scores).items() if interval is not None},
        {identity: values[RANKING_METRIC] or 0.0 for identity, values in scores.per_image.items()},
        scores,
    )


def compare_to_first(scored: Mapping[str, Scored], name: str) -> dict[str, Difference]:
    """Return the differences of a run from the first one by metric; none for the first one and without `result`."""
    first, other = next(iter(scored.values())), scored[name]
    if first is other or first.result is None or other.result is None:
        return {}
    return {metric: found for metric, found in compare(other.result, first.result).items() if found is not None}


def report_title(names: Sequence[str]) -> str:
    """Return the title of a page that compares runs of these names."""
    return " against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_models(count: int) -> str:
    """Return "One model" or "3 models"."""
    return "One model" if count == 1 else f"{count} models"


def format_scores(scored: Scored, names: Collection[str]) -> str:
    """Return the named scores that the run has, each with its interval, on one line."""
    return "  ".join(
        f"{name} {value:.3f} ({scored.intervals[name][0]:.3f} to {scored.intervals[name][1]:.3f})"
        for name in names
        if (value := scored.scores.get(name)) is not None
    )


def describe_page(path: Path, count: int, noun: str) -> str:
    """Return the line that names the written page and its size."""
    size = path.stat().st_size / 1e6
    return f"{path.resolve()}: {count} {noun}, {size:.1f} MB, one file that opens in a browser offline"


def model_runs(
    runs: Mapping[str, Run], scored: Mapping[str, Scored], *, descriptions: Mapping[str, str] | None = None
) -> list[ModelRun]:
    """Return the runs with their scores.

    descriptions: by default the model's summary and the recipe that trained it.
    """
    return [
        ModelRun(
            name=name,
            description=_describe_run(run) if descriptions is None else descriptions[name],
            parameters=run.model.parameter_count,
            seconds=_training_seconds(run),
            scores=scored[name].scores,
            intervals=scored[name].intervals,
            differences=compare_to_first(scored, name),
        )
        for name, run in runs.items()
    ]


def _training_seconds(run: Run) -> float | None:
    """Return the seconds of the training; None for a run without history, such as an imported one."""
    history = read_history(run.folder) if (run.folder / HISTORY).exists() else []
    return max((record.get("seconds", 0.0) for record in history), default=None)


def _describe_run(run: Run) -> str:
    recipe = run.config.get("recipe")
    origin = f"recipe {recipe}" if recipe else "imported" if run.imported else "no recipe"
    return f"{run.summary} ({run.model.name}, {origin})"


def caption_card(
    identity: str,
    image: ReportImage,
    references: Sequence[str],
    captions: Mapping[str, GeneratedCaption],
    scored: Mapping[str, Scored],
    *,
    with_heads: bool = True,
) -> ExampleCard:
    """Return one image with the captions of all runs; runs with other regions than the first have separate boxes.

    scored: that of each run that has scores. with_heads: whether to keep each attention head, or only their mean.
    """
    boxes = next(iter(captions.values())).boxes
    data, media_type = image.encoded
    views = {}
    for name, caption in captions.items():
        verdict, reason = image.check_caption(caption.text)
        views[name] = Prediction(
            caption.words,
            verdict,
            scored[name].per_example[identity] if name in scored else None,
            reason,
            attention=caption.heads if with_heads and caption.has_boxes else caption.attention,
            boxes=None if np.array_equal(caption.boxes, boxes) else caption.boxes.tolist(),
        )
    return ExampleCard(identity, image.kind, data, media_type, boxes.tolist(), references, views)


def heads_fit_page_budget(images: Collection[Mapping[str, GeneratedCaption]]) -> bool:
    """Return whether the page may hold every attention head: 100 photographs with them stay below 20 MB."""
    captions = [caption for by_run in images for caption in by_run.values()]
    characters = sum(encoded_size(caption.heads) + 7 * average_heads(caption.heads).size for caption in captions)
    return characters <= _MAX_ATTENTION_CHARACTERS * len(images)


def write_overlays(
    folder: Path, images: Mapping[str, tuple[ReportImage, Mapping[str, GeneratedCaption]]], head: int | None
) -> int:
    """Write a sheet for each image, by id, and run that has attention, and return their number."""
    count = 0
    for identity, (image, captions) in images.items():
        for name, caption in captions.items():
            if not caption.has_boxes or not caption.words:
                continue
            sheet = draw_caption_attention(image.image, [caption], title=f"{identity}, {name}", head=head)
            write_sheet(sheet, folder, f"{identity}.{name}")
            count += 1
    return count


def select_examples(scores: Sequence[Sequence[float]], count: int) -> list[int]:
    """Return the sorted positions of `count` examples to show, or of all where there are no more.

    scores: for each run the score of each example. A quarter each have the highest and the lowest mean score and, for
    several runs, the largest difference between runs; the others are evenly spaced among the remaining examples.
    """
    values = np.asarray(scores, dtype=float)
    total = values.shape[1]
    if total <= count:
        return list(range(total))
    mean, difference = values.mean(axis=0), np.ptp(values, axis=0)
    orders = [(-mean).argsort(kind="stable"), mean.argsort(kind="stable")]
    if len(values) > 1:
        orders.append((-difference).argsort(kind="stable"))
    selected: dict[int, None] = {}
    for order in orders:
        candidates = [position for position in order.tolist() if position not in selected]
        selected.update(dict.fromkeys(candidates[: count // 4]))
    rest = [position for position in range(total) if position not in selected]
    missing = count - len(selected)
    selected.update(dict.fromkeys(rest[index * len(rest) // missing] for index in range(missing)))
    return sorted(selected)
