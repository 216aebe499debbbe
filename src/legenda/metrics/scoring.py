"""Score a file of captions against a file of references, as tables and as JSON.

Image ids are strings here, whatever they are in a file: COCO's 42 becomes "42".
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field
from rich import box
from rich.table import Table

from legenda.config import Config, NonNegativeInt, PositiveInt
from legenda.errors import ConfigError, DataError
from legenda.io import coco_number, parse_json, read_text
from legenda.metrics import (
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
from legenda.metrics.cider import COCO, coco_frequencies
from legenda.metrics.evaluation import as_tokens, describe_metrics, resolve_document_frequencies
from legenda.metrics.resampling import students_interval
from legenda.terminal import counted
from legenda.text.annotations import SHARDS, listed_rows, load_annotations, parse_captions
from legenda.text.ngrams import Comparison
from legenda.text.tables import Columns, Row, image_name, is_json, read_rows

T = TypeVar("T")
Captions = Mapping[str, Sequence[str]]

_RESULTS = (
    'give a list of {"image_id", "caption"} as for COCO, an object {id: caption}, or what `legenda caption` writes'
)
_REFERENCES = "give COCO's or Karpathy's annotations, a table of files and captions, or an object {id: [captions]}"


_PREDICTED = Columns(predicted=True)


def read_predictions(path: str | Path) -> dict[str, list[str]]:
    """Return the captions of each image in a file of predictions, perhaps gzipped, in the file's order.

    The file holds a list of objects with `image_id` and `caption`, as COCO's server takes it, or an object from ids to
    one caption or to a list of several, or what `legenda evaluate` or `legenda caption` writes, in any format or as a
    folder of shards, or another table of images and captions. A caption may be empty.
    Raise DataError, naming the file and the image, for an id that occurs twice, one without a caption, and for a
    caption that is not text.
    """
    path = Path(path)
    if path.is_dir():
        shards = sorted(path.glob(SHARDS))
        predictions = _grouped(row for file in shards for row in read_rows(file, read_text(file), _PREDICTED))
    elif not is_json(path, text := read_text(path, _RESULTS)):
        predictions = _grouped(read_rows(path, text, _PREDICTED))
    elif isinstance(content := parse_json(text, path, _RESULTS), list):
        rows = listed_rows(content, path, _PREDICTED)
        predictions = _grouped(rows)
        if len(predictions) < len(rows):
            twice = next(name for name, count in Counter(row.file for row in rows).items() if count > 1)
            raise DataError(f"{path} has more than one caption for image {twice}; leave one")
    elif isinstance(content, dict):
        captions = content.get("captions")
        predictions = parse_captions(captions if isinstance(captions, dict) else content, path, _RESULTS)
    else:
        raise DataError(f"{path} holds a JSON {type(content).__name__}; {_RESULTS}")
    if not predictions:
        raise DataError(f"{path} holds no captions; {_RESULTS}")
    for image, group in predictions.items():
        if not group:
            raise DataError(f"{path} has no caption for image {image}; {_RESULTS}")
    return predictions


def _grouped(rows: Iterable[Row]) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for row in rows:
        captions.setdefault(row.file, []).extend(row.captions)
    return captions


def read_single_predictions(path: str | Path) -> dict[str, str]:
    """Return the caption of each image as `read_predictions` does; raise DataError for an image with several."""
    groups = read_predictions(path)
    for image, group in groups.items():
        if len(group) > 1:
            raise DataError(f"{path} has {len(group)} captions for image {image}; only one can be compared")
    return {image: group[0] for image, group in groups.items()}


@dataclass(frozen=True)
class References:
    """The human captions that predictions are scored against, by image.

    captions: the references by id. files: the file or name of each image. domains: the ids of each domain in nocaps'
    annotations, in-domain, near-domain and out-domain; other files have none.
    """

    path: Path
    captions: dict[str, list[str]]
    files: Mapping[str, str]
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def select(self, images: Iterable[str]) -> References:
        """Return the references of some images."""
        captions = {image: self.captions[image] for image in images if image in self.captions}
        return dataclasses.replace(self, captions=captions, domains={})

    def rename(self, path: Path, predictions: Mapping[str, T]) -> dict[str, T]:
        """Return predictions by the ids of the references, whatever they call the images.

        An image is known by its id, by its file with or without folders and suffix, or by COCO's number; other names
        stay. path: the file of the predictions. Raise DataError where two predictions are of one image.
        """
        if all(name in self.captions for name in predictions):
            return dict(predictions)
        renamed: dict[str, T] = {}
        owners: dict[str, str] = {}
        for name, value in predictions.items():
            image = name if name in self.captions else self._find(name)
            if (other := owners.setdefault(image, name)) != name:
                raise DataError(
                    f"{path} has captions of '{other}' and '{name}', which both are image {image}; leave one"
                )
            renamed[image] = value
        return renamed

    def _find(self, name: str) -> str:
        known = (self._ids[alias] for alias in _aliases(name) if len(self._ids.get(alias, ())) == 1)
        return next((image for images in known for image in images), name)

    @cached_property
    def _ids(self) -> Mapping[str, set[str]]:
        """The ids of the images that may be called by a name."""
        ids: dict[str, set[str]] = {}
        for image in self.captions:
            for alias in {*_aliases(image), *_aliases(self.files[image])}:
                ids.setdefault(alias, set()).add(image)
        return ids


_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")
"""The prefix that Label Studio puts before the names of uploaded files."""


def _aliases(name: str) -> list[str]:
    """Return the names by which an image may be known, the strictest first."""
    stem = image_name(name)
    return [name, PurePosixPath(name).name, stem, coco_number(stem) or stem, _UPLOADED.sub("", stem)]


def load_references(
    path: str | Path, *, split: str | None = None, columns: Columns | None = None, limit: int | None = None
) -> References:
    """Return the references of each image in a file, perhaps gzipped, or in a folder, in the file's order.

    The file is anything that `read_annotations` reads. Images without references are left out.
    split: only the images of train, val or test, which Karpathy's layout, tables and folders with a file of each split
    name. limit: the number of references of an image, the first ones, or all.
    Raise DataError, naming the file and the image, for what is missing or not text, and where there are no references.
    """
    path = Path(path)
    annotations = load_annotations(path, columns)
    if split is not None and not annotations.splits:
        raise DataError(
            f"{path} does not say which images are of the split {split}, as Karpathy's layout, tables and folders with "
            "a file of each split do; leave the split out, or name other references"
        )
    images = [
        image
        for image in annotations.images
        if image.captions and split in (None, image.split.replace("restval", "train"))
    ]
    if not images:
        where = "" if split is None else f" for the split {split}"
        raise DataError(f"{path} holds no references{where}; {_REFERENCES}")
    captions = {image.id: list(image.captions[:limit]) for image in images}
    files = {image.id: image.file for image in images}
    return References(path, captions, files, annotations.domains)


def read_references(path: str | Path, *, split: str | None = None) -> dict[str, list[str]]:
    """Return the references of each image by its id; see `load_references`."""
    return load_references(path, split=split).captions


_SETS = (("auto",), ("fast",))
"""Values of --metrics that name several metrics."""


class ScoreOptions(Config):
    """Which captions are scored against which references, by which metrics."""

    predictions: Path
    """COCO results (a list of image_id and caption), {id: caption}, {id: [captions]}, an evaluation_SPLIT.json, or what
    legenda caption writes; images are found by id, by file name or by COCO's number."""
    references: Path
    """COCO's or Karpathy's annotations, {id: [captions]}, a table, Flickr's own files, or a folder of images with text
    files beside them, perhaps gzipped; those of nocaps are scored in, near and out of domain too, each with document
    frequencies of its own."""
    split: Literal["train", "val", "test"] | None = None
    """Use only the references of this split, where the references name splits, as Karpathy's layout does."""
    file_column: str | None = None
    """The column of a table of references that names the image, where it is not file, image, path or the like."""
    caption_column: str | None = None
    """The column of a table of references that holds captions, where it is not caption, text or the like."""
    only_predicted: bool = False
    """Leave out references of images without a prediction; otherwise every image must have one."""
    only_referenced: bool = False
    """Leave out predictions of images without references."""
    references_per_image: PositiveInt | None = None
    """Use at most this many references of each image, the first ones; COCO's c5 has 5."""
    c40: Path | None = None
    """COCO's second set of references, 40 an image for some of the images; scored in a table of its own."""
    metrics: tuple[str, ...] = Field(("auto",), description=describe_metrics())
    document_frequencies: Path | None = None
    """References to count CIDEr-D's document frequencies in, such as captions_val2014.json, or coco for those of COCO
    that Legenda holds; default: those scored."""
    compare_with: Path | None = None
    """A second file of predictions for the same images, to compare with."""
    train_captions: Path | None = None
    """Training references, to report the share of captions that are not among them."""
    resamples: PositiveInt = 1000
    """Number of draws of the bootstrap and of rounds of the randomization."""
    seed: NonNegativeInt = 0
    """Seed of the resampling."""
    spice_jars: Path | None = None
    """The folder of SPICE's jars; default: the environment variable LEGENDA_SPICE_JARS."""


AddScores = Callable[[Scores[str], Mapping[str, str], Captions], Scores[str]]
"""A function that adds scores which need more than words; it takes the scores, the captions and the references."""


@dataclass
class ScoringReport:
    """The results of scoring: `tables` (lines of text and rich tables) to print, `results` for a JSON file, and
    `notices` about metrics that could not be computed.
    """

    tables: list[str | Table]
    results: dict[str, Any]
    notices: list[str]

    def add_scores(
        self, name: str, title: str, scores: Scores[str], resampling: Mapping[str, int], **facts: str
    ) -> dict[str, object]:
        """Add scores with their intervals, and return their results, which start with the facts."""
        bounds = intervals(scores, **resampling)
        self.tables += [title, _score_table(scores, bounds)]
        self.notices += [notice for notice in scores.notices if notice not in self.notices]
        self.results[name] = {**facts, **scores.to_dict(), "intervals": as_dicts(bounds)}
        return self.results[name]


def score_files(options: ScoreOptions, add_scores: AddScores | None = None) -> ScoringReport:
    """Return the scores of one caption an image, or the diversity and the best of several captions an image.

    Raise ConfigError for options out of range, and DataError for files that cannot be read or do not match.
    """
    predictions = read_predictions(options.predictions)
    several = any(len(captions) > 1 for captions in predictions.values())
    if add_scores is not None and several:
        raise ConfigError(f"{options.predictions} has several captions an image, --clip takes one; leave --clip out")
    if several:
        report = _score_samples(options, predictions)
    else:
        report = _score_captions(options, {image: group[0] for image, group in predictions.items()}, add_scores)
    captions = [caption for group in predictions.values() for caption in group]
    if empty := [image for image, group in predictions.items() if not all(map(str.strip, group))]:
        report.notices.append(
            f"{options.predictions} has {sum(not caption.strip() for caption in captions)} empty captions, which count "
            f"as they are, the first of image {empty[0]}"
        )
    size = report.results["vocabulary"] = vocabulary_size(captions)
    report.tables.append(
        f"{counted(len(captions), 'captions')} of {counted(len(predictions), 'images')} "
        f"{'uses' if len(captions) == 1 else 'use'} {counted(size, 'different words')}"
    )
    if options.train_captions is not None:
        known = [caption for group in read_references(options.train_captions).values() for caption in group]
        novel = report.results["novel"] = novel_fraction(captions, known)
        report.tables.append(f"{100 * novel:.1f} % of the captions are not in {options.train_captions}")
    return report


def _score_captions(
    options: ScoreOptions, predictions: Mapping[str, str], add_scores: AddScores | None
) -> ScoringReport:
    """Score one caption an image: scores, intervals and comparison for each set of references."""
    others = {} if options.compare_with is None else read_single_predictions(options.compare_with)
    frequencies = _count_document_frequencies(options.document_frequencies)
    whole = _load_references(options)
    sets = {"c5" if options.c40 else "scores": whole}
    if options.c40 is not None:
        sets["c40"] = load_references(options.c40)
    predicted = _match(options, options.predictions, predictions, whole)
    parts = {name: whole.select(filter(predicted.__contains__, images)) for name, images in whole.domains.items()}
    sets |= {name: part for name, part in parts.items() if part.captions}
    resampling = {"resamples": options.resamples, "seed": options.seed}
    files = {"predictions": str(options.predictions), "references": str(options.references)}
    report = ScoringReport([], files | resampling, [])
    for name, known in sets.items():
        references = known.captions
        # Only some of COCO's images have 40 references, or are of a domain: predictions of the others are expected.
        subset = name == "c40" or name in parts
        first = _match(options, options.predictions, predictions, known, subset=subset)
        scores = _evaluate(options, first, references, frequencies, add_scores)
        if frequencies is None and (notice := _describe_coincidence(scores, references)) is not None:
            report.notices.append(notice)
        source = "" if scores.df is None else f"; document frequencies of {scores.documents} images: {scores.df}"
        results = report.add_scores(name, f"{name}: {counted(len(first), 'images')}{source}", scores, resampling)
        if options.compare_with is not None:
            second = _match(options, options.compare_with, others, known, subset=subset)
            if set(second) != set(first):
                raise DataError(
                    f"{options.predictions} and {options.compare_with} are of different images; score the same images"
                )
            compared = _evaluate(options, second, references, frequencies, add_scores)
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
    known = _load_references(options)
    samples = _match(options, options.predictions, predictions, known)
    references = {image: known.captions[image] for image in samples}
    frequencies = _count_document_frequencies(options.document_frequencies)
    diversity = measure_diversity(samples, df=references if frequencies is None else frequencies)
    metrics = "fast" if options.metrics in _SETS else options.metrics
    oracles = score_oracle(samples, references, metrics=metrics, df=frequencies, spice_jars=options.spice_jars)
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
        f"diversity of {counted(len(samples), 'images')}; self-CIDEr's document frequencies of "
        f"{diversity.documents}: {source}",
        _table(("measure", "value"), [*rows, ("self-CIDEr", diversity.self_cider)]),
        "each caption scored alone, mean over images",
        _table(("metric", "best caption", "mean caption"), ((name, o.best, o.mean) for name, o in oracles.items())),
    ]
    return ScoringReport(tables, results, [])


def _load_references(options: ScoreOptions) -> References:
    columns = Columns(file=options.file_column, caption=options.caption_column)
    limit = options.references_per_image
    return load_references(options.references, split=options.split, columns=columns, limit=limit)


def _match(
    options: ScoreOptions, path: Path, predictions: Mapping[str, T], known: References, *, subset: bool = False
) -> dict[str, T]:
    """Return the predictions of images with references; raise DataError for images without a counterpart.

    subset: whether predictions may have more images than references.
    """
    predictions, references = known.rename(path, predictions), known.captions
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
            f"{path} has captions for {counted(len(extra), 'images')} without references, such as {extra[0]}; "
            "add --only-referenced, or name other references"
        )
    return {image: prediction for image, prediction in predictions.items() if image in references}


def _count_document_frequencies(path: Path | None) -> DocumentFrequencies | None:
    if path is None:
        return None
    if str(path) == COCO and not path.exists():
        return coco_frequencies()
    return resolve_document_frequencies(read_references(path), (), tokenized=False)[0]


def _describe_coincidence(scores: Scores[str], references: Captions) -> str | None:
    """Return a sentence that explains a CIDEr of 0 where every image has the same n-grams, which then have no weight.

    None where there is nothing to explain.
    """
    if not {"CIDEr-D", "CIDEr"} & scores.corpus.keys() or any(scores.corpus.get(name) for name in ("CIDEr-D", "CIDEr")):
        return None
    if Comparison((), [as_tokens(captions) for captions in references.values()]).inverse_frequencies(None).any():
        return None
    images = "a single image" if len(references) == 1 else f"{len(references)} images with the same references"
    return (
        f"CIDEr-D weighs an n-gram by how few of the images scored have it, so that it is 0 for {images}; count in "
        "others with --document-frequencies, in COCO's, which Legenda holds, with --document-frequencies coco"
    )


def _evaluate(
    options: ScoreOptions,
    captions: Mapping[str, str],
    references: Captions,
    frequencies: DocumentFrequencies | None,
    add_scores: AddScores | None,
) -> Scores[str]:
    metrics = options.metrics[0] if options.metrics in _SETS else options.metrics
    references = {image: references[image] for image in captions}
    with warnings.catch_warnings(action="ignore"):
        scores = evaluate(captions, references, metrics=metrics, df=frequencies, spice_jars=options.spice_jars)
    if add_scores is not None:
        scores = add_scores(scores, captions, references)
    if frequencies is None or scores.df is None:
        return scores
    return dataclasses.replace(scores, df=str(options.document_frequencies))


def as_dicts(values: Mapping[str, Interval | Difference | None]) -> dict[str, dict[str, float] | None]:
    """Return intervals or differences by metric as JSON holds them."""
    return {name: None if value is None else asdict(value) for name, value in values.items()}


def _score_table(scores: Scores[str], bounds: Mapping[str, Interval | None]) -> Table:
    """Return a table with the score and the interval of each metric."""
    rows = ((metric, value, _format_interval(bounds[metric])) for metric, value in scores.corpus.items())
    return _table(("metric", "score", "95 % interval"), rows)


def comparison_table(first: Scores[str], second: Scores[str], differences: Mapping[str, Difference | None]) -> Table:
    """Return a table with both scores of each metric, their difference, its interval, and p."""
    rows = []
    for metric, value in first.corpus.items():
        compared = differences[metric]
        difference = None if compared is None else f"{compared.difference:+.4f}"
        p = None if compared is None else compared.p
        rows.append((metric, value, second.corpus[metric], difference, _format_interval(compared), p))
    return _table(("metric", "first", "second", "difference", "95 % interval", "p"), rows)


def seed_table(scores: Mapping[str, np.ndarray]) -> Table:
    """Return a table with mean, standard deviation, and Student's interval of the mean, of each metric over seeds."""
    rows = (
        (name, values.mean(), values.std(ddof=1), _format_interval(students_interval(values)))
        for name, values in scores.items()
    )
    return _table(("metric", "mean", "standard deviation", "95 % interval"), rows)


def seed_comparison_table(rows: Iterable[tuple[str, np.ndarray, np.ndarray, Difference]]) -> Table:
    """Return a table with both means and standard deviations, the difference, its interval, and p."""
    lines = []
    for metric, *sides, compared in rows:
        means = (f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" for values in sides)  # fits 80 columns
        lines.append((metric, *means, f"{compared.difference:+.4f}", _format_interval(compared), compared.p))
    return _table(("metric", "first", "second", "difference", "95 % interval", "p"), lines)


def disagreement_table(rows: Iterable[tuple[str, float, float, float, object, object]]) -> Table:
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
