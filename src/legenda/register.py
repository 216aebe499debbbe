"""Decorators that register parts of every kind under a name, which commands and functions then take.

Each imports the package of its kind only when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from legenda.plugins import resolve

T = TypeVar("T")


def register_attention(name: str) -> Callable[[T], T]:
    """Register a function that returns an attention among regions, for the option `attention` of encoders.

    It is called with `(options, dim, num_heads, *, dropout, inner_dim, output, bias)` and returns a module with the
    call of `MultiHeadAttention`; see `legenda.attention.ATTENTIONS`.
    """
    return resolve("legenda.attention.config:ATTENTIONS").register(name)


def register_norm(name: str) -> Callable[[T], T]:
    """Register a function of the number of channels that returns a normalization, for the option `norm`."""
    return resolve("legenda.attention.normalization:NORMS").register(name)


def register_geometry(name: str) -> Callable[[T], T]:
    """Register a function of `(options, dim, num_heads, head_dim)` that returns a bias of scores, for `geometry`."""
    return resolve("legenda.attention.config:GEOMETRIES").register(name)


def register_distance(name: str) -> Callable[[T], T]:
    """Register a function of the absolute differences `(B, N, N, 2)` that returns distances, for `distance`."""
    return resolve("legenda.attention.distance:DISTANCES").register(name)


def register_window(name: str) -> Callable[[T], T]:
    """Register a function of positions, size and halo that returns two masks, for the option `window`."""
    return resolve("legenda.attention.windows:WINDOWS").register(name)


def register_model(name: str, **entry: Any) -> Callable[[T], T]:
    """Register the class of a configuration as a model; see `legenda.models.registry.register_model`."""
    return resolve("legenda.models.registry:register_model")(name, **entry)


def register_decoder(name: str) -> Callable[[T], T]:
    """Register the class of a configuration whose `build_decoder` any model takes with the option `decoder`."""
    return resolve("legenda.models.registry:register_decoder")(name)


def register_task(name: str) -> Callable[[T], T]:
    """Register a class of tasks, a `legenda.tasks.base.Task`, and set its `name`."""

    def decorate(task: Any) -> Any:
        task.name = name
        return resolve("legenda.tasks.registry:TASKS").register(name)(task)

    return decorate


def register_dataset(name: str) -> Callable[[T], T]:
    """Register the class of a data set's settings: a `Config` with its name as `kind`, `open` and `split`."""
    return resolve("legenda.data.registry:DATASETS").register(name)


def register_extractor(name: str) -> Callable[[T], T]:
    """Register a function that returns an `Extractor`, which --extractor NAME or NAME:MODEL names.

    It is called with the text after the colon, and `compute`, the device and the precision.
    """
    return resolve("legenda.extractors.registry:EXTRACTORS").register(name)


def register_reward(name: str) -> Callable[[T], T]:
    """Register a reward of self-critical training: a function as `legenda.tasks.rewards.Reward`, or a class of them.

    A class is called with the training split and the vocabulary.
    """
    return resolve("legenda.tasks.rewards:REWARDS").register(name)


def register_schedule(name: str) -> Callable[[T], T]:
    """Register the class of a schedule, a `legenda.training.Schedule` with its name as `kind`, and `at`."""
    return resolve("legenda.training.schedules:SCHEDULES").register(name)


def register_metric(name: str) -> Callable[[T], T]:
    """Register a metric of captions: a function of captions and references that returns a number for each image.

    Both are tokenized; the references are a list for each image. The score of the corpus is the mean.
    """
    return resolve("legenda.metrics.evaluation:METRICS").register(name)


def register_feature_store(suffix: str) -> Callable[[T], T]:
    """Register a function of a path and of `sizes` that returns a `FeatureStore`, by the suffix of the path."""
    return resolve("legenda.data.features.readers:STORES").register(suffix)


def register_recipe(recipe: T) -> T:
    """Register a `legenda.recipes.Recipe` under its name, and return it."""
    resolve("legenda.papers:RECIPES").add(getattr(recipe, "name"), recipe)  # noqa: B009
    return recipe
