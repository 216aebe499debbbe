"""Judgments of pairs of captions of an image, kept in a file of JSON lines, and what they say together.

The first line holds the pairs, where they are from, and a random key from which order and sides of the pairs follow
for each judge. Every further line is a judgment, {"judge", "image", "verdict", "left", "time"}: whose caption is better
("first", "second", "equal"; null takes the judge's verdict back), and whose caption was shown on the left.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
from rich import box
from rich.table import Table

from legenda.config import get_field
from legenda.errors import ConfigError, DataError
from legenda.io import parse_json, read_text, write_text
from legenda.metrics import Interval
from legenda.metrics.scoring import ScoringReport, as_dicts

VERDICTS = ("first", "equal", "second")
_HINT = "name a file that research/judge/run.py serve wrote"


@dataclass(frozen=True)
class Pair:
    """Two captions of an image."""

    image: str
    first: str
    second: str

    @property
    def captions(self) -> tuple[str, str]:
        """Both captions."""
        return self.first, self.second

    @property
    def identical(self) -> bool:
        """Whether the captions differ in nothing but white space, so that no judge is asked."""
        return self.first.split() == self.second.split()


@dataclass(frozen=True)
class Judgments:
    """What a file of judgments holds.

    first, second: the files of the captions. key: the random key. verdicts: by judge and image, in the order given.
    """

    first: str
    second: str
    key: str
    pairs: tuple[Pair, ...]
    verdicts: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, judge: str, image: str, verdict: str | None) -> None:
        """Take over a verdict."""
        given = self.verdicts.setdefault(judge, {})
        given.pop(image, None)
        if verdict is not None:
            given[image] = verdict

    def layout(self, judge: str) -> tuple[tuple[int, bool], ...]:
        """Return the pairs' numbers in the judge's order, each with whether the first caption is on the left."""
        return _layout(self.key, judge, len(self.pairs))

    def reached(self, judge: str) -> dict[str, str]:
        """Return the judge's verdicts, with equal for identical captions up to the judge's next question."""
        verdicts = dict(self.verdicts[judge])
        for pair in (self.pairs[number] for number, _ in self.layout(judge) if verdicts):
            if not pair.identical and pair.image not in verdicts:
                break
            verdicts.setdefault(pair.image, "equal")
        return verdicts


@lru_cache(maxsize=100)
def _layout(key: str, judge: str, count: int) -> tuple[tuple[int, bool], ...]:
    generator = random.Random(f"{key} {judge}")
    return tuple((number, generator.random() < 0.5) for number in generator.sample(range(count), count))


def choose_pairs(
    first: Mapping[str, str], second: Mapping[str, str], images: Collection[str], count: int | None, seed: int
) -> list[Pair]:
    """Return the pairs of `count` images drawn by `seed` (None: of all) among those in both files and in `images`.

    Raise DataError where there is none or all captions are identical, and ConfigError where there are fewer.
    """
    pairs = [Pair(image, first[image], second[image]) for image in first if image in second and image in images]
    if not pairs:
        raise DataError("no image in the folder has captions of both; check the ids and the names of the files")
    if count is not None and not 1 <= count <= len(pairs):
        raise ConfigError(f"--num-images must lie in 1..{len(pairs)}, the number of images found, not at {count}")
    chosen = pairs if count is None else random.Random(seed).sample(pairs, count)
    if all(pair.identical for pair in chosen):
        raise DataError(f"the captions of all {len(chosen)} images are identical; there is nothing to ask")
    return chosen


def read_judgments(path: Path) -> Judgments:
    """Return the pairs and the verdicts of a file; an unfinished last line, which a crash may leave, does not count.

    Raise DataError, naming the line, for what is not a judgment.
    """
    start, *lines = read_text(path, _HINT).split("\n")[:-1] or [""]
    content = parse_json(start, path, _HINT)
    first, second, key = (
        get_field(content, name, str, f"{path}: line 1", _HINT) for name in ("first", "second", "key")
    )
    pairs = tuple(get_field(content, "pairs", list[Pair], f"{path}: line 1", _HINT))
    judgments = Judgments(first, second, key, pairs)
    images = {pair.image for pair in pairs}
    for number, line in enumerate(lines, start=2):
        where = f"{path}: line {number}"
        entry = parse_json(line, where, _HINT)
        judge, image = (get_field(entry, name, str, where, _HINT) for name in ("judge", "image"))
        verdict = get_field(entry, "verdict", str | None, where, _HINT)
        if image not in images or verdict not in (*VERDICTS, None):
            raise DataError(f"{where} is no judgment of a pair of the file; {_HINT}")
        judgments.add(judge, image, verdict)
    return judgments


@dataclass(frozen=True)
class Question:
    """What a judge sees next; pair: its number in the file, None at the end."""

    done: int
    total: int
    pair: int | None = None
    left: str = ""
    right: str = ""


class JudgmentFile:
    """A file of judgments that is written: each judgment is on the disk when `answer` or `undo` returns.

    Pairs with identical captions are not shown.
    """

    def __init__(self, path: Path, first: str, second: str, pairs: Sequence[Pair]) -> None:
        """Create the file, or continue one of the same pairs; raise ConfigError for one of other pairs."""
        self.path, self._lock = path, Lock()
        if not path.exists():
            head = {"first": first, "second": second, "key": secrets.token_hex(8), "pairs": [*map(asdict, pairs)]}
            write_text(path, json.dumps(head) + "\n")
        self.judgments = read_judgments(path)
        if self.judgments.pairs != tuple(pairs):
            raise ConfigError(f"{path} has judgments of other pairs; name another --out or the same sample")
        self._size = path.read_bytes().rfind(b"\n") + 1  # an unfinished line is overwritten

    def next_question(self, judge: str) -> Question:
        """Return the first pair in the judge's order without a verdict."""
        with self._lock:
            return self._next_question(judge)

    def answer(self, judge: str, number: int, choice: str) -> Question:
        """Keep "left", "right" or "equal" for a pair and return the next one; a pair that has a verdict keeps it."""
        with self._lock:
            pair = self.judgments.pairs[number]
            if not pair.identical and pair.image not in self.judgments.verdicts.get(judge, {}):
                self._append(judge, number, choice)
            return self._next_question(judge)

    def undo(self, judge: str) -> Question:
        """Take back the judge's last verdict, if there is one, and return its pair."""
        with self._lock:
            if given := self.judgments.verdicts.get(judge):
                last = list(given)[-1]
                self._append(judge, [pair.image for pair in self.judgments.pairs].index(last), None)
            return self._next_question(judge)

    def _next_question(self, judge: str) -> Question:
        pairs, given = self.judgments.pairs, self.judgments.verdicts.get(judge, {})
        progress = len(given), sum(not pair.identical for pair in pairs)
        for number, first_left in self.judgments.layout(judge):
            pair = pairs[number]
            if not pair.identical and pair.image not in given:
                return Question(*progress, number, *(pair.captions if first_left else reversed(pair.captions)))
        return Question(*progress)

    def _append(self, judge: str, number: int, choice: str | None) -> None:
        """Write a verdict to the disk, then take it over."""
        left, right = ("first", "second") if dict(self.judgments.layout(judge))[number] else ("second", "first")
        entry = {
            "judge": judge,
            "image": self.judgments.pairs[number].image,
            "verdict": {"left": left, "right": right}.get(choice or "", choice),
            "left": left,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        data = f"{json.dumps(entry)}\n".encode()
        try:
            with self.path.open("r+b") as file:
                file.truncate(self._size)  # what a failed write has left
                file.seek(self._size)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"{self.path} cannot be written ({error.strerror}); free some space") from error
        self._size += len(data)
        self.judgments.add(judge, entry["image"], entry["verdict"])


def summarize_judgments(path: Path) -> ScoringReport:
    """Return how often each model's caption is better, the preference for the first, and Fleiss' kappa.

    The shares are those of AoANet's section 4.5. The preference is the share of the first minus that of the second.
    Intervals are those of a bootstrap over images. Raise DataError for a file without judgments.
    """
    judgments = read_judgments(path)
    counts = _count_verdicts(judgments)
    if not counts:
        raise DataError(f"{path} has no judgments yet; collect some with research/judge/run.py serve")
    table = np.array(list(counts.values()), dtype=float)
    total = table.sum(1)
    columns = dict(zip((*VERDICTS, "preference"), (*table.T, table[:, 0] - table[:, 2]), strict=True))
    shares = {name: float(column.sum() / total.sum()) for name, column in columns.items()}
    bounds = {name: _interval_of_ratio(column, total) for name, column in columns.items()}
    numbers = {name: int(columns[name].sum()) for name in VERDICTS}
    judges = sum(bool(given) for given in judgments.verdicts.values())
    identical = {pair.image for pair in judgments.pairs if pair.identical} & counts.keys()
    unasked = sum(sum(counts[image]) for image in identical)
    raters, images, kappa = _agreement([group for image, group in counts.items() if image not in identical])
    agreement = (
        "agreement: none; no image has two judges, or all verdicts are the same"
        if kappa is None
        else f"agreement: Fleiss' kappa {kappa:.3f} over {images} images with {raters} judges each"
    )
    return ScoringReport(
        [
            f"first: {judgments.first}\nsecond: {judgments.second}",
            f"{sum(numbers.values())} judgments of {len(counts)} images by {judges} judges; {unasked} of them are "
            f"equal unasked: the captions of {len(identical)} images are identical",
            preference_table(numbers, shares, bounds),
            agreement,
        ],
        {
            **{"first": judgments.first, "second": judgments.second, "judges": judges, "images": len(counts)},
            **{"judgments": numbers, "equal_unasked": unasked, "shares": shares, "intervals": as_dicts(bounds)},
            "agreement": {"kappa": kappa, "images": images, "judges": raters},
        },
        [],
    )


def _interval_of_ratio(numerators: np.ndarray, denominators: np.ndarray) -> Interval:
    """Return the 95 % bootstrap interval of a ratio of sums over images, from both values of each image."""
    n = len(numerators)
    draws = np.random.default_rng([0, 0]).multinomial(n, np.full(n, 1 / n), size=1000)
    low, high = np.quantile((draws @ numerators) / (draws @ denominators), [0.025, 0.975]).tolist()
    return Interval(low, high)


def fleiss_kappa(counts: Sequence[Sequence[int]]) -> float | None:
    """Return Fleiss' kappa of counts (subjects, categories), whose rows have equal sums; None where it is undefined.

    Source: Fleiss, "Measuring nominal scale agreement among many raters", 1971.
    """
    table = np.array(counts, dtype=float)
    if len(table) == 0 or (raters := table[0].sum()) < 2:
        return None
    observed = ((table**2).sum(1) - raters).mean() / (raters * (raters - 1))
    expected = ((table.sum(0) / table.sum()) ** 2).sum()
    return None if expected == 1 else float((observed - expected) / (1 - expected))


def _count_verdicts(judgments: Judgments) -> dict[str, list[int]]:
    """Return how often each of VERDICTS was given, for each image with a judgment."""
    verdicts = [judgments.reached(judge) for judge in judgments.verdicts]
    counts = {pair.image: Counter(given.get(pair.image) for given in verdicts) for pair in judgments.pairs}
    groups = {image: [count[verdict] for verdict in VERDICTS] for image, count in counts.items()}
    return {image: group for image, group in groups.items() if any(group)}


def _agreement(counts: Sequence[Sequence[int]]) -> tuple[int, int, float | None]:
    """Return the number of judges of two or more that most images have (of equals the larger), how many images have
    it, and the kappa of these.
    """
    sizes = Counter(sum(group) for group in counts if sum(group) > 1)
    if not sizes:
        return 0, 0, None
    raters = max(sizes, key=lambda size: (sizes[size], size))
    return raters, sizes[raters], fleiss_kappa([group for group in counts if sum(group) == raters])


def preference_table(
    counts: Mapping[str, int], shares: Mapping[str, float], bounds: Mapping[str, Interval | None]
) -> Table:
    """Return a table with number, percentage and interval of each verdict, and of the preference for the first."""
    table = Table("verdict", box=box.SIMPLE_HEAD)
    for column in ("number", "%", "95 % interval"):
        table.add_column(column, justify="right")
    names = {"first": "first is better", "equal": "equal", "second": "second is better"}
    for name, label in (*names.items(), ("preference", "first minus second")):
        interval, sign = bounds[name], "+" if name == "preference" else ""
        limits = "none" if interval is None else f"{100 * interval.low:{sign}.2f} .. {100 * interval.high:{sign}.2f}"
        table.add_row(label, str(counts.get(name, "")), f"{100 * shares[name]:{sign}.2f}", limits)
    return table
