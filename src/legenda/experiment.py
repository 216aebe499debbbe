"""Train a recipe from Python as `legenda train` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from legenda.compute import ComputeOptions, Precision, has_bf16
from legenda.config import to_json
from legenda.errors import ConfigError
from legenda.hub import find_model
from legenda.papers import get_recipe
from legenda.recipes import Recipe, continue_from
from legenda.tasks.base import TASKS
from legenda.training import Callback, TrainResult, check_folder
from legenda.training import train as train_model

__all__ = ["train"]


def train(
    recipe: str | Recipe,
    changes: Mapping[str, object] | None = None,
    *,
    out: str | Path | None = None,
    init_from: str | Path | None = None,
    stages: Literal["all", "first"] = "all",
    seed: int | None = None,
    device: str = "auto",
    precision: Precision | None = None,
    devices: int = 1,
    nodes: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
    allow_urls: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    callback: Callback | None = None,
    profile_steps: int = 0,
    **fields: Mapping[str, object],
) -> TrainResult:
    """Train a recipe into a run folder, or resume it; `legenda.open(result.folder)` captions with the result.

    recipe: a recipe or its name. out: the run folder, by default runs/RECIPE. init_from: a trained run that the recipe
    continues, as `find_model` takes it. stages: "first" stops after the first of two. seed: of all stages, by default
    that of each. device: auto, cpu, cuda, cuda:N or mps. precision: of all stages, by default that of each. devices,
    nodes, strategy: as in `legenda.training.train`. allow_urls: fetch the images of hub data that are addresses.
    progress: called with lines about the steps of loading. callback: called with the losses of every 20 steps and the
    scores of every validation; it ends training by returning True. profile_steps: the number of steps to trace;
    `legenda.training.train` says more of both. changes, fields: fields of the recipe to change, in one dictionary or
    as model={"dim": 64}, data={...}, training={"epochs": 3}, fine_tuning={...}.

        result = legenda.train("scenes.ngsan", out="runs/mine", training={"epochs": 3, "batch_size": 10})
        result = legenda.train("scenes.ngsan", callback=lambda record: record.get("loss", 1) < 0.01)

    Raise LegendaError for unknown names, wrong values and missing data.
    """
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    if init_from is not None:
        recipe = continue_from(recipe, init_from, stages)
    recipe = recipe.override({**(changes or {}), **fields}).select_stages(stages)
    recipe = recipe if seed is None else recipe.with_seed(seed)
    out = Path("runs") / recipe.name if out is None else Path(out)
    if precision is None and any(stage.precision == "bf16" for stage in recipe.stages):
        compute = ComputeOptions(device=device)
        if compute.resolve().type == "cpu" and not has_bf16():
            progress("this CPU has no operators of bf16, the precision of the recipe; training is in float32")
            precision = "float32"
    if precision is not None:
        recipe = recipe.replace(stages=tuple(stage.replace(precision=precision) for stage in recipe.stages))
    for stage in recipe.stages:
        ComputeOptions(device=device, precision=stage.precision).resolve_for_models()
    ComputeOptions(device=device).check_count(devices)
    check_folder(out)
    data = recipe.data
    if allow_urls:
        if not hasattr(data, "with_urls"):
            raise ConfigError("allow_urls is for data of the kind hf, whose images may be addresses; leave it out")
        data = data.with_urls()
    task = TASKS.get(recipe.task)
    task.check_model(recipe.model)
    source = None if recipe.init_from is None else find_model(recipe.init_from)
    return train_model(
        recipe.model,
        recipe.model_overrides,
        task(data.open(progress)),
        recipe.stages,
        out,
        sections={"name": recipe.name, "data": to_json(recipe.data, out)},
        init_from=source,
        device=device,
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        callback=callback,
        profile_steps=profile_steps,
    )
