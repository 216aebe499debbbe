"""A claim: its question, the models that are compared, what is measured, what the paper predicts, and its runs.

A claim is a TOML file in this folder:

    title, question, source, dataset    text; `source` names paper and table or equation
    notes                               paragraphs about what the numbers mean, below the verdict
    [data] [model] [training] [fine_tuning]    changes of the recipes of all arms, as `legenda.train` takes them; with
                                        fine_tuning the stage of a recipe is followed by a second one like it
    [[arms]]                            key, label, recipe, and changes of its own
    [[measures]]                        key, label, and what is measured: see `Measure`
    [[comparisons]]                     arm, against, measure, and the predicted sign of the difference

A run is that of an arm and a seed, shared by all claims with an arm of the same configuration.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from legenda.config import Config, merge
from legenda.data.registry import SplitSizes
from legenda.data.scenes import SceneCounts
from legenda.errors import ConfigError, did_you_mean
from legenda.evaluation.results import RowRun
from legenda.io import read_text, write_text
from legenda.papers import get_recipe
from legenda.recipes import Recipe, recipe_to_toml
from legenda.training.config import TrainingConfig
from legenda.training.schedules import StepDecay

_FOLDER = Path(__file__).parent
_PARTS = ("data", "model", "training", "fine_tuning")
BEAM_SIZE = 3


class Arm(Config):
    """One of the models that are compared; changes: of the recipe's fields, by the parts of `legenda.train`."""

    key: str
    label: str
    recipe: str
    changes: Mapping[str, Mapping[str, Any]]


class Measure(Config):
    """A number of each run.

    score: the name of a score of the test split, by default the key. reaches: the number is instead that of the steps
    after which this score, as validation writes it (in percent for tasks other than captioning), stays at this value or
    above. metric: a name in `measures.METRICS`, a function
    of the run, which computes it instead. chance: what a model reaches that cannot know.
    """

    key: str
    label: str
    score: str | None = None
    reaches: float | None = None
    metric: str | None = None
    chance: float | None = None

    @property
    def name(self) -> str:
        """The name of the score."""
        return self.score or self.key


class Comparison(Config):
    """The paired difference of two arms, or of an arm and a number, and the sign that the paper predicts."""

    arm: str
    against: str | float
    measure: str
    predicted: Literal["higher", "lower"]


class Claim(Config):
    """A claim of a paper as an experiment; the fields are those of its file, see the module."""

    name: str
    title: str
    question: str
    source: str
    dataset: str
    notes: tuple[str, ...]
    arms: Mapping[str, Arm]
    measures: Mapping[str, Measure]
    comparisons: tuple[Comparison, ...]

    @model_validator(mode="after")
    def _check_claim(self) -> Self:
        for comparison in self.comparisons:
            against = [comparison.against] if isinstance(comparison.against, str) else []
            self.check_arms([comparison.arm, *against])
            self._check([comparison.measure], self.measures)
        return self

    def check_arms(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a name that is not the key of an arm."""
        self._check(names, self.arms)

    def _check(self, names: Iterable[str], known: Mapping[str, object]) -> None:
        for name in names:
            if name not in known:
                raise ConfigError(f"the claim {self.name} has no {name!r}; {did_you_mean(name, known)}")


def list_claims() -> tuple[str, ...]:
    """Return the names of all claims."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def get_claim(name: str) -> Claim:
    """Return a claim of this folder, or that of a TOML file by its path.

    Raise ConfigError with the closest name when there is none, and for a file that holds no claim.
    """
    if name.endswith(".toml"):
        text = read_text(name, "name a claim, or a TOML file like those of research/claims")
    elif name in list_claims():
        text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(f"there is no claim {name!r}; {did_you_mean(name, list_claims())}")
    try:
        return _read_claim(name, text)
    except KeyError as error:
        raise ConfigError(f"{name} lacks {error}; see those of research/claims") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{name} is no claim: {error}; see those of research/claims") from error


def _read_claim(name: str, text: str) -> Claim:
    content = tomllib.loads(text)
    shared = {part: content.pop(part) for part in _PARTS if part in content}
    arms = [_read_arm(name, arm, shared) for arm in content.pop("arms")]
    measures = [merge(Measure, measure, f"{name}.measures") for measure in content.pop("measures")]
    parts = {
        "name": name,
        "notes": content.pop("notes", ()),
        "arms": {arm.key: arm for arm in arms},
        "measures": {measure.key: measure for measure in measures},
        "comparisons": [merge(Comparison, part, f"{name}.comparisons") for part in content.pop("comparisons")],
    }
    return merge(Claim, {**content, **parts}, name)


def _read_arm(name: str, arm: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]) -> Arm:
    given = dict(arm)
    own = {part: given.pop(part) for part in _PARTS if part in given}
    changes = {part: {**shared.get(part, {}), **own.get(part, {})} for part in _PARTS if part in shared or part in own}
    return merge(Arm, {**given, "changes": changes}, f"{name}.arms")


@dataclass(frozen=True)
class ClaimRun:
    """The run of an arm and a seed; steps: of its training in all."""

    arm: Arm
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


def claim_runs(claim: Claim, out: Path, seeds: int, steps: int | None = None) -> Iterator[ClaimRun]:
    """Yield the runs of a claim in the folder `out`, all arms of one seed before the next seed.

    steps: of each run instead of those of the claim; its stages and the decay of their learning rates are shortened in
    proportion.
    """
    for seed in range(seeds):
        for arm in claim.arms.values():
            recipe = arm_recipe(arm, steps)
            folder = out / f"{arm.recipe}-{_digest(recipe)}" / f"seed{seed}"
            if isinstance(recipe.data, SceneCounts):
                recipe = recipe.replace(data=recipe.data.replace(cache=out / "scenes"))
            run = RowRun(arm.key, recipe.name, recipe.task, (folder,), {"test": ""}, BEAM_SIZE, "fast")
            yield ClaimRun(arm, seed, recipe.with_seed(seed), count_steps(recipe), run)


def _digest(recipe: Recipe) -> str:
    """Return eight hex digits of all settings of a recipe, so that a changed recipe is trained anew."""
    settings = {name: value for name, value in recipe.to_dict().items() if name != "summary"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def arm_recipe(arm: Arm, steps: int | None = None) -> Recipe:
    """Return the recipe of an arm; raise ConfigError for an unknown field or a wrong value."""
    recipe = get_recipe(arm.recipe)
    if "fine_tuning" in arm.changes and len(recipe.stages) == 1:
        first = merge(recipe.stages[0], arm.changes.get("training", {}), "training")
        recipe = recipe.replace(stages=(recipe.stages[0], first))
    recipe = recipe.override(arm.changes)
    if steps is not None:
        factor = steps / count_steps(recipe)
        recipe = recipe.replace(stages=tuple(_shorten(stage, factor) for stage in recipe.stages))
    return recipe


def count_steps(recipe: Recipe) -> int:
    """Return the steps of all stages of a recipe; raise ConfigError where its data are no generated ones."""
    if not isinstance(recipe.data, SplitSizes):
        raise ConfigError(f"{recipe.name} has no generated data, as a claim needs; choose a recipe on scenes")
    size = recipe.data.train * recipe.data.examples_each
    return sum(stage.epochs * -(-size // stage.batch_size) for stage in recipe.stages)


def _shorten(stage: TrainingConfig, factor: float) -> TrainingConfig:
    """Return a stage with `factor` times its epochs, at least one, and as many times the epochs of its decays."""
    epochs, schedule = max(1, round(stage.epochs * factor)), stage.schedule
    if isinstance(schedule, StepDecay):
        decays = tuple(max(1, round(epoch * factor)) for epoch in schedule.decay_after)
        schedule = schedule.replace(decay_after=decays)
    return stage.replace(epochs=epochs, schedule=schedule)
