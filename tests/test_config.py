"""Configurations: what merging accepts, converts and refuses, and what JSON gets of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda import LegendaError
from legenda.config import Bounded, PositiveFloat, PositiveInt, Probability, check_types, describe_type, merge, to_json
from legenda.plugins import Registry

COLORS = Registry("color", {"red": "colorsys:ONE_THIRD", "blue": 2})


@dataclass(frozen=True, kw_only=True)
class Inner:
    width: int = 3
    rate: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: int
    folder: Path | None = None
    mode: Literal["a", "b"] = "a"
    layers: tuple[int, ...] = ()
    betas: tuple[float, float] = (0.9, 0.98)
    weights: Mapping[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    optional: Inner | None = None
    choice: str | Mapping[str, Any] | None = None
    color: Annotated[str, COLORS] = "red"
    on: bool = False


def test_values_from_python_and_from_json_give_the_same():
    changes = {
        "size": 2,
        "folder": Path("/data"),
        "layers": (1, 2),
        "betas": (0.5, 0.75),
        "weights": {"CIDEr-D": 1.0},
        "inner": {"width": 4},
        "optional": {"rate": 1},
        "choice": {"name": "x", "layers": [1]},
        "color": "blue",
    }
    config = merge(Outer, changes, "outer")
    assert config.inner == Inner(width=4)
    assert config.optional == Inner(rate=1.0)
    assert type(config.optional.rate) is float
    assert merge(Outer, json.loads(json.dumps(to_json(config))), "outer") == config


def test_an_instance_keeps_what_is_not_changed():
    base = Outer(size=1, inner=Inner(width=7), mode="b")
    merged = merge(base, {"inner": {"rate": 0.25}, "on": True}, "outer")
    assert merged == Outer(size=1, inner=Inner(width=7, rate=0.25), mode="b", on=True)
    assert base.on is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sise": 1}, "outer has no option 'sise'; did you mean size?"),
        ({"size": 1, "inner": {"wdth": 1}}, "outer.inner has no option 'wdth'; did you mean width?"),
        ({}, "outer needs size; give it a value of type int"),
        ({"size": True}, "outer takes size as int, not True"),
        ({"size": 1.0}, "outer takes size as int, not 1.0"),
        ({"size": 1, "on": 1}, "outer takes on as bool, not 1"),
        ({"size": 1, "mode": "c"}, "outer takes mode as one of 'a', 'b', not 'c'"),
        ({"size": 1, "layers": ["1"]}, "outer takes layers as tuple of int, not ['1']"),
        ({"size": 1, "betas": [0.5]}, "outer takes betas as tuple of float, not [0.5]"),
        ({"size": 1, "folder": 3}, "outer takes folder as Path or None, not 3"),
        ({"size": 1, "weights": {"a": "b"}}, "outer takes weights as mapping of str to float, not {'a': 'b'}"),
        ({"size": 1, "inner": {"rate": None}}, "outer.inner takes rate as float, not None"),
        ({"size": 1, "inner": 3}, "outer takes inner as Inner, not 3"),
        ({"size": 1, "optional": {"width": "4"}}, "outer.optional takes width as int, not '4'"),
        ({"size": 1, "color": "blu"}, "there is no color 'blu'; did you mean blue?"),
        ({"size": 1, "color": ["red"]}, "outer takes color as str, not ['red']"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(changes, message):
    with pytest.raises(LegendaError) as caught:
        merge(Outer, changes, "outer")
    assert str(caught.value) == message


def test_types_can_be_checked_where_a_configuration_is_made():
    check_types(Outer(size=1, layers=(1, 2), betas=(1, 0.5)), "outer")
    with pytest.raises(LegendaError, match="outer takes layers as tuple of int, not \\[1\\]"):
        check_types(Outer(size=1, layers=[1]), "outer")
    with pytest.raises(LegendaError, match="outer takes size as int, not '1'"):
        check_types(Outer(size="1"), "outer")


def test_types_in_words():
    assert describe_type(float | None) == "float or None"
    assert describe_type(Literal[1, "a"]) == "one of 1, 'a'"


@given(
    st.integers(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.floats(allow_nan=False)),
    st.floats(allow_nan=False),
)
def test_what_is_written_is_read_back(size, layers, weights, rate):
    config = Outer(size=size, layers=tuple(layers), weights=weights, inner=Inner(rate=rate))
    assert merge(Outer, json.loads(json.dumps(to_json(config))), "outer") == config


@dataclass(frozen=True, kw_only=True)
class Sizes(Bounded):
    section: ClassVar[str] = "sizes."

    dim: PositiveInt = 4
    heads: PositiveInt | None = None
    betas: tuple[Probability, ...] = (0.9, 0.99)
    rate: PositiveFloat = 0.1


@dataclass(frozen=True, kw_only=True)
class LargeSizes(Sizes):
    dim: int = 8


@pytest.mark.parametrize("kind", [Sizes, LargeSizes])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 0}, "sizes.dim must be at least 1, not 0"),
        ({"heads": -1}, "sizes.heads must be at least 1, not -1"),
        ({"betas": (0.5, 1.0)}, r"sizes.betas must be in \[0, 1\), not 1.0"),
        ({"rate": float("inf")}, "sizes.rate must be above 0, not inf"),
        ({"rate": float("nan")}, "sizes.rate must be above 0, not nan"),
        ({"rate": 1e300}, r"sizes.rate must be at most 9223372036854775807, not 1e\+300"),
        ({"dim": 10**20}, "sizes.dim must be at most 9223372036854775807, not 1"),
        ({"betas": (float("nan"),)}, r"sizes.betas must be in \[0, 1\), not nan"),
    ],
)
def test_numbers_out_of_bounds_are_refused(kind, wrong, message):
    assert kind(heads=None, betas=()).dim == kind().dim
    with pytest.raises(LegendaError, match=message):
        kind(**wrong)
