"""The options of `legenda train` that belong to no recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from legenda.compute import Precision
from legenda.config import Bounded, Count, PositiveInt
from legenda.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class CommandOptions(Bounded):
    """The options of the command that belong to no recipe."""

    section: ClassVar[str] = "--"

    out: Path
    """The run folder."""
    init_from: str | None = None
    """A trained model (a run folder or a name) whose vocabulary and sizes replace those of the first of two stages."""
    seeds: Count = 1
    """Runs to train, in OUT/seed0, OUT/seed1 and so on."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto is CUDA if there is such a device, else MPS, else the CPU."""
    precision: Precision | None = None
    """float32, or bf16 or fp16, in every stage; by default that of the recipe."""
    devices: PositiveInt = 1
    """Devices that share every step."""
    nodes: PositiveInt = 1
    """Machines that share every step."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """Each of several devices has the whole model, or a shard of it."""
    stages: Literal["all", "first"] = "all"
    """first stops after the first of two stages."""
    config: Path | None = None
    """A JSON file with a recipe, as legenda recipes NAME prints it, instead of the name of one."""


@dataclass(frozen=True)
class TrainOptions:
    """The recipe with the changes of the command line, and the options of the command."""

    recipe: Recipe
    out: Path
    seeds: int
    settings: Mapping[str, Any]
    """Keyword arguments of `train_recipe`."""
