"""The page of a claim, made from its JSON file alone: the verdict, Markdown and a figure.

The verdict follows from the 95 % interval of the paired differences. The figure has, for each compared measure, a panel
with every seed, the mean and its interval; a circle is hollow where the score was not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from claim import Claim, Comparison, Measure, get_claim
from measures import HINT, read_results
from scipy.stats import ttest_1samp

from legenda.errors import DataError
from legenda.io import verified, write_text

Verdict = Literal["confirmed", "not confirmed", "refuted", "no verdict"]
MIN_SEEDS = 5
_WIDTH, _LABELS, _ROW, _HEAD, _FOOT = 760, 230, 26, 40, 34
_DOT, _MEAN, _CHANCE = "#4477aa", "#222222", "#bb5566"
_EXACT = "{}"
_BOUNDS = {(False, False): _EXACT, (False, True): "≤ {}", (True, False): "≥ {}", (True, True): "{} (neither)"}
"""How a difference is written where the first or the second of two models did not reach a score."""


@dataclass(frozen=True)
class Interval:
    """The mean of some numbers, and the 95 % interval of the mean; None where one number has none."""

    mean: float
    low: float | None
    high: float | None


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return mean and t interval of the differences of the same seeds; equal differences have an interval of no width.

    Raise ValueError for no differences.
    """
    if not differences:
        raise ValueError("there are no differences")
    mean = fmean(differences)
    if len(differences) == 1:
        return Interval(mean, None, None)
    if max(differences) == min(differences):
        return Interval(mean, mean, mean)
    bounds = ttest_1samp(differences, 0.0).confidence_interval(0.95)
    return Interval(mean, float(bounds.low), float(bounds.high))


def decide(interval: Interval, seeds: int, predicted: Literal["higher", "lower"]) -> Verdict:
    """Return the verdict on a predicted sign.

    confirmed: the whole interval is on the predicted side of 0; refuted: it is on the other side; not confirmed: 0 is
    within it; no verdict: there are fewer than MIN_SEEDS seeds.
    """
    if seeds < MIN_SEEDS or interval.low is None or interval.high is None:
        return "no verdict"
    low, high = (interval.low, interval.high) if predicted == "higher" else (-interval.high, -interval.low)
    return "confirmed" if low > 0 else "refuted" if high < 0 else "not confirmed"


def overall_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a claim of several comparisons.

    Without a verdict on one there is none; one that is refuted refutes the claim; all must be confirmed to confirm it.
    """
    given = set(verdicts)
    order: tuple[Verdict, ...] = ("no verdict", "refuted", "not confirmed", "confirmed")
    return next(verdict for verdict in order if verdict in given)


@dataclass(frozen=True)
class Compared:
    """A comparison with the differences of each seed, their interval and the verdict.

    bounds: for each seed, how the page writes the difference; other than "{}" where a score was not reached.
    """

    comparison: Comparison
    differences: Mapping[str, float]
    bounds: Mapping[str, str]
    interval: Interval | None
    verdict: Verdict


def write_page(path: Path) -> Path:
    """Write the page of a JSON file and its figure next to it, under the same name; return the path of the page.

    Raise DataError for a file that does not hold the numbers of a claim, ConfigError for models that it does not have.
    """
    results = read_results(path)
    claim = get_claim(results["claim"])
    claim.check_arms(results["arms"])
    page, figure = path.with_suffix(".md"), path.with_suffix(".svg")
    drawn = verified(lambda: draw_figure(claim, results["arms"]), path, HINT)
    text = verified(lambda: "\n".join(_lines(claim, results, compare_arms(claim, results), figure.name)), path, HINT)
    write_text(figure, drawn)
    write_text(page, f"{text}\n")
    return page


def compare_arms(claim: Claim, results: Mapping[str, Any]) -> list[Compared]:
    """Return every comparison with its verdict; without a number of every seed there is no verdict."""
    return [_compare(comparison, claim.measures[comparison.measure], results) for comparison in claim.comparisons]


def value_of(arm: Mapping[str, Any], seed: str, measure: Measure) -> float | None:
    """Return the value of a seed; of a score that was not reached, the steps of the whole training, which it exceeds.

    Raise DataError where the results lack the measure.
    """
    if measure.key not in arm["seeds"][seed]:
        raise DataError(f"the results lack the measure {measure.key!r}; run it again")
    value = arm["seeds"][seed][measure.key]
    return float(arm["steps"]) if value is None and measure.reaches is not None else value


def _compare(comparison: Comparison, measure: Measure, results: Mapping[str, Any]) -> Compared:
    arms, against = results["arms"], comparison.against
    first = arms.get(comparison.arm, {"seeds": {}})
    second = arms.get(against, {"seeds": {}}) if isinstance(against, str) else None
    seeds = [seed for seed in first["seeds"] if second is None or seed in second["seeds"]]
    differences, bounds = {}, {}
    for seed in seeds:
        a = value_of(first, seed, measure)
        b = float(against) if second is None else value_of(second, seed, measure)
        if a is not None and b is not None:
            differences[seed] = a - b
            bounds[seed] = _BOUNDS[_is_missing(first, seed, measure), _is_missing(second, seed, measure)]
    interval = paired_interval(list(differences.values())) if differences else None
    verdict: Verdict = "no verdict"  # as where a seed has no value, because it is infinite
    if interval is not None and len(differences) == len(seeds):
        verdict = decide(interval, len(differences), comparison.predicted)
    return Compared(comparison, differences, bounds, interval, verdict)


def _is_missing(arm: Mapping[str, Any] | None, seed: str, measure: Measure) -> bool:
    """Return whether a seed of an arm has no value; not for the number that takes the place of an arm."""
    return arm is not None and arm["seeds"][seed][measure.key] is None


def _lines(claim: Claim, results: Mapping[str, Any], compared: Sequence[Compared], figure: str) -> Iterable[str]:
    arms = {key: arm for key, arm in claim.arms.items() if key in results["arms"]}
    measured = {key: results["arms"][key] for key in arms}
    yield f"# {claim.title}\n"
    yield f"{claim.question} {claim.source}.\n"
    yield f"**{_sentence([part.verdict for part in compared])}**\n"
    yield "## Paired differences\n"
    yield from _difference_table(claim, compared)
    yield from _censored(claim, compared)
    yield f"\n![Every seed, and the mean with its 95 % interval]({figure})\n"
    yield from (f"{note}\n" for note in claim.notes)
    yield "## Dataset\n"
    yield f"{claim.dataset}\n"
    yield "## Models\n"
    yield "| | model | recipe | parameters | steps | seeds |\n|---|---|---|---|---|---|"
    for key, arm in arms.items():
        numbers = (f"{measured[key]['parameters']:,}", f"{measured[key]['steps']:,}", str(len(measured[key]["seeds"])))
        yield _row(f"`{key}`", arm.label, f"`{arm.recipe}`", *numbers)
    yield "\n## Every seed\n"
    yield from _seed_table(claim, measured)
    seeds = max((len(arm["seeds"]) for arm in measured.values()), default=0)
    steps = f" --steps {results['steps']}" if results.get("steps") else ""
    arms_option = f" --arms {' '.join(arms)}" if 0 < len(arms) < len(claim.arms) else ""
    yield f"\n```bash\npython research/claims/run.py {claim.name}{arms_option} --seeds {max(seeds, 1)}{steps}\n```\n"
    yield (
        f"{results['core_hours']:.1f} core-hours of training and evaluation ({results['machine']}; one thread a run, "
        f"{results['date']}). Scores are those of the test split; captions and translations are by beam search, beam "
        f"{results['beam_size']}. Whatever is not named here is equal for all models. A seed is that of initialization "
        "and of the choice and order of examples and captions. Intervals are Student's t intervals of the mean of the "
        "paired differences, not corrected for their number."
    )


def _sentence(verdicts: Sequence[Verdict]) -> str:
    """Return the verdict on the claim in one sentence."""
    verdict = overall_verdict(verdicts)
    if verdict == "no verdict":
        return f"No verdict: it takes all models with at least {MIN_SEEDS} seeds, each with a value."
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(sorted(verdicts)))
    start = f"{verdict.capitalize()} on this dataset at this budget"
    return f"{start}: of the 95 % intervals of {len(verdicts)} differences, {counts}."


def _difference_table(claim: Claim, compared: Sequence[Compared]) -> Iterable[str]:
    yield "| difference | of | predicted | by seed | mean | 95 % interval | verdict |\n|---|---|---|---|---|---|---|"
    for part in compared:
        comparison, interval = part.comparison, part.interval
        measure = claim.measures[comparison.measure]
        against = f"`{comparison.against}`" if isinstance(comparison.against, str) else f"{comparison.against:g}"
        bounds = "–"
        if interval is not None and interval.low is not None and interval.high is not None:
            bounds = f"{_number(interval.low, measure)} to {_number(interval.high, measure)}"
        yield _row(
            f"`{comparison.arm}` − {against}",
            measure.label,
            "above 0" if comparison.predicted == "higher" else "below 0",
            ", ".join(part.bounds[seed].format(_number(d, measure)) for seed, d in part.differences.items()) or "–",
            "–" if interval is None else _number(interval.mean, measure),
            bounds,
            part.verdict,
        )


def _censored(claim: Claim, compared: Sequence[Compared]) -> Iterable[str]:
    """Return a paragraph about the seeds that did not reach a score, and the verdicts that depend on them."""
    bounded = [part for part in compared if any(bound != _EXACT for bound in part.bounds.values())]
    if not bounded:
        return
    yield (
        "\n≤ and ≥: one of the two models did not reach the score and counts with its whole training, so that the "
        "difference is a bound; “neither”: both did not, and the difference counts as 0. "
        "Their circles are hollow."
    )
    if undecided := [part for part in bounded if all(bound != _EXACT for bound in part.bounds.values())]:
        counts = f"{len(undecided)} of the {len(compared)} comparisons"
        yield f"\nNo seed has an exact difference in {counts}; these show nothing."
    for part in bounded:
        if part in undecided:
            continue
        exact = [value for seed, value in part.differences.items() if part.bounds[seed] == _EXACT]
        alone = decide(paired_interval(exact), len(exact), part.comparison.predicted)
        if alone != part.verdict:
            name = f"`{part.comparison.arm}` − `{part.comparison.against}`"
            label = claim.measures[part.comparison.measure].label
            yield f"\nWithout these seeds {len(exact)} are left, and the verdict on {name} ({label}): {alone}."


def _seed_table(claim: Claim, arms: Mapping[str, Any]) -> Iterable[str]:
    measures = claim.measures.values()
    yield _row("", "seed", *(measure.label for measure in measures))
    yield "|---" * (len(claim.measures) + 2) + "|"
    if any(measure.chance is not None for measure in measures):
        chances = (measure.chance for measure in measures)
        yield _row("by chance", "", *("" if chance is None else f"{chance:.3g}" for chance in chances))
    for key, arm in arms.items():
        for seed, values in arm["seeds"].items():
            yield _row(f"`{key}`", seed, *(_cell(values.get(m.key), m, arm["steps"]) for m in measures))


def _cell(value: float | None, measure: Measure, steps: int) -> str:
    if value is None:
        return f"over {steps:,}" if measure.reaches is not None else "–"
    return _number(value, measure)


def _number(value: float, measure: Measure) -> str:
    return f"{value:,.0f}" if measure.reaches is not None else f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def draw_figure(claim: Claim, arms: Mapping[str, Any]) -> str:
    """Return the figure. arms: as the JSON file holds them."""
    used = dict.fromkeys(comparison.measure for comparison in claim.comparisons)
    panels = [claim.measures[key] for key in used]
    rows = [(claim.arms[key].label, arms[key]) for key in claim.arms if key in arms]
    height = _HEAD + _ROW * len(rows) + _FOOT
    parts = [part for index, panel in enumerate(panels) for part in _panel(panel, rows, index * height)]
    total = max(height * len(panels), 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {total}" font-family="sans-serif" '
        f'font-size="13">\n<rect width="{_WIDTH}" height="{total}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(measure: Measure, rows: Sequence[tuple[str, Any]], top: float) -> Iterable[str]:
    data = [(label, _values(measure, arm)) for label, arm in rows]
    intervals = [paired_interval([value for value, _ in values]) if values else None for _, values in data]
    marks = [value for _, values in data for value, _ in values]
    marks += [
        bound for interval in intervals if interval for bound in (interval.low, interval.high) if bound is not None
    ]
    marks += [] if measure.chance is None else [measure.chance]
    low, high = (min(marks), max(marks)) if marks else (0.0, 1.0)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)

    def x(value: float) -> float:
        return round(_LABELS + (_WIDTH - _LABELS - 20) * (value - low) / (high - low), 1)

    bottom = top + _HEAD + _ROW * len(rows)
    yield f'<text x="{_LABELS}" y="{top + 24}" font-weight="bold">{escape(measure.label)}</text>'
    yield f'<line x1="{_LABELS}" x2="{_WIDTH - 20}" y1="{bottom}" y2="{bottom}" stroke="#999999"/>'
    for value, anchor in ((low, "start"), (high, "end")):
        yield f'<text x="{x(value)}" y="{bottom + 17}" text-anchor="{anchor}">{value:.4g}</text>'
    if measure.chance is not None:
        at = x(measure.chance)
        yield (
            f'<line x1="{at}" x2="{at}" y1="{top + _HEAD}" y2="{bottom}" stroke="{_CHANCE}" stroke-dasharray="4 3">'
            f"<title>by chance {measure.chance:.3g}</title></line>"
        )
    for index, ((label, values), interval) in enumerate(zip(data, intervals, strict=True)):
        y = top + _HEAD + _ROW * (index + 0.5)
        yield f'<text x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
        if interval is not None and interval.low is not None and interval.high is not None:
            yield f'<line x1="{x(interval.low)}" x2="{x(interval.high)}" y1="{y}" y2="{y}" stroke="{_MEAN}"/>'
        if interval is not None:
            at = x(interval.mean)
            yield f'<line x1="{at}" x2="{at}" y1="{y - 8}" y2="{y + 8}" stroke="{_MEAN}" stroke-width="2"/>'
        for value, exact in values:
            fill = f'fill="{_DOT}" fill-opacity="0.6"' if exact else f'fill="white" stroke="{_DOT}"'
            yield f'<circle cx="{x(value)}" cy="{y}" r="4" {fill}/>'


def _values(measure: Measure, arm: Mapping[str, Any]) -> list[tuple[float, bool]]:
    """Return the values of the seeds, and whether they are exact; a score not reached has the steps of the training."""
    censored = float(arm["steps"]) if measure.reaches is not None else None
    numbers = [values.get(measure.key) for values in arm["seeds"].values()]
    filled = [(censored if value is None else float(value), value is not None) for value in numbers]
    return [(value, exact) for value, exact in filled if value is not None]
