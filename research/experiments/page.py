"""The pages of experiments, made from their numbers alone: one for each, all in one table, and "Which attention?".

Beside them, SVG figures: of each experiment every seed, and of all primary comparisons one forest plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from analysis import Effect, Verdict, decide, holm, paired_effect
from experiment import FOLDER, Comparison, Experiment, Metric, get_experiment, list_experiments
from measures import HINT, read_results

from legenda.errors import ConfigError
from legenda.io import verified, write_text

RESULTS = FOLDER / "results"
WHICH = FOLDER.parent / "which-attention.md"
_WIDTH, _LABELS, _ROW, _HEAD, _FOOT = 760, 250, 26, 40, 46
_STYLE = (
    "<style>text{fill:#222}.axis{stroke:#999}.mark{stroke:#222;stroke-width:2}.dot{fill:#4477aa;fill-opacity:.6}"
    ".open{fill:none;stroke:#4477aa}.chance{stroke:#bb5566;stroke-dasharray:4 3}.bound{fill:#e6e6e6}.back{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#777}.mark{stroke:#eee}.dot{fill:#77aadd}"
    ".open{stroke:#77aadd}.bound{fill:#333}.back{fill:#111}}</style>"
)
USE: Mapping[Verdict, str] = {
    "supported": "use it",
    "contradicted": "leave it out",
    "no relevant effect": "makes no relevant difference",
    "inconclusive": "not known",
}


@dataclass(frozen=True)
class Result:
    """An experiment with its numbers; p, the primary effect and its verdict follow from them.

    effect: None with fewer than two seeds. adjusted_p: by Holm, over the primary comparisons of all experiments.
    verdict: None until all seeds are there.
    """

    experiment: Experiment
    numbers: Mapping[str, Any]
    effect: Effect | None
    adjusted_p: float
    control: float | None
    verdict: Verdict | None

    @property
    def conditions(self) -> Mapping[str, Any]:
        """The numbers of the conditions by their keys."""
        return self.numbers["conditions"]


def differences(experiment: Experiment, conditions: Mapping[str, Any], comparison: Comparison) -> dict[str, float]:
    """Return the difference of each seed that both conditions have."""
    metric = experiment.metrics[comparison.metric]
    first, second = (conditions.get(key, {"seeds": {}}) for key in (comparison.condition, comparison.against))
    shared = [seed for seed in first["seeds"] if seed in second["seeds"]]
    pairs = {seed: (value_of(first, seed, metric), value_of(second, seed, metric)) for seed in shared}
    return {seed: a - b for seed, (a, b) in pairs.items() if a is not None and b is not None}


def value_of(condition: Mapping[str, Any], seed: str, metric: Metric) -> float | None:
    """Return the value of a seed; of a score that was not reached, the steps of the whole training."""
    value = condition["seeds"][seed][metric.key]
    if value is None:
        return float(condition["steps"]) if metric.reaches is not None else None
    return float(value) if metric.learned is None else float(value >= metric.learned)


def read_all(folder: Path) -> dict[str, Result]:
    """Return the results of all experiments that have numbers in a folder, with verdicts where they are complete.

    Raise ConfigError for numbers of another design.
    """
    names = [name for name in list_experiments() if (folder / f"{name}.json").exists()]
    numbers = {name: read_results(folder / f"{name}.json") for name in names}
    for name in names:
        check_design(get_experiment(name), numbers[name]["designs"])
    effects: dict[str, Effect | None] = {}
    for name in names:
        experiment = get_experiment(name)
        values = list(differences(experiment, numbers[name]["conditions"], experiment.primary).values())
        effects[name] = paired_effect(values) if len(values) > 1 else None
    complete = {n: e for n, e in effects.items() if e and len(e.differences) >= get_experiment(n).seeds}
    adjusted = holm({name: effect.p for name, effect in complete.items()}, len(list_experiments()))
    return {name: _result(get_experiment(name), numbers[name], effects[name], adjusted.get(name)) for name in names}


def check_design(experiment: Experiment, designs: Sequence[Mapping[str, str]]) -> None:
    """Raise ConfigError where the last of the designs that have run is not the experiment's, and no change says so."""
    known = {experiment.design, *(change.design for change in experiment.changes)}
    if designs and designs[-1]["design"] not in known:
        raise ConfigError(
            f"{experiment.name}.toml was changed after its first run; say so in [[changes]], or restore it"
        )


def _result(experiment: Experiment, numbers: Mapping[str, Any], effect: Effect | None, p: float | None) -> Result:
    baseline = numbers["conditions"].get(experiment.primary.against, {"seeds": {}})
    metric = experiment.metrics[experiment.control.metric]
    values = [v for seed in baseline["seeds"] if (v := value_of(baseline, seed, metric)) is not None]
    control = fmean(values) if values else None
    verdict = None
    if effect is not None and p is not None and control is not None:
        passed = control >= experiment.control.at_least
        relevant = experiment.primary.relevant
        verdict = decide(effect, p, experiment.predicted, relevant, control_passed=passed)
    return Result(experiment, numbers, effect, 1.0 if p is None else p, control, verdict)


def core_hours(results: Iterable[Result]) -> float:
    """Return the processor time of all runs that have numbers."""
    seconds = [
        value
        for result in results
        for condition in result.conditions.values()
        for seed in condition["seeds"].values()
        for value in (seed["seconds"].get("train", 0), seed["seconds"].get("evaluate", 0))
    ]
    return sum(seconds) / 3600


def write_pages(folder: Path = RESULTS) -> list[Path]:
    """Write the pages and figures of all results in a folder; "Which attention?" only for the published ones."""
    results = verified(lambda: read_all(folder), folder, HINT)
    pages = {}
    for name, result in results.items():
        pages[folder / f"{name}.md"] = "\n".join(_experiment_page(result)) + "\n"
        pages[folder / f"{name}.svg"] = draw_seeds(result)
    pages[folder / "README.md"] = "\n".join(_table_page(results)) + "\n"
    pages[folder / "forest.svg"] = draw_forest(list(results.values()))
    if folder.resolve() == RESULTS.resolve():
        pages[WHICH] = "\n".join(_which_page(results)) + "\n"
    for path, text in pages.items():
        write_text(path, text)
    return list(pages)


def _experiment_page(result: Result) -> Iterator[str]:
    experiment, primary, numbers = result.experiment, result.experiment.primary, result.numbers
    effect, metric = result.effect, result.experiment.metric
    yield f"# {experiment.title}\n\n{experiment.question}\n\n**{_verdict_sentence(result)}**\n"
    yield "## The primary comparison\n"
    paper, equal_time = primary.paper, _equal_time(experiment)
    sign = "above 0" if experiment.predicted > 0 else "below 0"
    yield (
        f"`{primary.condition}` − `{primary.against}`, {metric.label}. {paper.cell}: {paper.condition:g} against "
        f"{paper.against:g}, so the difference should be {sign}. The smallest difference of interest is "
        f"{_number(primary.relevant, metric)}.\n"
    )
    yield "| comparison | seeds | mean difference | 95 % interval | 90 % interval | p (sign flips) | p (Holm) |"
    yield "|---|---|---|---|---|---|---|"
    yield _effect_row("at equal steps", effect, metric, result.adjusted_p)
    if equal_time is not None:
        other = experiment.metrics[equal_time.metric]
        name = "at equal time" if other is metric else f"at equal time, {other.label}"
        yield f"{_effect_row(name, _effect(result, equal_time), other)} |"
    control = experiment.metrics[experiment.control.metric]
    passed = "not measured" if result.control is None else _number(result.control, control)
    yield (
        f"\nControl: {control.label} of the baseline must be at least {_number(experiment.control.at_least, control)} "
        f"on average (by chance {control.chance:.3g}); it is {passed}."
    )
    for part in filter(None, (primary, equal_time)):
        if ratio := time_ratio(result, part):
            yield f"`{part.condition}` trains {ratio:.2f} times as long as `{part.against}`."
    if equal_time is None:
        yield "Their times differed by less than 5 % in the pilot, so that no condition has more steps."
    yield f"\n![Every seed, and the mean with its 95 % interval]({experiment.name}.svg)\n"
    yield from (f"{note}\n" for note in experiment.notes)
    if experiment.secondary:
        yield "## Other comparisons\n\nNot corrected for their number, and without a verdict.\n"
        yield "| difference | of | seeds | mean | 95 % interval | 90 % interval | p (sign flips) |"
        yield "|---|---|---|---|---|---|---|"
        for part in experiment.secondary:
            other = experiment.metrics[part.metric]
            row = _effect_row(f"`{part.condition}` − `{part.against}` | {other.label}", _effect(result, part), other)
            yield row
    yield f"\n## Dataset\n\n{experiment.dataset.strip()}\n\n## Conditions\n"
    yield "| | model | recipe | parameters | kept for the backward pass | steps | seeds | seconds of training |"
    yield "|---|---|---|---|---|---|---|---|"
    for key, condition in experiment.conditions.items():
        if (measured := result.conditions.get(key)) is not None:
            seconds = [seed["seconds"]["train"] for seed in measured["seeds"].values() if is_timed(seed)]
            time = f"{fmean(seconds):.1f}" if seconds else "–"
            sizes = f"{measured['parameters']:,} | {measured['kept_bytes'] / 2**20:.3g} MiB | {measured['steps']:,}"
            sizes += f" | {len(measured['seeds'])} | {time}"
            yield f"| `{key}` | {condition.label} | `{condition.recipe}` | {sizes} |"
    yield "\n## Scores\n\nMeans and standard deviations over seeds; the JSON file has each seed."
    if any(metric.reaches is not None for metric in experiment.metrics.values()):
        yield "A seed that does not reach a score counts with the steps of its whole training."
    yield ""
    yield from _score_table(result)
    yield "\n## Design\n"
    pilot = experiment.pilot
    if pilot is not None:
        yield (
            f"{experiment.seeds} seeds from {experiment.first_seed}; the standard deviation of {pilot.seeds} pilot "
            f"differences, with seeds below 100, was {_number(pilot.sd, metric)}."
        )
    for design in numbers["designs"]:
        yield f"Design `{design['design']}`, first run on {design['date']}."
    commits = sorted({commit for condition in result.conditions.values() for commit in condition["commits"]})
    yield f"The code of the runs: {', '.join(f'`{commit[:12]}`' for commit in commits)}."
    for change in experiment.changes:
        yield f"\nChanged on {change.date}, after `{change.design}`: {change.what} Why: {change.why}"
    yield (
        f"\n{core_hours([result]):.2f} core-hours of training and evaluation, one thread ({numbers['machine']}). "
        "Scores are those of the test split, captions and translations by beam search with "
        f"{numbers['beam_size']} beams.\n"
    )
    yield f"```bash\npython research/experiments/run.py {experiment.name}\n```"


def _verdict_sentence(result: Result) -> str:
    done = len(result.effect.differences) if result.effect else 0
    if result.verdict is None:
        return f"No verdict yet: {done} of {result.experiment.seeds} seeds are there."
    experiment, primary = result.experiment, result.experiment.primary
    failed = result.control is not None and result.control < experiment.control.at_least
    reason = " (the baseline fails the control)" if failed else ""
    pair = f"`{primary.condition}` against `{primary.against}`, {experiment.metric.label}"
    return f"{result.verdict.capitalize()} on this data set at this budget{reason}: {pair}."


def _equal_time(experiment: Experiment) -> Comparison | None:
    """Return the primary comparison with the longer training in the place of the faster model; None without one."""
    primary, longer = experiment.primary, experiment.primary.equal_time
    if longer is None:
        return None
    condition, against = experiment.conditions[longer], experiment.conditions[primary.against]
    replaces_baseline = condition.changes.get("model") == against.changes.get("model")
    replaces_baseline = replaces_baseline and condition.recipe == against.recipe
    pair = (primary.condition, longer) if replaces_baseline else (longer, primary.against)
    return Comparison(condition=pair[0], against=pair[1], metric=primary.equal_time_metric or primary.metric)


def _effect(result: Result, comparison: Comparison) -> Effect | None:
    values = list(differences(result.experiment, result.conditions, comparison).values())
    return paired_effect(values) if len(values) > 1 else None


def _effect_row(name: str, effect: Effect | None, metric: Metric, adjusted_p: float | None = None) -> str:
    adjusted = "" if adjusted_p is None else f" {adjusted_p:.2g} |"
    if effect is None:
        return f"| {name} | – | – | – | – | – |{' – |' if adjusted else ''}"
    return (
        f"| {name} | {len(effect.differences)} | {_number(effect.mean, metric)} | {_bounds(effect.interval, metric)} | "
        f"{_bounds(effect.inner, metric)} | {effect.p:.2g} |{adjusted}"
    )


def _bounds(interval: tuple[float, float], metric: Metric) -> str:
    return f"{_number(interval[0], metric)} to {_number(interval[1], metric)}"


def _number(value: float, metric: Metric) -> str:
    if metric.reaches is not None:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 10 else f"{round(value, 3) + 0.0:.3f}"  # -0.0 becomes 0.0


def is_timed(seed: Mapping[str, Any]) -> bool:
    """Return whether a seed's training time is known: it ran from its beginning to its end in one call."""
    return "train" in seed["seconds"] and not seed["seconds"].get("resumed")


def time_ratio(result: Result, comparison: Comparison) -> float | None:
    """Return the training time of a condition, in that of the other one; None where it is not known."""
    times = []
    for key in (comparison.condition, comparison.against):
        seeds = result.conditions.get(key, {"seeds": {}})["seeds"].values()
        times.append([seed["seconds"]["train"] for seed in seeds if is_timed(seed)])
    return fmean(times[0]) / fmean(times[1]) if all(times) else None


def memory_ratio(result: Result) -> float:
    """Return what a training step of the primary condition keeps for its backward pass, in what its baseline keeps."""
    primary = result.experiment.primary
    return result.conditions[primary.condition]["kept_bytes"] / result.conditions[primary.against]["kept_bytes"]


def _score_table(result: Result) -> Iterator[str]:
    metrics = result.experiment.metrics.values()
    yield f"| | {' | '.join(metric.label for metric in metrics)} |\n|---|{'---|' * len(metrics)}"
    if any(metric.chance is not None for metric in metrics):
        yield f"| by chance | {' | '.join('' if m.chance is None else f'{m.chance:.3g}' for m in metrics)} |"
    for key in result.experiment.conditions:
        if (condition := result.conditions.get(key)) is not None:
            yield f"| `{key}` | {' | '.join(_cell(condition, metric) for metric in metrics)} |"


def _cell(condition: Mapping[str, Any], metric: Metric) -> str:
    values = [v for seed in condition["seeds"] if (v := value_of(condition, seed, metric)) is not None]
    if not values:
        return "–"
    if metric.learned is not None:
        return f"{sum(values):.0f} of {len(values)}"
    spread = f" ± {_number(stdev(values), metric)}" if len(values) > 1 else ""
    missed = sum(condition["seeds"][seed][metric.key] is None for seed in condition["seeds"])
    return f"{_number(fmean(values), metric)}{spread}" + (f" ({missed} not reached)" if missed else "")


def _table_page(results: Mapping[str, Result]) -> Iterator[str]:
    yield "# Experiments on what the papers say\n"
    yield "[The rule](../README.md) was fixed before the runs. p values are Holm's, over the primary comparisons of all"
    yield f"{len(list_experiments())} experiments; those that have not run yet count as p = 1.\n"
    yield "![Effects with 95 % intervals, in units of the smallest difference of interest](forest.svg)\n"
    yield "| experiment | paper | seeds | difference (95 % interval) | p (Holm) | verdict | core-hours |"
    yield "|---|---|---|---|---|---|---|"
    for name in list_experiments():
        experiment = get_experiment(name)
        paper = experiment.primary.paper.cell
        if (result := results.get(name)) is None or result.effect is None:
            yield f"| {experiment.title} (`{name}`) | {paper} | 0 of {experiment.seeds} | – | – | not run | – |"
            continue
        metric, effect = experiment.metric, result.effect
        verdict = result.verdict or "no verdict yet"
        yield (
            f"| [{experiment.title}]({name}.md) | {paper} | {len(effect.differences)} of {experiment.seeds} | "
            f"{metric.label}: {_number(effect.mean, metric)} ({_bounds(effect.interval, metric)}) | "
            f"{result.adjusted_p:.2g} | {verdict} | {core_hours([result]):.2f} |"
        )
    yield f"\n{core_hours(results.values()):.2f} core-hours in all; a run of two experiments counts twice."
    machines = sorted({result.numbers["machine"] for result in results.values()})
    yield f"Machine: {'; '.join(machines)}." if machines else ""


def _which_page(results: Mapping[str, Result]) -> Iterator[str]:
    rows = [r for r in results.values() if r.verdict is not None]
    yield "# Which attention?\n"
    yield (
        "What the attentions of the papers change, measured with equal parameters and equal steps by "
        "[one rule](experiments/README.md). Each row is an experiment that could have gone the other way. Its page, "
        "behind the verdict, names the data: mostly drawn scenes, for translation the words of numbers, and COCO's "
        "boxes without pixels for the row on photographs. The models are small; nothing here is a score of the papers' "
        "full sizes.\n"
    )
    yield "![Effects with 95 % intervals](experiments/results/forest.svg)\n"
    yield "One unit is the smallest difference of interest; to the right is the sign of the difference in the paper.\n"
    yield "| need | attention | effect (95 % interval) | verdict | so | training time | memory |"
    yield "|---|---|---|---|---|---|---|"
    for result in sorted(rows, key=lambda r: r.experiment.need):
        experiment, effect, metric = result.experiment, result.effect, result.experiment.metric
        assert effect is not None
        ratio = time_ratio(result, experiment.primary)
        yield (
            f"| {experiment.need} (`{experiment.name}`) | {experiment.attention} | {metric.label}: "
            f"{_number(effect.mean, metric)} ({_bounds(effect.interval, metric)}), {len(effect.differences)} seeds | "
            f"[{result.verdict}](experiments/results/{experiment.name}.md) | {USE[result.verdict]} | "
            f"{'–' if ratio is None else f'x {ratio:.2f}'} | x {memory_ratio(result):.2f} |"
        )
    waiting = [get_experiment(name) for name in list_experiments() if name not in {r.experiment.name for r in rows}]
    if waiting:
        yield "\nNot decided yet, because their runs are not complete:\n"
        yield from (f"- {experiment.need} (`{experiment.name}`): {experiment.attention}" for experiment in waiting)
    yield (
        f"\n{core_hours(results.values()):.1f} core-hours. Training time and memory are those of the attention, in "
        "those of what it is compared with; memory is what a training step keeps for its backward pass, beside equally "
        "many parameters. [At the papers' sizes](results/speed.md). [All numbers](experiments/results/README.md)\n"
    )
    yield "```bash\npython research/experiments/run.py --pages   # this page from the numbers, in seconds\n```"


def draw_forest(results: Sequence[Result]) -> str:
    """Return the forest plot: primary effects in units of their smallest difference of interest, as predicted > 0."""
    rows = [result for result in results if result.effect is not None]
    limit = 4.0
    height = _HEAD + _ROW * max(len(rows), 1) + _FOOT

    def x(value: float) -> float:
        return round(_LABELS + (_WIDTH - _LABELS - 150) * (max(-limit, min(limit, value)) + limit) / (2 * limit), 1)

    top, bottom = _HEAD, height - _FOOT
    parts = [f'<rect class="bound" x="{x(-1)}" y="{top}" width="{x(1) - x(-1)}" height="{bottom - top}"/>']
    parts += [f'<line class="axis" x1="{x(0)}" x2="{x(0)}" y1="{top}" y2="{bottom}"/>']
    parts += [f'<line class="axis" x1="{x(-limit)}" x2="{x(limit)}" y1="{bottom}" y2="{bottom}"/>']
    parts += [f'<text x="{x(v)}" y="{bottom + 17}" text-anchor="middle">{v:g}</text>' for v in (-4, -2, -1, 0, 1, 2, 4)]
    parts += [f'<text x="{x(-limit)}" y="24">against the paper</text>']
    parts += [f'<text x="{x(limit)}" y="24" text-anchor="end">as in the paper</text>']
    title = "effect / smallest difference of interest"
    parts += [f'<text x="{x(0)}" y="{bottom + 35}" text-anchor="middle">{title}</text>']
    for index, result in enumerate(rows):
        experiment, effect = result.experiment, result.effect
        assert effect is not None
        unit, y = experiment.predicted / experiment.primary.relevant, _HEAD + _ROW * (index + 0.5)
        low, high = sorted(bound * unit for bound in effect.interval)
        done = "dot" if result.verdict else "open"
        parts.append(f'<text x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(experiment.name)}</text>')
        parts.append(f'<line class="mark" x1="{x(low)}" x2="{x(high)}" y1="{y}" y2="{y}"/>')
        for bound, arrow in ((low, -1), (high, 1)):
            if abs(bound) > limit and bound * arrow > 0:
                tip, end = x(bound), x(bound) - 6 * arrow
                path = f"M{end} {y - 4}L{tip} {y}L{end} {y + 4}"
                parts.append(f'<path class="mark" d="{path}" fill="none"/>')
        mean = effect.mean * unit
        if abs(mean) < limit:
            parts.append(f'<circle class="{done}" cx="{x(mean)}" cy="{y}" r="5"/>')
        else:
            place = f'x="{x(0.8 * limit * mean / abs(mean))}" y="{y + 4}"'
            parts.append(f'<text {place} text-anchor="middle">{mean:.1f}</text>')
        verdict = result.verdict or f"{len(effect.differences)} of {experiment.seeds} seeds"
        parts.append(f'<text x="{_WIDTH - 140}" y="{y + 4}">{verdict}</text>')
    return _svg(height, parts)


def draw_seeds(result: Result) -> str:
    """Return a panel for each compared metric, with every seed, the mean and its 95 % interval."""
    experiment = result.experiment
    used = dict.fromkeys(comparison.metric for comparison in (experiment.primary, *experiment.secondary))
    keys = [key for key in experiment.conditions if key in result.conditions]
    height = _HEAD + _ROW * len(keys) + _FOOT
    parts = [
        part for index, key in enumerate(used) for part in _panel(result, experiment.metrics[key], keys, index * height)
    ]
    return _svg(max(height * len(used), 1), parts)


def _panel(result: Result, metric: Metric, keys: Sequence[str], top: float) -> Iterator[str]:
    rows = [(key, result.conditions[key]) for key in keys]
    data = {key: [(v, s) for s in c["seeds"] if (v := value_of(c, s, metric)) is not None] for key, c in rows}
    means = {key: paired_effect([v for v, _ in values]) for key, values in data.items() if len(values) > 1}
    marks = [v for values in data.values() for v, _ in values] + [b for e in means.values() for b in e.interval]
    marks += [] if metric.chance is None else [metric.chance]
    low, high = (min(marks), max(marks)) if marks else (0.0, 1.0)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)

    def x(value: float) -> float:
        return round(_LABELS + (_WIDTH - _LABELS - 20) * (value - low) / (high - low), 1)

    bottom = top + _HEAD + _ROW * len(rows)
    yield f'<text x="{_LABELS}" y="{top + 24}" font-weight="bold">{escape(metric.label)}</text>'
    yield f'<line class="axis" x1="{_LABELS}" x2="{_WIDTH - 20}" y1="{bottom}" y2="{bottom}"/>'
    for value, anchor in ((low, "start"), (high, "end")):
        yield f'<text x="{x(value)}" y="{bottom + 17}" text-anchor="{anchor}">{value:.4g}</text>'
    if metric.chance is not None:
        at = x(metric.chance)
        yield f'<line class="chance" x1="{at}" x2="{at}" y1="{top + _HEAD}" y2="{bottom}"/>'
    for index, (key, condition) in enumerate(rows):
        y = top + _HEAD + _ROW * (index + 0.5)
        label = escape(result.experiment.conditions[key].label)
        yield f'<text x="{_LABELS - 10}" y="{y + 4}" text-anchor="end">{label}</text>'
        for value, seed in data[key]:
            kind = "open" if condition["seeds"][seed][metric.key] is None else "dot"
            yield f'<circle class="{kind}" cx="{x(value)}" cy="{y}" r="4"/>'
        if (effect := means.get(key)) is not None:
            at = x(effect.mean)
            yield f'<line class="mark" x1="{x(effect.interval[0])}" x2="{x(effect.interval[1])}" y1="{y}" y2="{y}"/>'
            yield f'<line class="mark" x1="{at}" x2="{at}" y1="{y - 8}" y2="{y + 8}"/>'


def _svg(height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13">{_STYLE}\n<rect class="back" width="{_WIDTH}" height="{height}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
