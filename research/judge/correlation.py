"""Rank correlation of the metrics with published human ratings of captions.

As in the evaluations of SPICE (Anderson et al., 2016) and CLIPScore (Hessel et al., 2021): of several raters, each
rating is one observation, and captions that are references of their image are not scored against themselves.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from scipy.stats import kendalltau, spearmanr

from legenda.errors import DataError
from legenda.evaluation.comparison import score_per_image
from legenda.io import parse_json, read_text, verified
from legenda.metrics.scoring import ScoringReport, read_references

_HINT = (
    "name Flickr8k's ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, or a table (.csv, .json) of image_id, "
    "caption, rating"
)
_TOKENS = "name Flickr8k.token.txt with --references"
_SCALE = (1, 2, 3, 4)  # of the experts


@dataclass(frozen=True)
class _Rated:
    """A caption of an image with the ratings of it."""

    image: str
    caption: str
    ratings: tuple[float, ...]


def correlate(path: Path, references: Path, *, metrics: str = "auto") -> ScoringReport:
    """Return Kendall's tau-b and tau-c and Spearman's rho of every metric with the ratings of a file.

    path: Flickr8k's ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, or a table of image_id, caption and rating
    (CSV, or a JSON list). references: Flickr8k.token.txt, or a file as `read_references` reads it. metrics: "fast" or
    "auto". Captions that are references of their image are left out; CrowdFlower's stay, and are taken from the
    references, as in CLIPScore's release. Raise DataError for files that cannot be read or do not match.
    """
    flickr = references.suffix == ".txt"
    captions, known = _read_tokens(references) if flickr else ({}, read_references(references))
    crowd, rated = _read_flickr(path, captions) if path.suffix == ".txt" else (False, _read_table(path, flickr))
    if missing := [entry.image for entry in rated if not known.get(entry.image)]:
        raise DataError(
            f"{references} has no references of image {missing[0]!r}; name a file that has with --references"
        )
    taken = {(entry.image, entry.caption) for entry in rated} if crowd else set()
    groups = {
        image: [text for text in group if (image, _normalize(text)) not in taken] for image, group in known.items()
    }
    kept = [
        entry for entry in rated if groups[entry.image] and entry.caption not in map(_normalize, groups[entry.image])
    ]
    if len(kept) < 2:
        raise DataError(f"{path} rates fewer than two captions that are no references of their image; {_HINT}")
    scores = score_per_image(
        {str(number): entry.caption for number, entry in enumerate(kept)},
        {str(number): groups[entry.image] for number, entry in enumerate(kept)},
        None,
        metrics=metrics,
    )
    ratings = np.array([rating for entry in kept for rating in entry.ratings])
    repeats = [len(entry.ratings) for entry in kept]
    correlations = {}
    for name in (name for name, value in scores.corpus.items() if value is not None):
        values = np.array([scores.per_image[str(number)][name] for number in range(len(kept))], dtype=float)
        correlations[name] = _correlate(np.repeat(values, repeats), ratings)
    rule = "taken from the references" if crowd else "left out"
    sizes = {"captions": len(kept), "ratings": len(ratings), "left_out": len(rated) - len(kept)}
    return ScoringReport(
        [
            f"{len(ratings)} ratings of {len(kept)} captions, each rating one observation; rated captions that are "
            f"references of their image are {rule} ({sizes['left_out']} of {len(rated)} left out)",
            correlation_table(correlations),
        ],
        {**sizes, "metrics": correlations},
        list(scores.notices),
    )


def _correlate(values: np.ndarray, ratings: np.ndarray) -> dict[str, float | None]:
    """Return the coefficients of scores with ratings; None where scores or ratings are all the same."""
    scored = ~np.isnan(values)
    values, ratings = values[scored], ratings[scored]
    if len({*values}) < 2 or len({*ratings}) < 2:
        return dict.fromkeys(("tau_b", "tau_c", "rho"))
    coefficients = {
        "tau_b": kendalltau(values, ratings, variant="b").statistic,
        "tau_c": kendalltau(values, ratings, variant="c").statistic,
        "rho": spearmanr(values, ratings).statistic,
    }
    return {name: float(value) for name, value in coefficients.items()}


def _normalize(caption: str) -> str:
    return " ".join(caption.split())


def _image(name: str) -> str:
    """Return Flickr8k's image without suffixes: Flickr8k.token.txt has .jpg, and once .jpg.1."""
    return name.partition(".")[0]


def _rows(path: Path, columns: int, hint: str) -> Iterator[tuple[str, list[str]]]:
    """Yield where a line is, and its columns, which tabs separate; raise DataError for another number of them."""
    for number, line in enumerate(read_text(path, hint).split("\n"), start=1):
        cells, where = line.split("\t"), f"{path}: line {number}"
        if line and len(cells) != columns:
            raise DataError(f"{where} does not have {columns} columns separated by tabs; {hint}")
        if line:
            yield where, cells


def _read_tokens(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the captions by id and the references by image of Flickr8k.token.txt."""
    captions = {name: caption for _, (name, caption) in _rows(path, 2, _TOKENS)}
    references: dict[str, list[str]] = {}
    for name, caption in captions.items():
        references.setdefault(_image(name), []).append(caption)
    return captions, references


def _read_flickr(path: Path, captions: Mapping[str, str]) -> tuple[bool, list[_Rated]]:
    """Return whether a file is CrowdFlower's, with shares and numbers of yes and no, and its rated captions."""
    rated: list[_Rated] = []
    kinds = set()
    for where, (image, name, *cells) in _rows(path, 5, _HINT):
        if name not in captions:
            raise DataError(f"{where} names the caption {name}, which is not known; {_TOKENS}")
        a, b, c = ratings = tuple(_number(cell, where) for cell in cells)
        crowd = isclose(a * (b + c), b, abs_tol=1e-4)
        kinds.add(crowd)
        if len(kinds) > 1 or not (crowd or all(rating in _SCALE for rating in ratings)):
            raise DataError(
                f"{where} has neither three ratings of 1 to 4 nor shares and numbers of yes and no; {_HINT}"
            )
        rated.append(_Rated(_image(image), _normalize(captions[name]), ratings[:1] if crowd else ratings))
    return kinds == {True}, rated


def _read_table(path: Path, flickr: bool) -> list[_Rated]:
    """Return the rated captions of a CSV or JSON table; rows of one caption of an image are several ratings of it."""
    text = read_text(path, _HINT)
    if path.name.removesuffix(".gz").endswith(".json"):
        rows = parse_json(text, path, _HINT)
    else:
        rows = verified(lambda: list(csv.DictReader(io.StringIO(text, newline=""))), path, _HINT)
    ratings: dict[tuple[str, str], list[float]] = {}
    for number, row in enumerate(rows if isinstance(rows, list) else [None], start=1):
        where = f"{path}: row {number}"
        if not isinstance(row, dict) or any(row.get(name) is None for name in ("image_id", "caption", "rating")):
            raise DataError(f"{where} lacks image_id, caption or rating; {_HINT}")
        image = str(row["image_id"])
        key = (_image(image) if flickr else image, _normalize(str(row["caption"])))
        ratings.setdefault(key, []).append(_number(row["rating"], where))
    return [_Rated(*key, tuple(group)) for key, group in ratings.items()]


def _number(cell: Any, where: str) -> float:
    with suppress(TypeError, ValueError):
        if isfinite(float(cell)):
            return float(cell)
    raise DataError(f"the rating {cell!r} in {where} is no number; {_HINT}")


def correlation_table(correlations: Mapping[str, Mapping[str, float | None]]) -> Table:
    """Return a table with the rank correlations of each metric."""
    table = Table("metric", box=box.SIMPLE_HEAD)
    for column in ("Kendall's tau-b", "Kendall's tau-c", "Spearman's rho"):
        table.add_column(column, justify="right")
    for metric, values in correlations.items():
        table.add_row(metric, *("none" if value is None else f"{value:.4f}" for value in values.values()))
    return table
