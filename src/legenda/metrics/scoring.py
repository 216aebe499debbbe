"""Score a file of captions against a file of references, as tables and as JSON.

Image ids are strings here, whatever they are in a file: COCO's 42 becomes "42".
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from rich import box
from rich.table import Table

from legenda.errors import ConfigError, DataError
from legenda.io import get_field, read_json
from legenda.metrics import (
    WITHOUT_JAVA,
    Difference,
    DocumentFrequencies,
    Interval,
    Scores,
    compare,
    evaluate,
    intervals,
    measure_diversity,
    novel_fraction,
    score_oracle,
    vocabulary_size,
)
from legenda.metrics.evaluation import resolve_document_frequencies
from legenda.text.annotations import parse_karpathy, read_annotations, table_kind

if TYPE_CHECKING:
    from legenda.cli.score import ScoreOptions

_RESULTS = 'give a list of {"image_id", "caption"} as for COCO, or an object {id: caption}'
_REFERENCES = "give COCO's or Karpathy's annotations, a table of files and captions, or an object {id: [captions]}"


def read_predictions(path: str | Path) -> dict[str, list[str]]:
    """Return the captions of each image in a file of predictions, JSON or gzipped JSON, in the file's order.

    The file holds a list of objects with `image_id` and `caption`, as COCO's server takes it, or an object from ids to
    one caption or to a list of several, or what `legenda evaluate` writes. A caption may be empty.
    Raise DataError, naming the file and the image, for an id that occurs twice and for a caption that is not text.
    """
    path = Path(path)
    content = read_json(path, _RESULTS)
    if isinstance(content, dict) and isinstance(content.get("captions"), dict):
        content = content["captions"]
    if isinstance(content, dict):
        predictions = {name: _captions(path, name, value, _RESULTS) for name, value in content.items()}
    elif isinstance(content, list):
        predictions = {}
        for number, entry in enumerate(content):
            name, caption = _entry(path, f"entry {number}", entry, _RESULTS)
            if name in predictions:
                raise DataError(f"{path} has more than one caption for image {name}; leave one")
            predictions[name] = [caption]
    else:
        raise DataError(f"{path} holds a JSON {type(content).__name__}; {_RESULTS}")
    if not predictions:
        raise DataError(f"{path} holds no captions; {_RESULTS}")
    return predictions


def read_single_predictions(path: str | Path) -> dict[str, str]:
    """Return the caption of each image as `read_predictions` does; raise DataError for an image with several."""
    groups = read_predictions(path)
    for image, group in groups.items():
        if len(group) > 1:
            raise DataError(f"{path} has {len(group)} captions for image {image}; only one can be compared")
    return {image: group[0] for image, group in groups.items()}


def read_references(path: str | Path, *, split: str | None = None) -> dict[str, list[str]]:
    """Return the references of each image in a file, perhaps gzipped, in the file's order.

    The file is COCO's annotations (captions_val2014.json), or in Karpathy's layout (dataset_coco.json), or an object
    from ids to lists of captions, or a .csv, .tsv or .jsonl as `read_annotations` reads it. Images without references
    are left out.
    split: only the images of train, val or test; only Karpathy's layout and tables have splits.
    Raise DataError, naming the file and the image, for what is missing or not text, and where there are no references.
    """
    path = Path(path)
    is_table = bool(table_kind(path))
    content = {} if is_table else read_json(path, _REFERENCES)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}; {_REFERENCES}")
    references: dict[str, list[str]] = {}
    if is_table or (isinstance(content.get("images"), list) and "annotations" not in content):
        for image in read_annotations(path) if is_table else parse_karpathy(content, path):
            if split in (None, image.split.replace("restval", "train")) and image.captions:
                references[image.id] = list(image.captions)
    elif split is not None:
        raise DataError(
            f"{path} does not say which images are of the split {split}; only Karpathy's layout and tables do"
        )
    elif isinstance(content.get("annotations"), list):
        for number, entry in enumerate(content["annotations"]):
            name, caption = _entry(path, f"annotations[{number}]", entry, _REFERENCES)
            references.setdefault(name, []).append(caption)
    else:
        references = {name: _captions(path, name, value, _REFERENCES) for name, value in content.items()}
    if not references:
        where = "" if split is None else f" for the split {split}"
        raise DataError(f"{path} holds no references{where}; {_REFERENCES}")
    return references


def read_domains(path: str | Path) -> dict[str, list[str]]:
    """Return the ids of the images of each domain in nocaps' annotations: in-domain, near-domain and out-domain.

    Other files have none. Raise DataError for a file that cannot be read, and where only some images have a domain.
    """
    path = Path(path)
    content = None if table_kind(path) else read_json(path, _REFERENCES)
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not any(isinstance(image, dict) and "domain" in image for image in images):
        return {}
    domains: dict[str, list[str]] = {}
    for number, image in enumerate(images):
        where = f"images[{number}] of {path}"
        domain = get_field(image, "domain", str, where, _REFERENCES)
        domains.setdefault(domain, []).append(str(get_field(image, "id", int | str, where, _REFERENCES)))
    return dict(sorted(domains.items()))


def _captions(path: Path, name: str, value: Any, hint: str) -> list[str]:
    captions = value if isinstance(value, list) else [value]
    if not captions:
        raise DataError(f"{path} has no caption for image {name}; {hint}")
    for caption in captions:
        if not isinstance(caption, str):
            raise DataError(f"{path}: the caption of image {name} is {type(caption).__name__}, not text; {hint}")
    return captions


def _entry(path: Path, where: str, entry: Any, hint: str) -> tuple[str, str]:
    where = f"{where} of {path}"
    return str(get_field(entry, "image_id", int | str, where, hint)), get_field(entry, "caption", str, where, hint)


Captions = Mapping[str, Sequence[str]]
T = TypeVar("T")


_SETS = (("auto",), ("fast",))
"""Values of --metrics that name several metrics."""


@dataclass
class ScoringReport:
    """The results of scoring: `tables` (lines of text and rich tables) to print, `results` for a JSON file, and
    `notices` about metrics that could not be computed.
    """

    tables: list[Any]
    results: dict[str, Any]
    notices: list[str]

    def add_scores(
        self, name: str, title: str, scores: Scores, resampling: Mapping[str, int], **facts: str
    ) -> dict[str, Any]:
        """Add scores with their intervals, and return their results, which start with the facts."""
        bounds = intervals(scores, **resampling)
        self.tables += [title, score_table(scores, bounds)]
        self.notices += [notice for notice in scores.notices if notice not in self.notices]
        self.results[name] = {**facts, **scores.to_dict(), "intervals": as_dicts(bounds)}
        return self.results[name]


def score_files(options: ScoreOptions) -> ScoringReport:
    """Return the scores of one caption an image, or the diversity and the best of several captions an image.

    Raise ConfigError for options out of range, and DataError for files that cannot be read or do not match.
    """
    predictions = read_predictions(options.predictions)
    several = any(len(captions) > 1 for captions in predictions.values())
    if (options.images is None) != (options.clip is None):
        raise ConfigError("--images FOLDER and --clip MODEL go together; name both")
    if options.clip is not None and several:
        raise ConfigError(f"{options.predictions} has several captions an image, --clip takes one; leave --clip out")
    if several:
        report = _score_samples(options, predictions)
    else:
        report = _score_captions(options, {image: group[0] for image, group in predictions.items()})
    captions = [caption for group in predictions.values() for caption in group]
    size = report.results["vocabulary"] = vocabulary_size(captions)
    report.tables.append(f"{len(captions)} captions of {len(predictions)} images use {size} different words")
    if options.train_captions is not None:
        known = [caption for group in read_references(options.train_captions).values() for caption in group]
        novel = report.results["novel"] = novel_fraction(captions, known)
        report.tables.append(f"{100 * novel:.1f} % of the captions are not in {options.train_captions}")
    return report


def _score_captions(options: ScoreOptions, predictions: Mapping[str, str]) -> ScoringReport:
    """Score one caption an image: scores, intervals and comparison for each set of references."""
    others = {} if options.compare_with is None else read_single_predictions(options.compare_with)
    frequencies = _count_document_frequencies(options.document_frequencies)
    sets = {"c5" if options.c40 else "scores": _read_references(options)}
    domains = read_domains(options.references).items()
    if options.c40 is not None:
        sets["c40"] = read_references(options.c40)
    references = next(iter(sets.values()))
    parts = {name: {image: references[image] for image in images if image in references} for name, images in domains}
    sets |= {name: part for name, part in parts.items() if part}
    resampling = {"resamples": options.resamples, "seed": options.seed}
    files = {"predictions": str(options.predictions), "references": str(options.references)}
    report = ScoringReport([], files | resampling, [])
    for name, references in sets.items():
        # Only some of COCO's images have 40 references, or are of a domain: predictions of the others are expected.
        subset = name == "c40" or name in parts
        first = _match(options, options.predictions, predictions, references, subset=subset)
        scores = _evaluate(options, first, references, frequencies)
        source = "" if scores.df is None else f"; document frequencies of {scores.documents} images: {scores.df}"
        results = report.add_scores(name, f"{name}: {len(first)} images{source}", scores, resampling)
        if options.compare_with is not None:
            second = _match(options, options.compare_with, others, references, subset=subset)
            if set(second) != set(first):
                raise DataError(
                    f"{options.predictions} and {options.compare_with} are of different images; score the same images"
                )
            compared = _evaluate(options, second, references, frequencies)
            differences = compare(scores, compared, **resampling)
            results["compare_with"] = {
                "predictions": str(options.compare_with),
                **compared.to_dict(),
                "differences": as_dicts(differences),
            }
            report.tables += [
                f"{name}: {options.predictions} (first) compared with {options.compare_with} (second)",
                comparison_table(scores, compared, differences),
            ]
    return report


def _score_samples(options: ScoreOptions, predictions: Captions) -> ScoringReport:
    """Score several captions an image: their diversity, and the best of them."""
    if options.compare_with is not None or options.c40 is not None:
        raise ConfigError(
            f"{options.predictions} has several captions an image, but --compare-with and --c40 expect one; "
            "leave them out"
        )
    references = _read_references(options)
    samples = _match(options, options.predictions, predictions, references)
    references = {image: references[image] for image in samples}
    frequencies = _count_document_frequencies(options.document_frequencies)
    diversity = measure_diversity(samples, df=references if frequencies is None else frequencies)
    metrics = WITHOUT_JAVA if options.metrics in _SETS else options.metrics
    oracles = score_oracle(samples, references, metrics=metrics, df=frequencies)
    source = str(options.document_frequencies or options.references)
    results = {
        "predictions": str(options.predictions),
        "references": str(options.references),
        "diversity": {**asdict(diversity), "df": source},
        "oracle": {name: asdict(oracle) for name, oracle in oracles.items()},
    }
    measures = (("distinct", diversity.distinct), ("mBLEU", diversity.mbleu))
    rows = [(f"{kind}-{n}", value) for kind, values in measures for n, value in enumerate(values, start=1)]
    tables = [
        f"diversity of {len(samples)} images; self-CIDEr's document frequencies of {diversity.documents}: {source}",
        _table(("measure", "value"), [*rows, ("self-CIDEr", diversity.self_cider)]),
        "each caption scored alone, mean over images",
        _table(("metric", "best caption", "mean caption"), ((name, o.best, o.mean) for name, o in oracles.items())),
    ]
    return ScoringReport(tables, results, [])


def _read_references(options: ScoreOptions) -> dict[str, list[str]]:
    references = read_references(options.references, split=options.split)
    return {image: captions[: options.references_per_image] for image, captions in references.items()}


def _match(
    options: ScoreOptions, path: Path, predictions: Mapping[str, T], references: Captions, *, subset: bool = False
) -> dict[str, T]:
    """Return the predictions of images with references; raise DataError for images without a counterpart.

    subset: whether predictions may have more images than references.
    """
    if missing := [image for image in references if image not in predictions]:
        if not options.only_predicted:
            raise DataError(
                f"{path} lacks {len(missing)} of the {len(references)} images with references, such as {missing[0]}, "
                f"and has captions of {next(iter(predictions), 'none')} and others; predict "
                "them, name a --split, or add --only-predicted"
            )
        if len(missing) == len(references):
            raise DataError(f"{path} has no image in common with the references; check which files belong together")
    extra = [image for image in predictions if image not in references]
    if extra and not (subset or options.only_referenced):
        raise DataError(
            f"{path} has captions for {len(extra)} images without references, such as {extra[0]}; "
            "add --only-referenced, or name other references"
        )
    return {image: prediction for image, prediction in predictions.items() if image in references}


def _count_document_frequencies(path: Path | None) -> DocumentFrequencies | None:
    if path is None:
        return None
    return resolve_document_frequencies(read_references(path), (), tokenized=False)[0]


def _evaluate(
    options: ScoreOptions, captions: Mapping[str, str], references: Captions, frequencies: DocumentFrequencies | None
) -> Scores:
    metrics = options.metrics[0] if options.metrics in _SETS else options.metrics
    references = {image: references[image] for image in captions}
    with warnings.catch_warnings(action="ignore"):
        scores = evaluate(captions, references, metrics=metrics, df=frequencies, spice_jars=options.spice_jars)
    if options.images is not None and options.clip is not None:
        from legenda.models.clip import add_clip_scores, find_image_files, load_clip

        files = find_image_files(options.images, list(captions))
        scores = add_clip_scores(scores, captions, references, files, load_clip(options.clip))
    if frequencies is None or scores.df is None:
        return scores
    return dataclasses.replace(scores, df=str(options.document_frequencies))


def as_dicts(values: Mapping[str, Any]) -> dict[str, dict[str, float] | None]:
    return {name: None if value is None else asdict(value) for name, value in values.items()}


def score_table(scores: Scores, bounds: Mapping[str, Interval | None]) -> Table:
    """Return a table with the score and the interval of each metric."""
    rows = ((metric, value, _format_interval(bounds[metric])) for metric, value in scores.corpus.items())
    return _table(("metric", "score", "95 % interval"), rows)


def comparison_table(first: Scores, second: Scores, differences: Mapping[str, Difference | None]) -> Table:
    """Return a table with both scores of each metric, their difference, its interval, and p."""
    rows = []
    for metric, value in first.corpus.items():
        compared = differences[metric]
        difference = None if compared is None else f"{compared.difference:+.4f}"
        p = None if compared is None else compared.p
        rows.append((metric, value, second.corpus[metric], difference, _format_interval(compared), p))
    return _table(("metric", "first", "second", "difference", "95 % interval", "p"), rows)


def seed_table(scores: Mapping[str, np.ndarray]) -> Table:
    """Return a table with mean and standard deviation of each metric over seeds."""
    return _table(
        ("metric", "mean", "standard deviation"), ((name, v.mean(), v.std(ddof=1)) for name, v in scores.items())
    )


def seed_comparison_table(rows: Iterable[tuple[str, np.ndarray, np.ndarray, Difference]]) -> Table:
    """Return a table with both means and standard deviations, the difference, its interval, and p."""
    lines = []
    for metric, *sides, compared in rows:
        means = (f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" for values in sides)  # fits 80 columns
        lines.append((metric, *means, f"{compared.difference:+.4f}", _format_interval(compared), compared.p))
    return _table(("metric", "first", "second", "difference", "95 % interval", "p"), lines)


def disagreement_table(rows: Iterable[tuple[str, float, float, float, Any, Any]]) -> Table:
    """Return a table of examples with the difference of two scores, the scores, and the predictions that have them."""
    lines = [
        line
        for name, difference, a, b, first, second in rows
        for line in ((name, f"{difference:+.4f}", a, str(first)), ("", "", b, str(second)))
    ]
    table = _table(("id", "difference", "score", "first, second"), lines)
    table.columns[-1].justify = "left"
    return table


def _table(columns: Iterable[str], rows: Iterable[Iterable[str | float | None]]) -> Table:
    """Return a table whose first column is text; numbers have four decimals, and None is "none"."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(
            *(f"{cell:.4f}" if isinstance(cell, float | int) else "none" if cell is None else cell for cell in row)
        )
    return table


def _format_interval(interval: Interval | Difference | None) -> str | None:
    return None if interval is None else f"{interval.low:.4f} .. {interval.high:.4f}"
