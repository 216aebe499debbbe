"""The runs of a claim: one for each arm and seed, shared by all claims with an arm of the same configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from legenda.claims.claim import Arm, Claim
from legenda.config import merge
from legenda.data.scenes import SceneCounts
from legenda.data.splits import SplitSizes
from legenda.errors import ConfigError
from legenda.evaluation.row_runs import RowRun
from legenda.io import write_json
from legenda.recipes import Recipe, get_recipe, recipe_to_json
from legenda.recipes.overrides import override, with_seed
from legenda.training.config import TrainingConfig
from legenda.training.schedules import StepDecay

BEAM_SIZE = 3


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
        config = self.folder.with_suffix(".json")
        write_json(config, recipe_to_json(self.recipe))
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
                recipe = replace(recipe, data=replace(recipe.data, cache=out / "scenes"))
            run = RowRun(arm.key, recipe.name, recipe.task, (folder,), {"test": ""}, BEAM_SIZE, "fast")
            yield ClaimRun(arm, seed, with_seed(recipe, seed), count_steps(recipe), run)


def _digest(recipe: Recipe) -> str:
    """Return eight hex digits of all settings of a recipe, so that a changed recipe is trained anew."""
    settings = {name: value for name, value in recipe_to_json(recipe).items() if name != "summary"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def arm_recipe(arm: Arm, steps: int | None = None) -> Recipe:
    """Return the recipe of an arm; raise ConfigError for an unknown field or a wrong value."""
    recipe = get_recipe(arm.recipe)
    if "fine_tuning" in arm.changes and len(recipe.stages) == 1:
        first = merge(recipe.stages[0], arm.changes.get("training", {}), "training")
        recipe = replace(recipe, stages=(recipe.stages[0], first))
    recipe = override(recipe, arm.changes)
    if steps is not None:
        factor = steps / count_steps(recipe)
        recipe = replace(recipe, stages=tuple(_shorten(stage, factor) for stage in recipe.stages))
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
        schedule = replace(schedule, decay_after=decays)
    return replace(stage, epochs=epochs, schedule=schedule)
