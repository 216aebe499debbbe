"""The config.json of a stranger: what has another type than Legenda writes is one sentence, wherever it is."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legenda.data.captions import ScenesData
from legenda.errors import CheckpointError, LegendaError
from legenda.evaluation.describe import inspect_run, model_card
from legenda.evaluation.evaluate import caption_settings
from legenda.evaluation.runs import load_run
from legenda.io import read_json, write_json
from legenda.run_folder import CONFIG, read_config
from legenda.training.launch import is_finished

_VALUES = (None, True, -0.5, "x", [1], {"x": 1})


@pytest.fixture(scope="module")
def run(make_run) -> Path:
    parts = {"training": {"epochs": 1}, "fine_tuning": {"epochs": 2, "eval_collapse_repeats": True}}
    parts |= {"environment": {"legenda": "0.1", "folder": None}, "task": "captioning"}
    return make_run("ngsan", ScenesData(train=4, validation=2), **parts)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value of a configuration is; those of model and data are checked as options are."""
    yield path
    if isinstance(value, dict | list) and path not in (("model",), ("generation_config",)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(part, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a configuration with another value at a place."""
    if not path:
        return new
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = {key: replaced(part, path[1:], new) if key == path[0] else part for key, part in items}
    return found if isinstance(value, dict) else list(found.values())


def test_values_of_other_types_are_one_sentence_or_are_used(run):
    original, refused = read_json(run / CONFIG), 0
    loaded = load_run(run)
    for path in list(paths(original)):
        for value in _VALUES:
            write_json(run / CONFIG, replaced(original, path, value))
            try:
                inspect_run(run)
                config = read_config(run)
                caption_settings(config, "val", {}, "fast")
                damaged = dataclasses.replace(loaded, config=config)
                model_card(damaged, "user/model")
                damaged.data()
                is_finished(run, "x")
            except LegendaError:
                refused += 1
    write_json(run / CONFIG, original)
    assert refused > 100


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "config.json is not the configuration of a run"),
        ({"training": {}, "fine_tuning": 2147483647}, "config.json: fine_tuning"),
        ({"extractor": 3}, "config.json: extractor must"),
        ({"environment": {"folder": 1}}, "the environment of .*config.json: folder"),
    ],
)
def test_a_part_of_another_type_is_named(tmp_path, parts, message):
    write_json(tmp_path / CONFIG, parts)
    with pytest.raises(CheckpointError, match=message):
        read_config(tmp_path, "write it again")
