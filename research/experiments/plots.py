"""Figures of experiments as SVG: every seed and pair of seeds of a page, and all primary comparisons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from analysis import Effect
from experiment import Metric
from page import Decision, Result, name_of, value_of

_WIDTH, _LABELS, _RIGHT = 820, 310, 30
_ROW, _GAP = 28, 34
_STYLE = (
    "<style>text{fill:#222}.soft{fill:#555}.axis{stroke:#999}.tick{stroke:#ddd}.pair{stroke:#4477aa;stroke-opacity:.3}"
    ".thin{stroke:#222;stroke-width:1.5}.thick{stroke:#222;stroke-width:5}.dot{fill:#4477aa;fill-opacity:.6}"
    ".mean{fill:#222}.open{fill:none;stroke:#4477aa}.chance{stroke:#bb5566;stroke-dasharray:4 3}"
    ".chance-text{fill:#bb5566}"
    ".bound{fill:#ececec}.back{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.soft{fill:#aaa}"
    ".axis{stroke:#777}.tick{stroke:#333}.thin,.thick{stroke:#eee}.mean{fill:#eee}.dot{fill:#77aadd}"
    ".open,.pair{stroke:#77aadd}.bound{fill:#2b2b2b}.back{fill:#111}.chance{stroke:#dd8899}.chance-text{fill:#dd8899}}</style>"
)
Scale = Callable[[float], float]


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` multiples of 1, 2 or 5 times a power of ten that enclose low and high."""
    high = high if high > low else low + 1e-9 + abs(low) / 10
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    while True:
        for factor in (1, 2, 5):
            first, last = math.floor(low / (factor * step) + 1e-9), math.ceil(high / (factor * step) - 1e-9)
            if last - first + 1 <= most:
                return [round(number * factor * step, 10) for number in range(first, last + 1)]
        step *= 10


def draw_page(results: Sequence[Result]) -> str:
    """Return the figure of a page: of each primary comparison both models, seed by seed, and the differences."""
    top, parts = 0.0, []
    for result in results:
        for decision in result.decisions:
            if decision.effect is not None:
                drawn, top = _comparison(result, decision, decision.effect, top)
                parts += drawn
    if not parts:
        parts, top = ['<text x="20" y="30">No seed of a verdict has run yet.</text>'], 50
    else:
        key = "Means with 90 % intervals (thick) and 95 % intervals (thin); gray: less than the difference of interest"
        parts.append(f'<text class="soft" x="20" y="{top + 14}" font-size="12">{key}</text>')
        top += 30
    return _svg(top, parts)


def _comparison(result: Result, decision: Decision, effect: Effect, top: float) -> tuple[list[str], float]:
    primary, experiment = decision.primary, result.experiment
    metric = experiment.metrics[primary.metric]
    keys = (primary.against, primary.condition)
    shared = [s for s in result.conditions[keys[0]]["seeds"] if s in result.conditions[keys[1]]["seeds"]]
    values = [[value_of(result.conditions[key], seed, metric) for seed in shared] for key in keys]
    everything = [value for row in values for value in row if value is not None]
    everything += [] if metric.chance is None or metric.key == "CIDEr-D" else [metric.chance]
    everything += [0.6] if metric.key == "CIDEr-D" and min(everything) >= 0.6 else []
    title = name_of(result, primary).replace(" − ", " against ")
    parts = [f'<text x="20" y="{top + 22}" font-weight="bold">{escape(title)}</text>']
    y = top + 44
    missed = any(result.conditions[key]["seeds"][seed][metric.key] is None for key in keys for seed in shared)
    about = f"{_with_unit(metric)} (hollow: not reached)" if missed else _with_unit(metric)
    x, ticks = _axis(round_ticks(min(everything), max(everything)), y, 2, about)
    parts += ticks
    if metric.chance is not None and metric.key != "CIDEr-D":
        parts.append(
            f'<line class="chance" x1="{x(metric.chance)}" x2="{x(metric.chance)}" y1="{y}" y2="{y + 2 * _ROW}"/>'
        )
        parts.append(f'<text class="chance-text" x="{x(metric.chance) + 4}" y="{y - 3}" font-size="11">chance</text>')
    heights = [y + _ROW / 2, y + _ROW * 1.5]
    for first, second in zip(*values, strict=True):
        if first is not None and second is not None:
            parts.append(f'<line class="pair" x1="{x(first)}" y1="{heights[0]}" x2="{x(second)}" y2="{heights[1]}"/>')
    for key, row, height in zip(keys, values, heights, strict=True):
        label = f"{experiment.conditions[key].label}, n = {len(row)}"
        parts.append(f'<text x="{_LABELS - 12}" y="{height + 4}" text-anchor="end">{escape(label)}</text>')
        for seed, value in zip(shared, row, strict=True):
            if value is not None:
                reached = result.conditions[key]["seeds"][seed][metric.key] is not None
                parts.append(f'<circle class="{"dot" if reached else "open"}" cx="{x(value)}" cy="{height}" r="4"/>')
    y += 2 * _ROW + _GAP + 8
    bound = decision.metric.bound.value
    marks = [*effect.differences, *effect.interval, -bound, bound, 0.0]
    x, ticks = _axis(round_ticks(min(marks), max(marks)), y, 2, f"difference of {_with_unit(decision.metric)}")
    band = f'<rect class="bound" x="{x(-bound)}" y="{y}" width="{round(x(bound) - x(-bound), 1)}" height="{2 * _ROW}"/>'
    parts += [band, *ticks, f'<line class="axis" x1="{x(0)}" x2="{x(0)}" y1="{y}" y2="{y + 2 * _ROW}"/>']
    parts.append(f'<text x="{_LABELS - 12}" y="{y + _ROW / 2 + 4}" text-anchor="end">pairs of seeds</text>')
    if decision.metric.learned is not None:
        for value, count in Counter(effect.differences).items():
            parts.append(f'<circle class="dot" cx="{x(value)}" cy="{y + _ROW / 2}" r="5"/>')
            place = f'x="{x(value) - 9}" y="{y + _ROW / 2 + 4}" text-anchor="end" font-size="12"'
            parts.append(f"<text {place}>{count} ×</text>")
    else:
        for place, value in enumerate(effect.differences):
            lift = 3 * (place % 5 - 2)
            parts.append(f'<circle class="dot" cx="{x(value)}" cy="{y + _ROW / 2 + lift}" r="3.5"/>')
    verdict = decision.verdict or "not decided"
    parts.append(f'<text x="{_LABELS - 12}" y="{y + _ROW * 1.5 + 4}" text-anchor="end">mean: {verdict}</text>')
    parts += _interval(effect, 1.0, x, y + _ROW * 1.5)
    return parts, y + 2 * _ROW + _GAP + 16


def _with_unit(metric: Metric) -> str:
    """Return the label of a metric with what its numbers are: shares, steps, or seeds of one."""
    if metric.learned is not None or metric.reaches is not None or metric.key == "CIDEr-D":
        return metric.label
    return f"{metric.label} (share)"


def _interval(effect: Effect, unit: float, x: Scale, y: float) -> Iterator[str]:
    """Yield the mean, the 90 % interval as a thick line and the 95 % interval as a thin one."""
    for kind, interval in (("thin", effect.interval), ("thick", effect.inner)):
        low, high = sorted(bound * unit for bound in interval)
        yield f'<line class="{kind}" x1="{x(low)}" x2="{x(high)}" y1="{y}" y2="{y}"/>'
    yield f'<circle class="mean" cx="{x(effect.mean * unit)}" cy="{y}" r="5.5"/>'


def _axis(ticks: Sequence[float], y: float, rows: float, label: str) -> tuple[Scale, list[str]]:
    """Return the scale of an axis below so many rows, and the axis with its ticks and its label."""

    def x(value: float) -> float:
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return round(_LABELS + (_WIDTH - _LABELS - _RIGHT) * share, 1)

    return x, _ticks(ticks, x, y, y + rows * _ROW, label)


def _ticks(ticks: Sequence[float], x: Scale, top: float, bottom: float, label: str) -> list[str]:
    parts = [f'<line class="tick" x1="{x(v)}" x2="{x(v)}" y1="{top}" y2="{bottom}"/>' for v in ticks]
    parts.append(f'<line class="axis" x1="{x(ticks[0])}" x2="{x(ticks[-1])}" y1="{bottom}" y2="{bottom}"/>')
    for value in ticks:
        text = f"{value:,.10g}".replace("-", "−")
        parts.append(
            f'<text class="soft" x="{x(value)}" y="{bottom + 15}" text-anchor="middle" font-size="12">{text}</text>'
        )
    middle = (x(ticks[0]) + x(ticks[-1])) / 2
    parts.append(
        f'<text class="soft" x="{middle}" y="{bottom + 30}" text-anchor="middle" font-size="12">{escape(label)}</text>'
    )
    return parts


def draw_forest(results: Sequence[Result]) -> str:
    """Return all primary effects, in units of their smallest difference of interest, above 0 as the paper predicts.

    The axis is linear up to 1 and logarithmic beyond.
    """
    rows = [(r, d, d.effect) for r in results for d in r.decisions if d.effect is not None]
    limit, ticks = 20.0, (-20, -5, -2, -1, 0, 1, 2, 5, 20)
    left, right, top = 345, 150, 56

    def stretch(value: float) -> float:
        return math.copysign(min(abs(value), 1 + math.log(max(abs(value), 1.0))), value)

    def x(value: float) -> float:
        share = (stretch(max(-limit, min(limit, value))) / stretch(limit) + 1) / 2
        return round(left + (_WIDTH - left - right) * share, 1)

    height = 36
    bottom = top + height * max(len(rows), 1)
    parts = [f'<rect class="bound" x="{x(-1)}" y="{top}" width="{round(x(1) - x(-1), 1)}" height="{bottom - top}"/>']
    about = "difference / smallest difference of interest, logarithmic beyond 1 (90 % thick, 95 % thin)"
    parts += _ticks(ticks, x, top, bottom, about)
    parts.append(f'<line class="axis" x1="{x(0)}" x2="{x(0)}" y1="{top}" y2="{bottom}"/>')
    parts.append(f'<text x="{x(-limit)}" y="44" font-size="12">against the paper</text>')
    parts.append(f'<text x="{x(limit)}" y="44" text-anchor="end" font-size="12">as in the paper</text>')
    parts.append(
        '<text x="20" y="22" font-weight="bold">Primary comparisons; the gray band is no relevant difference</text>'
    )
    for index, (result, decision, effect) in enumerate(rows):
        y = top + height * (index + 0.5)
        first, second = (
            result.experiment.conditions[key].label for key in (decision.primary.condition, decision.primary.against)
        )
        for line, lift in ((first, -3), (f"against {second}: {decision.metric.label}", 11)):
            label = line if len(line) < 68 else line[:66] + "…"
            style = 'font-size="12"' if lift < 0 else 'font-size="10" class="soft"'
            parts.append(f'<text x="{left - 12}" y="{y + lift}" text-anchor="end" {style}>{escape(label)}</text>')
        unit = result.experiment.predicted(decision.primary) / decision.metric.bound.value
        parts += _interval(effect, unit, x, y)
        text = f"{decision.verdict or 'not decided'}, n = {len(effect.differences)}"
        parts.append(f'<text x="{_WIDTH - right + 8}" y="{y + 4}" font-size="11">{text}</text>')
    return _svg(bottom + 44, parts)


def _svg(height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" font-family="sans-serif" '
        f'font-size="13">{_STYLE}\n<rect class="back" width="{_WIDTH}" height="{height:g}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
