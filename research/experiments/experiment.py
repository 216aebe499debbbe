"""An experiment: what a paper says, the models that are compared, and its runs, committed before the first of them.

An experiment is a TOML file in this folder:

    title, question, dataset            text
    page                                the page of results that shows it, by default one of its own
    notes                               paragraphs of that page, which may be written after the runs
    withdrawn                           why the experiment supports no claim; its numbers stay
    first_seed, seeds                   the seeds first_seed, first_seed + 1, ... draw initialization and data
    [data] [model] [training] [fine_tuning]    changes of the recipes of all conditions, as `legenda.train` takes them;
                                        with fine_tuning a recipe of one stage is followed by a second one like it
    [[conditions]]                      key, label, recipe, and changes of its own
    [[metrics]]                         see `Metric`
    [primary] or [[primary]]            see `Primary`: the comparisons that decide, each with a verdict of its own
    [control]                           see `Control`
    [pilot]                             see `Pilot`
    [[secondary]]                       condition, against, metric: shown with intervals, without a verdict
    [[contrasts]]                       see `Contrast`: the same for sums over conditions, such as main effects
    [[changes]]                         see `Change`: what was changed after the first run

A run is that of a condition and a seed, shared by all experiments with a condition of the same configuration.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator

from legenda.cli.table import RowRun
from legenda.config import Config, NonNegativeInt, PositiveFloat, PositiveInt, merge, to_json
from legenda.data.captions import ScenesData, TokenizedCaptions
from legenda.data.registry import SplitSizes
from legenda.data.scenes import FEATURE_DIM, SceneCounts
from legenda.data.scenes.language import references
from legenda.data.scenes.scene import make_scene
from legenda.errors import ConfigError, did_you_mean
from legenda.io import read_text, write_text
from legenda.models.registry import build_model
from legenda.papers import get_recipe
from legenda.recipes import Recipe, recipe_to_toml
from legenda.registry import load_plugin
from legenda.text import Vocabulary
from legenda.training.config import TrainingConfig

FOLDER = Path(__file__).parent
_PARTS = ("data", "model", "training", "fine_tuning")
_WORDING = ("title", "page", "notes", "withdrawn", "changes", "contrasts")
"""Parts of a file that decide nothing."""
SEARCH: Mapping[str, object] = {"beam_size": 3}
"""What `legenda evaluate` sets over a model's generation config."""
MIN_SEEDS, FIRST_SEED, MIN_PILOT_SEEDS = 10, 100, 6
"""The fewest seeds of an experiment, the first of them, as lower ones are for pilots, and the fewest of a pilot."""
MAX_SIZE_RATIO, MAX_TIME_RATIO = 1.02, 1.05
"""How much the numbers of parameters of two models may differ, and their training times without a longer baseline."""
_NORMAL_QUANTILES = 1.645 + 1.282
"""The quantiles of a 90 % interval and of a power of 80 % on both sides, as for two one-sided tests."""
FIRST_RULE = frozenset(
    [
        "absent",
        "branches",
        "coco_boxes",
        "distances",
        "drop_branch",
        "geometry_kinds",
        "grounding",
        "normalized_queries",
        "questions",
        "relations",
        "second_order_steps",
        "self_critical",
        "translation",
        "x_transformer_truth",
    ]
)
"""Designs that ran before 2026-11-27, with pilots of two seeds or more and bounds of their own."""
COUNTED = {"relations": "pair", "grounding": "near", "distances": "pair"}
"""Metrics whose outcomes turned out to be of two kinds, and the experiments that they decide: seeds are counted."""
_SIZES: Mapping[str, Mapping[str, int]] = {
    "karpathy": {"vocab_size": 4900},
    "scene_expressions": {"vocab_size": 20, "feature_dim": FEATURE_DIM},
    "scene_questions": {"vocab_size": 20, "feature_dim": FEATURE_DIM, "answers": 30},
    "number_words": {"vocab_size": 50},
}
"""What models of a kind of data are created with to count their parameters, about; scenes are counted."""
_COCO_FEATURES = {"features.safetensors": 86, "classes.safetensors": 80}
"""The channels of a region in the files of `coco_boxes.py`."""


class Condition(Config):
    """A model with its training; changes: of the recipe's fields, by the parts of `legenda.train`."""

    key: str
    label: str
    recipe: str
    changes: Mapping[str, Mapping[str, Any]]


class Metric(Config):
    """A number of each run."""

    key: str
    label: str
    score: str | None = None
    """The name of a score of the test split; by default the key."""
    reaches: float | None = None
    """The number is that of the steps after which this score, as validation writes it (in percent for tasks other than
    captioning), stays at this value or above."""
    function: str | None = None
    """A name in `measures.FUNCTIONS`, which computes the number from the run."""
    learned: float | None = None
    """For outcomes of two kinds: the value of a seed is whether it reaches this one, 0 or 1."""
    chance: float | None = None
    """What a model reaches that cannot know."""
    better: Literal["higher", "lower"] = "higher"

    @property
    def name(self) -> str:
        """The name of the score."""
        return self.score or self.key

    @property
    def sign(self) -> int:
        """1 where higher values are better, -1 where lower ones are."""
        return -1 if self.better == "lower" or self.reaches is not None else 1

    @property
    def bound(self) -> Bound:
        """The smallest difference of interest."""
        if self.learned is not None:
            return SEEDS
        if self.reaches is not None:
            return STEPS
        return CIDER_D if self.name == "CIDEr-D" else SHARE


@dataclass(frozen=True)
class Bound:
    """A smallest difference of interest, and why it is that."""

    value: float
    reason: str


CIDER_D = Bound(
    0.015, "a choice: of the gains that the papers claim for one part, 0.5 to 3.4 points of 100, a small one"
)
SHARE = Bound(0.05, "a choice: one caption, answer or expression in twenty")
STEPS = Bound(75, "three validations of 25 steps, between which steps are not counted")
SEEDS = Bound(0.3, "a choice: three seeds of ten")


class Comparison(Config):
    """The difference of two conditions, seed by seed."""

    condition: str
    against: str
    metric: str


class Paper(Config):
    """The scores of a paper from which the sign of the difference follows; higher is better."""

    cell: Annotated[str, Field(min_length=1)]
    condition: float
    against: float


class Contrast(Config):
    """A weighted sum of conditions, seed by seed."""

    label: str
    metric: str
    weights: Mapping[str, float]


class Primary(Comparison):
    """A comparison that decides."""

    paper: Paper
    relevant: PositiveFloat
    """The smallest difference of interest by which the number of seeds was chosen, in units of the metric."""
    equal_time: str | None = None
    """The condition that takes the place of the faster one where both are given the same training time."""
    equal_time_metric: str | None = None
    """What is compared then, where the metric is a number of steps; by default the metric."""


class Control(Config):
    """What the baseline must learn, on average over the seeds, or else nothing follows from the experiment."""

    metric: str
    at_least: float


class Pilot(Config):
    """What runs with seeds below FIRST_SEED showed, from which the number of seeds follows."""

    seeds: Annotated[int, Field(ge=2, le=1000)]
    sd: PositiveFloat
    """The standard deviation of the differences of the primary comparison."""
    seconds: tuple[PositiveFloat, PositiveFloat]
    """The training times of its condition and of its baseline."""


class Change(Config):
    """A change of the design after its first run."""

    date: str
    what: str
    why: str
    design: str
    """The digest of the design before."""
    now: str
    """The digest of the design after it."""


class Experiment(Config):
    """An experiment; the fields are those of its file, see the module."""

    name: str
    title: str
    question: str
    dataset: str
    page: str = ""
    notes: tuple[str, ...] = ()
    withdrawn: str = ""
    converged: bool = False
    """Whether trainings are so long that equal time is no question; a note says what the pilots show of that."""
    first_seed: NonNegativeInt = FIRST_SEED
    seeds: PositiveInt
    conditions: Mapping[str, Condition]
    metrics: Mapping[str, Metric]
    primaries: Annotated[tuple[Primary, ...], Field(min_length=1)]
    control: Control
    pilot: Pilot | None = None
    secondary: tuple[Comparison, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    changes: tuple[Change, ...] = ()
    design: str = Field(default="")
    """The digest of all that decides the result: the file without its notes and changes."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for comparison in (*self.primaries, *self.secondary):
            self._check([comparison.condition, comparison.against], self.conditions)
            self._check([comparison.metric], self.metrics)
        for primary in self.primaries:
            self._check([primary.equal_time] if primary.equal_time else [], self.conditions)
            self._check([primary.equal_time_metric or primary.metric], self.metrics)
        for contrast in self.contrasts:
            self._check(contrast.weights, self.conditions)
            self._check([contrast.metric], self.metrics)
        self._check([self.control.metric], self.metrics)
        return self

    def check_conditions(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a name that is not the key of a condition."""
        self._check(names, self.conditions)

    def _check(self, names: Iterable[str], known: Mapping[str, object]) -> None:
        for name in names:
            if name not in known:
                raise ConfigError(f"the experiment {self.name} has no {name!r}; {did_you_mean(name, known)}")

    @property
    def primary(self) -> Primary:
        """The first primary comparison, that of the pilot and the control."""
        return self.primaries[0]

    def metric_of(self, comparison: Comparison) -> Metric:
        """Return the metric of a comparison; where seeds are counted, whether they are closer to 1 than to chance."""
        metric = self.metrics[comparison.metric]
        if COUNTED.get(self.name) != metric.key or not isinstance(comparison, Primary) or metric.chance is None:
            return metric
        return metric.replace(label=f"seeds that learn {metric.label}", learned=(1 + metric.chance) / 2)

    def predicted(self, primary: Primary) -> int:
        """Return the sign of a primary difference that follows from the paper: 1 or -1."""
        return (
            int(math.copysign(1, primary.paper.condition - primary.paper.against)) * self.metrics[primary.metric].sign
        )


def list_experiments() -> tuple[str, ...]:
    """Return the names of all experiments."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def experiment_path(name: str) -> Path:
    """Return the file of an experiment: of this folder by its name, or a TOML file by its path."""
    if not name.endswith(".toml") and name not in list_experiments():
        raise ConfigError(f"there is no experiment {name!r}; {did_you_mean(name, list_experiments())}")
    return Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"


@cache
def get_experiment(name: str) -> Experiment:
    """Return an experiment of this folder, or that of a TOML file by its path.

    Raise ConfigError with the closest name when there is none, and for a file that holds no experiment.
    """
    path = experiment_path(name)
    try:
        return _read(path.stem, tomllib.loads(read_text(path, "name a file like those of research/experiments")))
    except KeyError as error:
        raise ConfigError(f"{path} lacks {error}; see those of research/experiments") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path} is no experiment: {error}; see those of research/experiments") from error


def _read(name: str, content: dict[str, Any]) -> Experiment:
    design = _digest({key: value for key, value in content.items() if key not in _WORDING})
    shared = {part: content.pop(part) for part in _PARTS if part in content}
    conditions = [_read_condition(name, condition, shared) for condition in content.pop("conditions")]
    metrics = [merge(Metric, metric, f"{name}.metrics") for metric in content.pop("metrics")]
    by_key: dict[str, Any] = {
        "conditions": {condition.key: condition for condition in conditions},
        "metrics": {metric.key: metric for metric in metrics},
    }
    primary = content.pop("primary")
    by_key["primaries"] = primary if isinstance(primary, list) else [primary]
    names = {"name": name, "page": content.pop("page", name), "design": design}
    return merge(Experiment, {**content, **by_key, **names}, name)


def _read_condition(name: str, condition: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]) -> Condition:
    given = dict(condition)
    own = {part: given.pop(part) for part in _PARTS if part in given}
    changes = {part: {**shared.get(part, {}), **own.get(part, {})} for part in _PARTS if part in shared or part in own}
    return merge(Condition, {**given, "changes": changes}, f"{name}.conditions")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def required_seeds(sd: float, relevant: float) -> int:
    """Return the seeds with which a difference of 0 is shown to be smaller than `relevant` in four of five experiments.

    As many are enough to find a difference of `relevant` just as often.
    """
    return max(MIN_SEEDS, math.ceil((_NORMAL_QUANTILES * sd / relevant) ** 2))


def check_rule(experiment: Experiment) -> None:
    """Raise ConfigError where an experiment breaks a rule: it could not fail, or its result would mean little."""
    for problem in problems_of(experiment):
        raise ConfigError(f"the experiment {experiment.name} {problem}")


NO_PILOT = "has no [pilot]; run.py NAME --pilot 6 prints it"


def problems_of(experiment: Experiment) -> Iterator[str]:
    """Yield what is wrong with an experiment, without its name."""
    primary, pilot = experiment.primary, experiment.pilot
    recipes = {key: condition_recipe(condition) for key, condition in experiment.conditions.items()}
    for each in experiment.primaries:
        metric = experiment.metrics[each.metric]
        if each.paper.condition == each.paper.against:
            yield f"predicts no sign: both scores of {each.paper.cell} are {each.paper.condition:g}"
        if metric.function is not None:
            yield f"decides by {metric.key}, which is no score of captions; compare a score of the test split"
        if experiment.name not in FIRST_RULE and each.relevant != metric.bound.value:
            yield f"has a bound of {each.relevant:g} for {metric.key}; that of all is {metric.bound.value:g}"
    if experiment.first_seed < FIRST_SEED:
        yield f"begins with seed {experiment.first_seed}; take fresh ones, from {FIRST_SEED}"
    if pilot is None:
        yield NO_PILOT
    elif experiment.name not in FIRST_RULE and pilot.seeds < MIN_PILOT_SEEDS:
        yield f"has a pilot of {pilot.seeds} seeds, too few for a standard deviation; take at least {MIN_PILOT_SEEDS}"
    elif experiment.seeds < (needed := required_seeds(pilot.sd, primary.relevant)):
        yield f"has {experiment.seeds} seeds, with which it may find no effect absent; take {needed}"
    control = experiment.metrics[experiment.control.metric]
    if control.chance is None or experiment.control.at_least <= control.chance:
        yield f"has a control that chance passes; state the chance of {control.key} and ask for more"
    for comparison in (*experiment.primaries, *experiment.secondary):
        pair = comparison.condition, comparison.against
        first, second = (recipes[key] for key in pair)
        name = f"{pair[0]} - {pair[1]}"
        if _settings(first) == _settings(second):
            yield f"compares a model with itself: {name}"
        if first.data != second.data:
            yield f"compares models on different data: {name}"
        sizes = sorted(count_parameters(recipe) for recipe in (first, second))
        if sizes[1] > MAX_SIZE_RATIO * sizes[0]:
            yield f"compares models of {sizes[0]:,} and {sizes[1]:,} parameters: {name}"
        if count_steps(first) != count_steps(second):
            yield f"compares trainings of {count_steps(first)} and {count_steps(second)} steps: {name}"
    if pilot is None:
        return
    ratio = pilot.seconds[0] / pilot.seconds[1]
    slower, faster = (primary.condition, primary.against) if ratio > 1 else (primary.against, primary.condition)
    ratio = max(ratio, 1 / ratio)
    if primary.equal_time is None:
        if ratio > MAX_TIME_RATIO and not experiment.converged:
            yield f"trains {slower} {ratio:.2f} times as long as {faster}; name a longer one as equal_time"
        return
    longer = recipes[primary.equal_time]
    if longer.model_overrides != recipes[faster].model_overrides or longer.data != recipes[faster].data:
        yield f"names {primary.equal_time} as equal_time, which is not {faster} with more steps"
    steps = count_steps(longer) / count_steps(recipes[faster])
    if abs(steps / ratio - 1) > MAX_TIME_RATIO - 1:
        yield f"gives {primary.equal_time} {steps:.2f} times the steps of {faster}; the times are as {ratio:.2f} to 1"


def count_parameters(recipe: Recipe) -> int:
    """Return the number of parameters for a vocabulary of about the size of the data's."""
    data = recipe.data
    if isinstance(data, ScenesData):
        scenes = (make_scene("train", index, 0, data.families) for index in range(300))
        words = TokenizedCaptions.of([references(scene) for scene in scenes]).counts()
        sizes = {"vocab_size": len(Vocabulary.from_counts(words, min_count=1)), "feature_dim": FEATURE_DIM}
    else:
        width = _COCO_FEATURES.get(Path(data.features).name, 0) if data.kind == "karpathy" else 0
        sizes = {**_SIZES[data.kind], **({"feature_dim": width} if width else {})}
    with torch.device("meta"):
        return build_model(recipe.model, {**recipe.model_overrides, **sizes}).parameter_count


def _settings(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.to_dict().items() if key not in ("name", "summary")}


@dataclass(frozen=True)
class ConditionRun:
    """The run of a condition and a seed; steps: of its training in all."""

    condition: Condition
    seed: int
    recipe: Recipe
    steps: int
    run: RowRun

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folders[0]

    def train_command(self) -> list[str]:
        """Write the recipe next to the run folder; return the arguments of `legenda train` for it."""
        config = self.folder.with_suffix(".toml")
        write_text(config, recipe_to_toml(self.recipe))
        return ["train", "--config", str(config), "--out", str(self.folder)]


def experiment_runs(
    experiment: Experiment, out: Path, seeds: Iterable[int], changes: Mapping[str, Any] | None = None
) -> Iterator[ConditionRun]:
    """Yield the runs of an experiment in the folder `out`, all conditions of one seed before the next seed.

    changes: of the recipes of all conditions, for a pilot that chooses by validation; such runs are not tested.
    """
    for seed in seeds:
        for condition in experiment.conditions.values():
            recipe = condition_recipe(condition).override(changes or {})
            folder = out / f"{condition.recipe}-{digest_of(recipe)[:8]}" / f"seed{seed}"
            run = RowRun(condition.key, recipe, (folder,), {"test": ""}, SEARCH, "fast", is_scored=not changes)
            yield ConditionRun(condition, seed, with_seed(recipe, seed, out), count_steps(recipe), run)


def digest_of(recipe: Recipe) -> str:
    """Return the digest of all that a recipe sets to other values than the defaults.

    So an option that the package gains leaves finished runs valid.
    """
    data, stages = _changed_fields(recipe.data), [_changed_fields(stage) for stage in recipe.stages]
    return _digest({"name": recipe.name, "model": recipe.to_dict()["model"], "data": data, "stages": stages})


def _changed_fields(config: Config) -> dict[str, Any]:
    """Return the kind of a configuration and its fields that differ from their defaults, nested ones too."""
    fields = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name == "kind" or value != field.get_default(call_default_factory=True):
            fields[name] = _changed_fields(value) if isinstance(value, Config) else to_json(value)
    return fields


def with_seed(recipe: Recipe, seed: int, out: Path) -> Recipe:
    """Return a recipe whose initialization, training data and, where they are generated, test data a seed draws.

    Stored data are in the folder `out`; the seed takes the place of {seed} in the name of the annotations.
    """
    data = recipe.data
    if isinstance(data, SplitSizes):
        data = data.replace(seed=seed)
    else:
        file = Path(str(data.annotations).format(seed=seed))
        data = data.replace(annotations=out.absolute() / file, features=out.absolute() / data.features)
    if isinstance(data, SceneCounts):
        data = data.replace(cache=out / "scenes")
    return recipe.with_seed(seed).replace(data=data)


def condition_recipe(condition: Condition) -> Recipe:
    """Return the recipe of a condition; raise ConfigError for an unknown field or a wrong value."""
    load_plugin(FOLDER / "learned_boxes.py")
    recipe = get_recipe(condition.recipe)
    if "fine_tuning" in condition.changes and len(recipe.stages) == 1:
        first = merge(recipe.stages[0], condition.changes.get("training", {}), "training")
        recipe = recipe.replace(stages=(recipe.stages[0], first))
    return recipe.override(condition.changes)


def count_steps(recipe: Recipe) -> int:
    """Return the steps of all stages of a recipe; raise ConfigError where the number of examples is not known."""
    if isinstance(recipe.data, SplitSizes):
        size = recipe.data.train * recipe.data.examples_each
    elif (drawn := TRAINING_IMAGES.get(Path(recipe.data.annotations).parent.name)) is not None:
        size = drawn
    else:
        raise ConfigError(f"{recipe.name} has data of unknown size; choose generated ones, or those of coco_boxes.py")
    return sum(steps_of(stage, size) for stage in recipe.stages)


TRAINING_IMAGES = {"coco_boxes": 48_000}
"""Images that `coco_boxes.py` draws for each seed."""


def steps_of(stage: TrainingConfig, size: int) -> int:
    """Return the steps of a stage on `size` training examples."""
    return stage.epochs * (stage.steps_per_epoch or -(-size // stage.batch_size))
