"""The figure of a claim as SVG: for each compared measure a panel with every seed, the mean and its interval.

A circle is hollow where the score was not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from legenda.claims.claim import Claim, Measure
from legenda.claims.verdict import paired_interval

_WIDTH, _LABELS, _ROW, _HEAD, _FOOT = 760, 230, 26, 40, 34
_DOT, _MEAN, _CHANCE = "#4477aa", "#222222", "#bb5566"


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
    marks += [bound for found in intervals if found for bound in (found.low, found.high) if bound is not None]
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
    for index, ((label, values), found) in enumerate(zip(data, intervals, strict=True)):
        y = top + _HEAD + _ROW * (index + 0.5)
        yield f'<text x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
        if found is not None and found.low is not None and found.high is not None:
            yield f'<line x1="{x(found.low)}" x2="{x(found.high)}" y1="{y}" y2="{y}" stroke="{_MEAN}"/>'
        if found is not None:
            at = x(found.mean)
            yield f'<line x1="{at}" x2="{at}" y1="{y - 8}" y2="{y + 8}" stroke="{_MEAN}" stroke-width="2"/>'
        for value, exact in values:
            fill = f'fill="{_DOT}" fill-opacity="0.6"' if exact else f'fill="white" stroke="{_DOT}"'
            yield f'<circle cx="{x(value)}" cy="{y}" r="4" {fill}/>'


def _values(measure: Measure, arm: Mapping[str, Any]) -> list[tuple[float, bool]]:
    """Return the values of the seeds, and whether they are exact; a score not reached has the steps of the training."""
    censored = float(arm["steps"]) if measure.reaches is not None else None
    found = [values.get(measure.key) for values in arm["seeds"].values()]
    filled = [(censored if value is None else float(value), value is not None) for value in found]
    return [(value, exact) for value, exact in filled if value is not None]
