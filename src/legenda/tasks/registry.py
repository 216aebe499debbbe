"""The tasks that a model can be trained for, by the name in the config.json of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legenda.plugins import Registry

if TYPE_CHECKING:
    from legenda.tasks.base import Task

TASKS: Registry[type[Task]] = Registry(
    "task",
    {
        "captioning": "legenda.tasks.captioning:Captioning",
        "vqa": "legenda.tasks.vqa:Vqa",
        "grounding": "legenda.tasks.grounding:Grounding",
        "translation": "legenda.tasks.translation:Translation",
    },
)
"""A class of tasks is registered under its own `name`."""
