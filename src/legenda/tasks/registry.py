"""The tasks that a model can be trained for, by the name in the config.json of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from legenda.registry import Registry

if TYPE_CHECKING:
    from legenda.tasks.base import Task

T = TypeVar("T", bound="type[Task]")

TASKS: Registry[type[Task]] = Registry(
    "task",
    {
        "captioning": "legenda.tasks.captioning:Captioning",
        "vqa": "legenda.extras.vqa:Vqa",
        "grounding": "legenda.extras.grounding:Grounding",
        "translation": "legenda.extras.translation:Translation",
    },
)
"""A class of tasks is registered under its own `name`."""


def register_task(name: str) -> Callable[[T], T]:
    """Return a decorator that adds a class of tasks under a name, and sets its `name`."""

    def decorate(task: T) -> T:
        task.name = name
        return TASKS.register(name)(task)

    return decorate
