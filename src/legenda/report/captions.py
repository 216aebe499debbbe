"""The report of captioners: one beam search for each run and image, scores, and captions with their attention."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from legenda.data.captions import CaptionDataset
from legenda.evaluation.comparison import RANKING_METRIC
from legenda.evaluation.data import resolve_data
from legenda.evaluation.runs import CaptionerRun
from legenda.metrics import METRICS
from legenda.pipeline import GeneratedCaption
from legenda.report import Report, ScoreColumn, write_report
from legenda.report.build import (
    Scored,
    caption_card,
    check_targets,
    common_footnotes,
    common_split,
    count_models,
    describe_page,
    format_scores,
    heads_fit_page_budget,
    model_runs,
    predict_and_score,
    report_title,
    write_overlays,
)
from legenda.report.caption_attention import check_head
from legenda.report.images import ReportImage, resolve_images
from legenda.report.options import ReportOptions
from legenda.report.selection import select_examples
from legenda.terminal import ProgressBar, no_progress_bar

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
_CURVES = (*SCENE_METRICS, "CIDEr-D", "BLEU-4")


def write_caption_report(
    runs: Mapping[str, CaptionerRun], options: ReportOptions, *, progress_bar: ProgressBar = no_progress_bar
) -> str:
    """Write the page, and the overlays where they are asked for, and return a summary.

    Raise DataError where the runs have different images or the split has no references.
    """
    data = [resolve_data(run, options.annotations, options.features) for run in runs.values()]
    splits = dict(zip(runs, (settings.split(options.split) for settings in data), strict=True))
    remedy = "report runs of the same data together, or name the data with --annotations and --features"
    split: CaptionDataset = common_split(runs, splits, options.split, "images", remedy)
    check_targets(split, options.split)
    if options.head is not None:
        for name, run in runs.items():
            check_head(run, splits[name], options.head)
    found, scored = predict_and_score(runs, splits, options.beam_size, progress_bar=progress_bar)
    positions = select_examples(
        [[one.per_example[identity] for identity in split.ids] for one in scored.values()], options.num_images
    )
    captions: dict[int, Mapping[str, GeneratedCaption]] = {
        position: {name: by_id[split.ids[position]] for name, by_id in found.items()} for position in positions
    }
    open_image = resolve_images(data[0], options.split, split.ids, positions, options.image_folder)
    images = {
        position: open_image(position, next(iter(captions[position].values())).boxes.tolist()) for position in positions
    }
    with_heads = heads_fit_page_budget(captions.values())
    report = Report(
        title=report_title(list(runs)),
        lead=f"{count_models(len(runs))}, {len(split):,} images of the split {options.split}, captions by beam search "
        f"with beam size {options.beam_size}. Point at a word to see the attention when it was generated.",
        columns=_columns(scored),
        runs=model_runs(runs, scored, curve_metrics=_CURVES, validation_noun="validation images"),
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
