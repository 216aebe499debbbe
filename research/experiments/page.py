"""The pages of experiments, made from their numbers alone: one for each claim, all in one table, "Which attention?"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from analysis import Effect, Verdict, decide, holm, paired_effect, paired_share_effect, power, share_interval
from experiment import (
    FIRST_RULE,
    FOLDER,
    Comparison,
    Contrast,
    Experiment,
    Metric,
    Primary,
    get_experiment,
    list_experiments,
)
from measures import read_results

from legenda.errors import ConfigError
from legenda.io import read_text

RESULTS = FOLDER / "results"
WHICH = FOLDER.parent / "which-attention.md"
TITLES = {
    "relative_geometry": "Relative geometry finds what is next to what in drawn scenes",
    "branches": "Branches and dropping, from few examples",
}
"""The titles of the pages that hold several experiments."""
THINGS = (1, 2, 4, 7, 12)
"""The largest numbers of things of the groups of test images, but for the last group."""


@dataclass(frozen=True)
class Decision:
    """A primary comparison: its effect, its p value by Holm over those of all experiments, and what follows.

    effect: None with fewer than two seeds. verdict: None until all seeds are there, and where it is withdrawn.
    """

    primary: Primary
    metric: Metric
    effect: Effect | None
    adjusted_p: float
    verdict: Verdict | None


@dataclass(frozen=True)
class Result:
    """An experiment with its numbers, from which its decisions and its control follow."""

    experiment: Experiment
    numbers: Mapping[str, Any]
    decisions: tuple[Decision, ...]
    control: float | None

    @property
    def conditions(self) -> Mapping[str, Any]:
        """The numbers of the conditions by their keys."""
        return self.numbers["conditions"]


def paired_values(conditions: Mapping[str, Any], keys: Sequence[str], metric: Metric) -> dict[str, list[float]]:
    """Return the values of the conditions for each seed of which all of them have one."""
    seeds = [conditions.get(key, {"seeds": {}})["seeds"] for key in keys]
    shared = [seed for seed in seeds[0] if all(seed in others for others in seeds)]
    rows = {seed: [value_of(conditions[key], seed, metric) for key in keys] for seed in shared}
    return {seed: [v for v in row if v is not None] for seed, row in rows.items() if None not in row}


def value_of(condition: Mapping[str, Any], seed: str, metric: Metric) -> float | None:
    """Return the value of a seed; of a score that was not reached, the steps of the whole training."""
    value = condition["seeds"][seed][metric.key]
    if value is None:
        return float(condition["steps"]) if metric.reaches is not None else None
    return float(value) if metric.learned is None else float(value >= metric.learned)


def effect_of(experiment: Experiment, conditions: Mapping[str, Any], part: Comparison | Contrast) -> Effect | None:
    """Return the effect of a comparison or contrast; None with fewer than two seeds."""
    contrast = isinstance(part, Contrast)
    weights = part.weights if contrast else {part.condition: 1.0, part.against: -1.0}
    metric = experiment.metrics[part.metric] if contrast else experiment.metric_of(part)
    rows = list(paired_values(conditions, list(weights), metric).values())
    if len(rows) < 2:
        return None
    if metric.learned is not None:
        return paired_share_effect([row[0] for row in rows], [row[1] for row in rows])
    values = [sum(weight * value for weight, value in zip(weights.values(), row, strict=True)) for row in rows]
    return paired_effect(values, 0.0 if contrast else _image_error(conditions, part))


def _image_error(conditions: Mapping[str, Any], part: Comparison) -> float:
    """Return the standard error of a difference of CIDEr-D that comes from the choice of test images, 0 if unknown.

    The scores of an image are means over the seeds, of which two conditions may have different ones.
    """
    both = [conditions[key].get("images") for key in (part.condition, part.against)]
    if part.metric != "CIDEr-D" or None in both:
        return 0.0
    first, second = (np.array(images["thousandths"].split(), float) / 1000 for images in both)
    return float((first - second).std(ddof=1) / np.sqrt(len(first)))


def read_all(folder: Path) -> dict[str, Result]:
    """Return the results of all experiments that have numbers in a folder, with verdicts where they are complete.

    Raise ConfigError for numbers of another design, and for seeds of pilots among those of a verdict.
    """
    names = [name for name in list_experiments() if (folder / f"{name}.json").exists()]
    numbers = {name: read_results(folder / f"{name}.json") for name in names}
    effects: dict[tuple[str, int], Effect | None] = {}
    for name in names:
        experiment = get_experiment(name)
        check_design(experiment, numbers[name]["designs"])
        for index, primary in enumerate(experiment.primaries):
            effects[name, index] = effect_of(experiment, numbers[name]["conditions"], primary)
    complete = {k: e.p for k, e in effects.items() if e and len(e.differences) >= get_experiment(k[0]).seeds}
    adjusted = holm(complete, count_primaries())
    results = {}
    for name in names:
        experiment = get_experiment(name)
        control = _control(experiment, numbers[name]["conditions"])
        passed = control is not None and control >= experiment.control.at_least
        decisions = []
        for index, primary in enumerate(experiment.primaries):
            metric, effect, p = experiment.metric_of(primary), effects[name, index], adjusted.get((name, index))
            verdict: Verdict | None = None
            if effect is not None and p is not None and not experiment.withdrawn:
                sign = experiment.predicted(primary)
                steps = metric.reaches is not None
                verdict = decide(effect, p, sign, metric.bound.value, control_passed=passed, steps=steps)
            decisions.append(Decision(primary, metric, effect, 1.0 if p is None else p, verdict))
        results[name] = Result(experiment, numbers[name], tuple(decisions), control)
    return results


def count_primaries() -> int:
    """Return the number of primary comparisons of all experiments, those without numbers and those withdrawn too."""
    return sum(len(get_experiment(name).primaries) for name in list_experiments())


def _control(experiment: Experiment, conditions: Mapping[str, Any]) -> float | None:
    baseline = conditions.get(experiment.primary.against, {"seeds": {}})
    metric = experiment.metrics[experiment.control.metric]
    values = [v for seed in baseline["seeds"] if (v := value_of(baseline, seed, metric)) is not None]
    return fmean(values) if values else None


def check_design(experiment: Experiment, designs: Sequence[Mapping[str, str]]) -> None:
    """Raise ConfigError where the last of the designs that have run is not the experiment's, and no changes say so."""
    after = {change.design: change.now for change in experiment.changes}
    design = designs[-1]["design"] if designs else experiment.design
    while design != experiment.design and design in after:
        design = after.pop(design)
    if design != experiment.design:
        raise ConfigError(
            f"{experiment.name}.toml was changed after its first run, from {designs[-1]['design']} to "
            f"{experiment.design}; say so in [[changes]], or restore it"
        )


def core_hours(results: Iterable[Result]) -> float:
    """Return the processor time of all runs that have numbers, in verdicts or pilots."""
    seeds = [
        seed["seconds"]
        for result in results
        for condition in result.conditions.values()
        for seed in condition["seeds"].values()
    ]
    seeds += [pilot["seconds"] for result in results for pilot in result.numbers.get("pilots", ())]
    return sum(each.get("train", 0) + each.get("evaluate", 0) for each in seeds) / 3600


def name_of(result: Result, part: Comparison) -> str:
    """Return what is compared, in plain words."""
    conditions = result.experiment.conditions
    return f"{conditions[part.condition].label} − {conditions[part.against].label}"


def page_text(name: str, results: Sequence[Result]) -> Iterator[str]:
    yield f"# {TITLES.get(name, results[0].experiment.title)}\n"
    for result in results:
        yield f"{result.experiment.question}\n"
    yield "| comparison | seeds | difference | 95 % interval | 90 % interval | p | p (Holm) | bound | verdict |"
    yield f"|{'---|' * 9}"
    for result in results:
        for decision in result.decisions:
            verdict = decision.verdict or _waiting(result, decision)
            yield (
                f"| {name_of(result, decision.primary)}: {decision.metric.label} | "
                f"{_effect_cells(decision.effect, decision.metric)} | "
                f"{decision.adjusted_p:.2g} | {_number(decision.metric.bound.value, decision.metric)} | **{verdict}** |"
            )
    yield f"\n![Every seed and every pair of seeds]({name}.svg)\n"
    for result in results:
        yield from (f"{note}\n" for note in result.experiment.notes)
        yield from _predictions(result)
    if name == "relative_geometry":
        yield from _learned_table(results)
    yield from _other_table(results)
    for result in results:
        yield from _by_things(result)
    for result in results:
        yield from _details(result)
    names = " ".join(result.experiment.name for result in results)
    yield f"```bash\npython research/experiments/run.py {names}\n```"


def _waiting(result: Result, decision: Decision) -> str:
    done = len(decision.effect.differences) if decision.effect else 0
    return f"not decided: {done} of {result.experiment.seeds} seeds"


def _predictions(result: Result) -> Iterator[str]:
    cells = []
    for decision in result.decisions:
        paper, sign = decision.primary.paper, "above" if result.experiment.predicted(decision.primary) > 0 else "below"
        cells.append(f"{paper.cell}: {paper.condition:g} against {paper.against:g}, so {sign} 0")
    yield f"Predicted (`{result.experiment.name}`): {'; '.join(cells)}.\n"


def _learned_table(results: Sequence[Result]) -> Iterator[str]:
    yield "Seeds that learn it, which come closer to 1 than to chance, with Clopper and Pearson's 95 % interval:\n"
    yield "| experiment | score | model | seeds that learn | 95 % |\n|---|---|---|---|---|"
    for result in results:
        label = result.experiment.metrics[result.experiment.primary.metric].label
        for key in result.conditions:
            count, total = learned_seeds(result, key)
            low, high = share_interval(count, total)
            model = result.experiment.conditions[key].label
            yield f"| `{result.experiment.name}` | {label} | {model} | {count} of {total} | {low:.2f} to {high:.2f} |"
    yield ""


def learned_seeds(result: Result, condition: str) -> tuple[int, int]:
    """Return how many seeds of a condition come closer to 1 than to chance in the primary metric, and of how many."""
    metric = result.experiment.metrics[result.experiment.primary.metric]
    limit = (1 + (metric.chance or 0)) / 2
    values = [seed[metric.key] >= limit for seed in result.conditions[condition]["seeds"].values()]
    return sum(values), len(values)


def _other_table(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for result in results:
        experiment = result.experiment
        parts: list[Comparison | Contrast] = [*experiment.secondary, *experiment.contrasts]
        timed = [part for primary in experiment.primaries if (part := equal_time(experiment, primary)) is not None]
        counted = [p for p in experiment.primaries if experiment.metric_of(p) is not experiment.metrics[p.metric]]
        means = [Comparison(condition=p.condition, against=p.against, metric=p.metric) for p in counted]
        for part in (*means, *timed, *parts):
            if (effect := effect_of(experiment, result.conditions, part)) is not None:
                metric = experiment.metrics[part.metric]
                label = part.label if isinstance(part, Contrast) else name_of(result, part)
                rows.append(f"| {label}: {metric.label} | {_effect_cells(effect, metric)} |")
    if rows:
        yield "Without a verdict, and not corrected for their number:\n"
        yield "| comparison | seeds | difference | 95 % interval | 90 % interval | p |\n|---|---|---|---|---|---|"
        yield from rows
        yield ""


def _by_things(result: Result) -> Iterator[str]:
    """Yield where in the test images the differences of CIDEr-D lie, if the scores of the images are kept."""
    kept = {key: each["images"] for key, each in result.conditions.items() if "things" in each.get("images", {})}
    parts = [p for p in result.experiment.primaries if p.condition in kept and p.against in kept]
    if not parts:
        return
    yield "By the number of things in an image, differences of CIDEr-D ± standard errors over its images:\n"
    yield f"| things | images | {' | '.join(name_of(result, part) for part in parts)} |"
    yield f"|{'---|' * (2 + len(parts))}"
    things = np.array(next(iter(kept.values()))["things"].split(), int)
    for least, most in zip((1, *(limit + 1 for limit in THINGS)), (*THINGS, things.max()), strict=True):
        chosen = (things >= least) & (things <= most)
        cells = [str(least) if least == most else f"{least} to {most}", f"{chosen.sum():,}"]
        for part in parts:
            scores = (np.array(kept[key]["thousandths"].split(), float) for key in (part.condition, part.against))
            values = np.subtract(*scores)[chosen] / 1000
            cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _details(result: Result) -> Iterator[str]:
    experiment, metrics = result.experiment, result.experiment.metrics
    yield f"## `{experiment.name}`\n\n{experiment.dataset.strip()}\n"
    head = ["parameters", "kept for the backward pass", "steps", "seeds", "seconds of training"]
    yield f"| model | {' | '.join(head)} | {' | '.join(metric.label for metric in metrics.values())} |"
    yield f"|{'---|' * (1 + len(head) + len(metrics))}"
    chances = ["" if metric.chance is None else f"{metric.chance:.3g}" for metric in metrics.values()]
    yield f"| by chance | | | | | | {' | '.join(chances)} |"
    for key, condition in experiment.conditions.items():
        if (numbers := result.conditions.get(key)) is not None:
            seconds = [seed["seconds"]["train"] for seed in numbers["seeds"].values() if is_timed(seed)]
            cells = [f"{condition.label} (`{key}`)", f"{numbers['parameters']:,}"]
            cells += [f"{numbers['kept_bytes'] / 2**20:.3g} MiB", f"{numbers['steps']:,}", str(len(numbers["seeds"]))]
            cells += [f"{fmean(seconds):.1f}" if seconds else "–", *(_cell(numbers, each) for each in metrics.values())]
            yield f"| {' | '.join(cells)} |"
        else:
            yield f"| {condition.label} (`{key}`) |{' – |' * (len(head) + len(metrics))}"
    yield ""
    control = metrics[experiment.control.metric]
    value = "not measured" if result.control is None else _number(result.control, control)
    yield (
        f"Means ± standard deviations over seeds. Control: {control.label} of the baseline is {value}, and must be at "
        f"least {_number(experiment.control.at_least, control)}."
    )
    yield from _design(result)


def _design(result: Result) -> Iterator[str]:
    experiment, metric = result.experiment, result.decisions[0].metric
    pilot, effect, tests = experiment.pilot, result.decisions[0].effect, count_primaries()
    if pilot is not None and effect is not None and metric.learned is None:
        spread = stdev(effect.differences)
        chance = power(len(effect.differences), spread, metric.bound.value, tests, effect.images)
        images = f", the standard error of the images {_number(effect.images, metric)}" if effect.images else ""
        yield (
            f"The standard deviation of {pilot.seeds} pilot differences was {_number(pilot.sd, metric)}, that of the "
            f"{len(effect.differences)} seeds is {_number(spread, metric)}{images}: a difference of the bound would "
            f"be found, after correction for {tests} comparisons, with a chance of {chance:.2f}."
        )
    if experiment.name in FIRST_RULE and (by_design := _verdict_by_design(result)) is not None:
        same = "the same" if by_design == result.decisions[0].verdict else f'"{by_design}"'
        bound = _number(experiment.primary.relevant, experiment.metrics[metric.key])
        yield f"The design's bound was {bound}, of the mean score; with it the first verdict is {same}."
    designs = [f"design `{each['design']}`, first run on {each['date']}" for each in result.numbers["designs"]]
    commits = sorted({_short(commit) for c in result.conditions.values() for commit in c["commits"]})
    about = [*designs, *(["code " + ", ".join(f"`{commit}`" for commit in commits)] if commits else [])]
    about += machines(result)
    if about:
        yield f"Provenance: {'; '.join(about)}; {core_hours([result]):.2f} core-hours."
    for change in experiment.changes:
        yield f"Changed on {change.date}, after `{change.design}`: {change.what} Why: {change.why}"
    yield ""
    if pilots := result.numbers.get("pilots"):
        scores = [key for key in experiment.metrics if any(key in each for each in pilots)]
        head = ["model", "seed", "changes", "steps", "validation", "seconds", *scores]
        yield f"Pilots, seeds below 100, in no verdict:\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}"
        for each in sorted(pilots, key=lambda e: (e["condition"], e["changes"], e["seed"])):
            cells = [f"{each[key]:.4f}" if key in each else "" for key in scores]
            row = f"| {each['condition']} | {each['seed']} | {', '.join(each['changes'])} | {each['steps']:,} | "
            yield f"{row}{each['validation']:.4f} | {each['seconds']['train']:.0f} | {' | '.join(cells)} |"
        yield ""


def _verdict_by_design(result: Result) -> Verdict | None:
    """Return the first verdict by the bound of the design, where that differs from the one of all; else None."""
    experiment, primary, first = result.experiment, result.experiment.primary, result.decisions[0]
    plain = Comparison(condition=primary.condition, against=primary.against, metric=primary.metric)
    if first.verdict is None or primary.relevant == first.metric.bound.value:
        return None
    effect = effect_of(experiment, result.conditions, plain)
    if effect is None or result.control is None:
        return None
    passed, steps = result.control >= experiment.control.at_least, first.metric.reaches is not None
    sign, p = experiment.predicted(primary), first.adjusted_p
    return decide(effect, p, sign, primary.relevant, control_passed=passed, steps=steps)


def _short(commit: str) -> str:
    """Return the first digits of a commit, with "-dirty" where the tree differed from it."""
    return commit[:12] + ("-dirty" if commit.endswith("-dirty") else "")


def equal_time(experiment: Experiment, primary: Primary) -> Comparison | None:
    """Return the primary comparison with the longer training in the place of the faster model; None without one."""
    longer = primary.equal_time
    if longer is None:
        return None
    condition, against = experiment.conditions[longer], experiment.conditions[primary.against]
    replaces_baseline = condition.changes.get("model") == against.changes.get("model")
    replaces_baseline = replaces_baseline and condition.recipe == against.recipe
    pair = (primary.condition, longer) if replaces_baseline else (longer, primary.against)
    return Comparison(condition=pair[0], against=pair[1], metric=primary.equal_time_metric or primary.metric)


def _effect_cells(effect: Effect | None, metric: Metric) -> str:
    if effect is None:
        return "– | – | – | – | –"
    return (
        f"{len(effect.differences)} | {_number(effect.mean, metric)} | {bounds(effect.interval, metric)} | "
        f"{bounds(effect.inner, metric)} | {effect.p:.2g}"
    )


def bounds(interval: tuple[float, float], metric: Metric) -> str:
    """Return an interval in words."""
    return f"{_number(interval[0], metric)} to {_number(interval[1], metric)}"


def _number(value: float, metric: Metric) -> str:
    if metric.reaches is not None:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 10 else f"{round(value, 3) + 0.0:.3f}"  # -0.0 becomes 0.0


def effect_text(effect: Effect, metric: Metric, seeds: int) -> str:
    """Return a difference with its 95 % interval and the number of seeds."""
    sign = "+" if effect.mean > 0 else ""
    return f"{sign}{_number(effect.mean, metric)} ({bounds(effect.interval, metric)}; {seeds} seeds)"


def is_timed(seed: Mapping[str, Any]) -> bool:
    """Return whether a seed's training time is known: it ran from its beginning to its end in one call."""
    return "train" in seed["seconds"] and not seed["seconds"].get("resumed")


def time_ratio(result: Result, comparison: Comparison) -> float | None:
    """Return the training time of a condition, in that of the other one; None where it is not known.

    It is of the seeds that both ran on one machine, since times of two machines are not compared.
    """
    first, second = (
        {
            seed: numbers["seconds"]
            for seed, numbers in result.conditions.get(key, {"seeds": {}})["seeds"].items()
            if is_timed(numbers)
        }
        for key in (comparison.condition, comparison.against)
    )
    seeds = [s for s in first if s in second and first[s].get("machine") == second[s].get("machine")]
    return fmean(first[s]["train"] for s in seeds) / fmean(second[s]["train"] for s in seeds) if seeds else None


def machines(result: Result) -> list[str]:
    """Return the machines of all runs that have numbers; earlier numbers name one for all."""
    seeds = [seed["seconds"] for each in result.conditions.values() for seed in each["seeds"].values()]
    seeds += [pilot["seconds"] for pilot in result.numbers.get("pilots", ())]
    return sorted({about["machine"] for about in [result.numbers, *seeds] if "machine" in about})


def memory_ratio(result: Result, comparison: Comparison) -> float | None:
    """Return what a training step of a condition keeps for its backward pass, in what the other one keeps."""
    both = [result.conditions.get(key) for key in (comparison.condition, comparison.against)]
    return None if None in both else both[0]["kept_bytes"] / both[1]["kept_bytes"]


def _cell(condition: Mapping[str, Any], metric: Metric) -> str:
    values = [v for seed in condition["seeds"] if (v := value_of(condition, seed, metric)) is not None]
    if not values:
        return "–"
    spread = f" ± {_number(stdev(values), metric)}" if len(values) > 1 else ""
    missed = sum(condition["seeds"][seed][metric.key] is None for seed in condition["seeds"])
    return f"{_number(fmean(values), metric)}{spread}" + (f" ({missed} not reached)" if missed else "")


def not_run(experiment: Experiment) -> Result:
    waiting = [Decision(p, experiment.metric_of(p), None, 1.0, None) for p in experiment.primaries]
    return Result(experiment, {"conditions": {}, "designs": []}, tuple(waiting), None)


def table_page(results: Sequence[Result]) -> Iterator[str]:
    yield "# Experiments on what the papers say\n"
    yield f"By [one rule](../README.md). p (Holm) is corrected for all {count_primaries()} primary comparisons of the"
    yield "designs, those that have not run and those that are withdrawn too. Time and memory are those of training, in"
    yield "those of what is compared with, at equally many parameters; times of one model differ by some percent from"
    yield "seed to seed.\n"
    yield "![Effects in units of the smallest difference of interest](forest.svg)\n"
    head = (
        "experiment | comparison | seeds | difference | 95 % interval | 90 % interval | p | p (Holm) | bound | verdict"
    )
    yield f"| {head} | time | memory |\n|{'---|' * 12}"
    withdrawn = []
    for result in results:
        experiment, name = result.experiment, result.experiment.name
        for index, decision in enumerate(result.decisions):
            verdict = "withdrawn" if experiment.withdrawn else decision.verdict or _waiting(result, decision)
            page = f"`{name}`" if experiment.withdrawn else f"[`{name}`]({experiment.page}.md)"
            bound = "–" if experiment.withdrawn else _number(decision.metric.bound.value, decision.metric)
            yield (
                f'| <a id="{anchor_of(name, index)}"></a>{page} | '
                f"{name_of(result, decision.primary)}: {decision.metric.label} | "
                f"{_effect_cells(decision.effect, decision.metric)} | {decision.adjusted_p:.2g} | "
                f"{bound} | {verdict} | "
                f"{_times(time_ratio(result, decision.primary))} | {_times(memory_ratio(result, decision.primary))} |"
            )
        if experiment.withdrawn:
            withdrawn.append(f"- `{name}`, {experiment.title}: {experiment.withdrawn}")
    yield "\n## Withdrawn\n\nTheir numbers stay in the JSON files, and their tests in the correction.\n"
    yield from withdrawn
    yield "\n## What was known before\n"
    blocks = [c for r in results for c in r.conditions.values()]
    changed = sum(any(commit.endswith("-dirty") for commit in c["commits"]) for c in blocks)
    yield read_text(FOLDER / "before.md", "it is part of the project").strip()
    yield (
        f"Of {len(blocks)} conditions {changed} ran on a tree that differed from its commit (`-dirty` on the pages); "
        "since 2026-11-27 such a run is refused.\n"
    )
    yield f"{core_hours(results):.2f} core-hours, a run of two experiments counted twice. Machines: "
    yield f"{'; '.join(sorted({machine for each in results for machine in machines(each)}))}."


def anchor_of(name: str, index: int) -> str:
    """Return the anchor of a primary comparison's row in the table of all."""
    return name if index == 0 else f"{name}-{index + 1}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"x {ratio:.2f}"
