"""The report of runs of one task: one prediction for each run and example, scores, and examples with predictions.

Captions are shown with their attention; other tasks describe their examples, predictions and scores themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from legenda.data.captions import CaptionDataset
from legenda.data.registry import S, Split
from legenda.decoding import GenerationOutput
from legenda.errors import ConfigError, DataError
from legenda.evaluation.comparison import RANKING_METRIC, compare_pairs
from legenda.evaluation.evaluate import generate, load_examples, predict, reject_captioner_options
from legenda.evaluation.runs import CaptionerRun, Run, resolve_shared_data, to_arrays
from legenda.metrics.resampling import students_interval
from legenda.metrics.results import EvaluationResult, Example, Prediction, group_key
from legenda.models.base import eval_mode
from legenda.pipeline import GeneratedCaption, extract_captions
from legenda.regions import Regions
from legenda.report.images import ReportImage, find_images_by_name, resolve_images
from legenda.report.overlay import average_heads, blank_canvas, draw_caption_attention, write_sheet
from legenda.report.page import ExampleCard, ModelRun, Report, ReportOptions, ScoreColumn, encoded_size, write_report
from legenda.report.predictions import not_found, score_columns, score_with_intervals, select_examples, summarize
from legenda.run_folder import HISTORY, find_seeds, stages_of
from legenda.runtime.settings import Overrides
from legenda.tasks.reporting import ReportedTask
from legenda.terminal import counted
from legenda.training.checkpoint import read_history

_MAX_OPTIONS = 4
"""Options that tell runs of one recipe apart in the legend."""
_MAX_ATTENTION_CHARACTERS = 45_000
"""Characters of the page that the attention of an image may take, on average over the images."""
_CAPTION_OPTIONS = ("annotations", "features", "overlays", "head")
_CANVAS_SIDE = 384
"""Pixels of the longer side of the canvas that replaces a missing image."""


def write_caption_report(
    runs: Mapping[str, CaptionerRun], options: ReportOptions, search: Overrides, folders: Sequence[Path] = ()
) -> str:
    """Write the page of captioners, and the overlays where they are asked for, and return a summary.

    search: what is set over the models' generation_config. folders: in the order of the runs, those of single runs and
    of the seeds of one; notes compare the latter.

    Raise DataError where the runs have different images or the split has no references.
    """
    data = resolve_shared_data([*runs.values()], options.annotations, options.features, options.images)
    splits = dict(zip(runs, (settings.split(options.split) for settings in data), strict=True))
    remedy = "report runs of the same data together, or name the data with --annotations and --features"
    split = common_split(runs, splits, options.split, "images", remedy)
    if options.head is not None:
        for name, run in runs.items():
            _check_head(run, splits[name], options.head)
    captions_by_run, results = predict_and_score(runs, splits, search)
    positions = _choose_examples(split, results, options)
    captions = {
        position: {name: by_id[split.ids[position]] for name, by_id in captions_by_run.items()}
        for position in positions
    }
    open_image = resolve_images(data[0], options.split, split.ids, positions, options.images, split.open_images)
    images = {position: open_image(position, _first_boxes(captions[position])) for position in positions}
    with_heads = _heads_fit_page_budget(captions.values())
    heads = (
        "the mean of all heads or a single head" if with_heads else "the mean of all heads (single ones take too much)"
    )
    notes = []
    if missing := sum(image.missing for image in images.values()):
        folder = options.images or "the folder of the annotations"
        notes.append(f"{not_found(missing)} in {folder}; a blank canvas shows the regions instead.")
    no_boxes = {name for by_run in captions.values() for name, caption in by_run.items() if not caption.has_boxes}
    if no_boxes:
        notes.append(f"The features of {', '.join(sorted(no_boxes))} have no boxes, so no attention is shown for them.")
    columns = score_columns(name for result in results.values() for name in result.scores)
    cards = [
        caption_card(split.ids[at], image, split.references[at], captions[at], results, with_heads=with_heads)
        for at, image in images.items()
    ]
    searches = dict.fromkeys(run.model.generation_config.replace(**search).describe() for run in runs.values())
    lead, first = f", captions by {' and '.join(searches)}.", []
    if no_boxes != set(runs):
        lead += " Point at a word to see the attention when it was generated."
        first = [f"The attention shown is that of the last decoder layer over the encoded regions, {heads}."]
    summary = _write_page(runs, results, options, folders, len(split), lead, columns, cards, first, notes)
    if options.overlays is None:
        return summary
    by_id = {split.ids[position]: (images[position], captions[position]) for position in positions}
    sheets = counted(_write_overlays(options.overlays, by_id, options.head), "attention sheets")
    return f"{summary}\n{options.overlays}: {sheets}"


def write_task_report(
    runs: Mapping[str, Run], options: ReportOptions, search: Overrides, folders: Sequence[Path] = ()
) -> str:
    """Write the page of runs of another task than captioning and return a summary; see `write_caption_report`.

    Raise an error where the runs have different tasks or examples, or the split has no references.
    """
    first = next(iter(runs.values()))
    for run in runs.values():
        if run.task is not first.task:
            raise ConfigError(
                f"{first.folder} was trained for {first.task.name} and {run.folder} for {run.task.name}; report runs "
                "of one task together"
            )
    task = first.task
    assert issubclass(task, ReportedTask)
    reject_captioner_options(first, options, _CAPTION_OPTIONS, search)
    splits = {name: load_examples(run, options.split) for name, run in runs.items()}
    split = common_split(runs, splits, options.split, task.noun, "report runs of the same data together")
    predictions = {name: predict(run, splits[name], search) for name, run in runs.items()}
    results = {name: task.score_with_intervals(predictions[name], splits[name]) for name in runs}
    positions = _choose_examples(split, results, options)
    indices = np.array(positions, np.int64)
    described = {
        name: task.describe_predictions(run.model, splits[name], indices, predictions[name], results[name].per_example)
        for name, run in runs.items()
    }
    examples = {split.ids[position]: task.describe_example(split, position) for position in positions}
    names = {example.image for example in examples.values() if example.image is not None}
    images = find_images_by_name(first.data(), options.split, names, options.images) if names else {}
    result = next(iter(results.values()))
    notes = []
    if missing := sum(image is None for image in images.values()):
        folder = options.images or "the folders of the data"
        notes.append(f"{not_found(missing)} in {folder}; name their folder with --images.")
    columns = [
        ScoreColumn(name, name, description, percent=result.scores[name].is_fraction)
        for name, description in task.metric_descriptions.items()
    ]
    cards = [
        _card(identity, example, images, {name: by_id[identity] for name, by_id in described.items()})
        for identity, example in examples.items()
    ]
    breakdowns = {
        title: [(group_key(title, group), group, metric.count) for group, metric in members.items()]
        for title, members in result.groups.items()
    }
    return _write_page(
        *(runs, results, options, folders, len(split), f". {task.card_description}", columns, cards),
        *(result.notes, notes),
        noun=task.noun,
        score_name=task.score_name,
        verdicts=("correct", "wrong"),
        breakdowns=breakdowns,
    )


def common_split(runs: Mapping[str, Run], splits: Mapping[str, S], name: str, noun: str, remedy: str) -> S:
    """Return the split of the first run; raise DataError unless all have the same examples, with references."""
    first, split = next(iter(splits.items()))
    for run, other in splits.items():
        if other.ids != split.ids:
            raise DataError(f"{runs[run].folder} has other {noun} in {name} than {runs[first].folder}; {remedy}")
    missing = getattr(split, "missing_targets", None)
    if missing is not None:
        raise DataError(f"the data set has no {missing} of {name}, so nothing can be scored; choose another --split")
    return split


def _choose_examples(split: Split, results: Mapping[str, EvaluationResult], options: ReportOptions) -> list[int]:
    scores = [[result.per_example[identity] for identity in split.ids] for result in results.values()]
    return select_examples(scores, options.num_images)


def _write_page(
    runs: Mapping[str, Run],
    results: Mapping[str, EvaluationResult],
    options: ReportOptions,
    folders: Sequence[Path],
    count: int,
    lead: str,
    columns: Sequence[ScoreColumn],
    examples: Sequence[ExampleCard],
    first_notes: Sequence[str],
    last_notes: Sequence[str],
    *,
    noun: str = "images",
    score_name: str = RANKING_METRIC,
    verdicts: tuple[str, str] = ("true", "false"),
    breakdowns: Mapping[str, Sequence[tuple[str, str, int]]] | None = None,
) -> str:
    """Write the page; return the scores of each run with their intervals, and where the page is.

    count: number of examples of the split. lead: text after the numbers of models and examples. first_notes,
    last_notes: notes before and after those that all pages have. All other arguments are fields of `Report`.
    """
    names = list(runs)
    notes = [
        f"Intervals: percentile bootstrap over {noun}, 95 %, 1,000 resamples; they do not cover the variation between "
        "training seeds.",
        *first_notes,
    ]
    if len(runs) > 1:
        notes.append(
            "Differences: intervals by paired bootstrap, p by approximate randomization with 1,000 rounds; p is not "
            "corrected for several metrics or models."
        )
    if len(examples) < count:
        notes.append(
            f"{len(examples)} of {count:,} {noun} are shown: a quarter each have the highest and the lowest scores "
            "and, for several models, the largest differences between models; the others are evenly spaced."
        )
    notes += [*_seed_notes(folders, results, [column.key for column in columns]), *last_notes]
    models = "One model" if len(runs) == 1 else f"{len(runs)} models"
    report = Report(
        title=" against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}",
        lead=f"{models}, {counted(count, noun, ',')} of the split {options.split}{lead}",
        columns=columns,
        runs=model_runs(runs, results),
        examples=examples,
        footnotes=notes,
        noun=noun,
        score_name=score_name,
        verdicts=verdicts,
        breakdowns=breakdowns or {},
    )
    assert options.out is not None  # the command has chosen a name
    return summarize(report, results, write_report(report, options.out))


def _seed_notes(
    folders: Sequence[Path], results: Mapping[str, EvaluationResult], metrics: Collection[str]
) -> list[str]:
    """Return the mean scores of each folder of several seeds, and the difference of the first two such folders."""
    remaining, groups = iter(results.values()), {}
    for folder in folders:
        seeds = [next(remaining) for _ in find_seeds(folder) or [folder]]
        if len(seeds) > 1:
            values = {
                name: [seed.columns[name].value for seed in seeds] for name in metrics if name in seeds[0].columns
            }
            groups[folder] = {name: np.array(scores) for name, scores in values.items() if None not in scores}
    notes = []
    for folder, scores in groups.items():
        bounds = {name: students_interval(v) for name, v in scores.items()}
        means = ", ".join(
            f"{name} {v.mean():.3f} ± {v.std(ddof=1):.3f} ({bounds[name].low:.3f} to {bounds[name].high:.3f})"
            for name, v in scores.items()
        )
        count = len(next(iter(scores.values()), ()))
        notes.append(
            f"{folder}, mean ± standard deviation over {count} seeds, with Student's interval of the mean: {means}."
        )
    sides = list(groups.items())[:2]
    if len(sides) == 2 and len({len(values) for _, scores in sides for values in scores.values()}) == 1:
        compared = compare_pairs(sides[0][1], sides[1][1])
        differences = ", ".join(
            f"{name} {d.difference:+.3f} ({d.low:+.3f} to {d.high:+.3f}, p {d.p:.3f})" for name, d in compared.items()
        )
        notes.append(
            f"{sides[0][0]} minus {sides[1][0]} over pairs of seeds, with Student's interval and p of a permutation "
            f"test: {differences}."
        )
    return notes


def predict_with_attention(
    run: CaptionerRun, split: CaptionDataset, search: Overrides, *, positions: Sequence[int] | None = None
) -> dict[str, GeneratedCaption]:
    """Return the best caption of each image with its attention, by id; one search for each image.

    search: what is set over the model's generation_config. positions: those of the images in the split, by default all.
    The weights stay in memory: about 20 kB for a caption of 12 words, 8 heads and 50 regions.
    """
    vocabulary = run.model.require_vocabulary()
    captions: dict[str, GeneratedCaption] = {}

    def keep(batch: np.ndarray, regions: Regions, output: GenerationOutput) -> None:
        captioned = to_arrays(output, regions)
        for image, position in enumerate(batch.tolist()):
            captions[split.ids[position]] = extract_captions(captioned, vocabulary, image)[0]

    chosen = None if positions is None else np.asarray(positions, dtype=np.int64)
    generate(run, split, search, positions=chosen, attention_callback=keep)
    return captions


def _check_head(run: CaptionerRun, split: CaptionDataset, head: int) -> None:
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


def predict_and_score(
    runs: Mapping[str, CaptionerRun], splits: Mapping[str, CaptionDataset], search: Overrides
) -> tuple[dict[str, dict[str, GeneratedCaption]], dict[str, EvaluationResult]]:
    """Return the captions of each run by id, from one search for each image, and their scores.

    These are the metrics that need no Java and those of the data set, with 95 % bootstrap intervals over images.
    """
    captions, results = {}, {}
    for name, run in runs.items():
        split = splits[name]
        captions[name] = predict_with_attention(run, split, search)
        predictions = {identity: caption.text for identity, caption in captions[name].items()}
        references = dict(zip(split.ids, split.references, strict=True))
        results[name] = score_with_intervals(predictions, references, split.score)
    return captions, results


def model_runs(
    runs: Mapping[str, Run], results: Mapping[str, EvaluationResult], *, descriptions: Mapping[str, str] | None = None
) -> list[ModelRun]:
    """Return the runs with their scores.

    descriptions: by default the model's summary and the recipe that trained it.
    """
    descriptions = _describe_runs(runs) if descriptions is None else descriptions
    described = []
    for name, run in runs.items():
        # a run without history, such as an imported one, has no seconds
        history = read_history(run.folder) if (run.folder / HISTORY).exists() else ()
        seconds = max((record.get("seconds", 0.0) for record in history), default=None)
        described.append(ModelRun.of(name, descriptions[name], results, run.model.parameter_count, seconds))
    return described


def _describe_runs(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return a description of each run: its model, its recipe, and how it differs from runs of the same two.

    All differing options of the model are shown, and a few of the data and of the training.
    """
    groups: dict[str, dict[str, Run]] = {}
    for name, run in runs.items():
        recipe = run.config.get("name")
        origin = f"recipe {recipe}" if recipe else "imported" if run.imported else "no recipe"
        groups.setdefault(f"{run.model.name}, {origin}", {})[name] = run
    described = {}
    for group, alike in groups.items():
        options = {name: _options(run) for name, run in alike.items()}
        keys = dict.fromkeys(key for settings in options.values() for key in settings)
        differing = [key for key in keys if len({repr(settings.get(key)) for settings in options.values()}) > 1]
        of_model = [key for key in differing if key.startswith("model.")]
        kept = differing[: max(_MAX_OPTIONS, len(of_model))]  # those of the model come first
        for name, settings in options.items():
            shown = [f", {key}={settings[key]}" for key in kept if key in settings]
            rest = f", and {len(differing) - len(kept)} others" if len(differing) > len(kept) else ""
            described[name] = f"{alike[name].summary} ({group}{''.join(shown)}{rest})"
    return described


def _options(run: Run) -> dict[str, object]:
    """Return the settings of a run as `legenda train` takes them, by name."""
    options: dict[str, object] = {}

    def add(settings: Mapping[str, object], name: str) -> None:
        for key, value in settings.items():
            if isinstance(value, Mapping):
                add(value, f"{name}.{key}")
            else:
                options[f"{name}.{key}"] = value

    for part, settings in {
        "model": run.config.get("model", {}),
        "data": run.config.get("data", {}),
        **stages_of(run.config),
    }.items():
        add(settings, part)
    return options


def caption_card(
    identity: str,
    image: ReportImage,
    references: Sequence[str],
    captions: Mapping[str, GeneratedCaption],
    results: Mapping[str, EvaluationResult],
    *,
    with_heads: bool = True,
) -> ExampleCard:
    """Return the card of an image with the captions of all runs.

    The card has the boxes of the first run with any; a run with other regions has boxes of its own, and captions
    without boxes have no attention. results: the scores of runs that have some. with_heads: whether to keep each
    attention head, or only their mean.
    """
    boxes = _first_boxes(captions)
    views = {}
    for name, caption in captions.items():
        verdict, reason = image.check_caption(caption.text)
        views[name] = Prediction(
            caption.words,
            verdict,
            results[name].per_example[identity] if name in results else None,
            reason,
            attention=None if not caption.has_boxes else caption.heads if with_heads else caption.attention,
            boxes=None if not caption.has_boxes or caption.boxes.tolist() == boxes else caption.boxes.tolist(),
        )
    return ExampleCard(identity, image.kind, image.data_url, boxes, references, views)


def _first_boxes(captions: Mapping[str, GeneratedCaption]) -> list[list[float]]:
    """Return the boxes of the first run that has them; none where the features of no run have boxes."""
    return next((caption.boxes.tolist() for caption in captions.values() if caption.has_boxes), [])


def _heads_fit_page_budget(images: Collection[Mapping[str, GeneratedCaption]]) -> bool:
    """Return whether the page may hold every attention head: 100 photographs with them stay below 20 MB."""
    captions = [caption for by_run in images for caption in by_run.values() if caption.has_boxes]
    characters = sum(encoded_size(caption.heads) + 7 * average_heads(caption.heads).size for caption in captions)
    return characters <= _MAX_ATTENTION_CHARACTERS * len(images)


def _write_overlays(
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


def _card(
    identity: str, example: Example, images: Mapping[str, ReportImage | None], predictions: Mapping[str, Prediction]
) -> ExampleCard:
    """Return one card; boxes in an image that is not found are drawn on a blank canvas."""
    image = None if example.image is None else images[example.image]
    if image is None and example.size is not None:
        width, height = (max(1, round(_CANVAS_SIDE * side / max(example.size))) for side in example.size)
        image = ReportImage(blank_canvas((), size=(width, height)), missing=True)
    url = None if image is None else image.data_url
    return ExampleCard(identity, example.kind, url, (), (), predictions, example.facts, example.box)
