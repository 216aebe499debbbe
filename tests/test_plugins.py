"""Registries: lazy parts, names of users, and files and entry points that add to them."""

import colorsys
from importlib import metadata

import pytest

from legenda import LegendaError, plugins
from legenda.plugins import Registry, run_file


@pytest.fixture
def registry():
    return Registry("number", {"lazy": "colorsys:ONE_SIXTH", "absent": "no_such_module:x", "two": 2})


def test_parts_are_imported_when_first_used(registry):
    assert list(registry) == ["lazy", "absent", "two"]
    assert "absent" in registry
    assert registry.get("lazy") == colorsys.ONE_SIXTH
    assert registry.get("two") == 2
    with pytest.raises(ModuleNotFoundError):
        registry.get("absent")


def test_an_unknown_name(registry):
    assert "tow" not in registry
    with pytest.raises(LegendaError, match=r"^there is no number 'tow'; did you mean two\?$"):
        registry.get("tow")


def test_users_add_and_replace_their_own_parts_only(registry):
    @registry.register("mine")
    def part():
        return 1

    assert registry.get("mine") is part
    assert registry.name_of(part) == "mine"
    registry.add("mine", 3)
    assert registry.get("mine") == 3
    with pytest.raises(LegendaError, match="'two' belongs to the library"):
        registry.add("two", 3)
    assert registry.get("two") == 2


def test_the_name_of_a_part_that_was_not_imported_yet():
    registry = Registry("function", {"gray": "colorsys:rgb_to_hsv"})
    assert registry.name_of(colorsys.rgb_to_hsv) == "gray"
    with pytest.raises(LegendaError, match="is not a registered function"):
        registry.name_of(colorsys.hsv_to_rgb)


class _Points:
    def __init__(self, load):
        self.load, self.value = load, "their.package"


def _with_entry_point(monkeypatch, load):
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setattr(metadata, "entry_points", lambda group: [_Points(load)] if group == "legenda.plugins" else [])


def test_entry_points_are_loaded_once_when_a_name_is_not_known(registry, monkeypatch):
    calls = []
    _with_entry_point(monkeypatch, lambda: (calls.append(1), registry.add("extra", 4)))
    assert registry.get("two") == 2
    assert calls == []
    assert registry.get("extra") == 4
    assert "extra" in list(registry)
    assert calls == [1]


def test_an_entry_point_that_fails_is_named(registry, monkeypatch):
    _with_entry_point(monkeypatch, lambda: 1 / 0)
    with pytest.raises(LegendaError, match=r"their\.package cannot be loaded .ZeroDivisionError: division by zero"):
        list(registry)


def test_a_file_is_run_as_a_module(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "@dataclass(frozen=True)\nclass A:\n    x: int\n    y: ClassVar[int] = 3\n"
    )
    assert run_file(file).A(3).x == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py"]


@pytest.mark.parametrize(
    ("source", "message"),
    [(None, "cannot be read .No such file"), ("1 / 0", "ZeroDivisionError: division by zero"), ("def", "SyntaxError")],
)
def test_a_file_that_fails_is_named(tmp_path, source, message):
    file = tmp_path / "mine.py"
    if source is not None:
        file.write_text(source)
    with pytest.raises(LegendaError, match=message) as caught:
        run_file(file)
    assert str(file) in str(caught.value)
