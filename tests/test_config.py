"""Configurations: what merging accepts, converts and refuses, and what JSON gets of them."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import UnionType
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import Field

import legenda
from legenda import ConfigError, LegendaError, create_model
from legenda.config import Config, PositiveInt, Probability, descriptions, map_paths, merge, to_json
from legenda.registry import Registry

COLORS = Registry("color", {"red": "colorsys:ONE_THIRD", "blue": 2})


class Inner(Config):
    kind: Literal["inner"] = "inner"
    width: int = 3
    """Channels."""
    rate: float = 0.5


class Outer(Config):
    size: PositiveInt
    folder: Path | None = None
    mode: Literal["a", "b"] = "a"
    layers: tuple[int, ...] = ()
    betas: tuple[Probability, float] = (0.9, 0.98)
    weights: Mapping[str, float] = Field(default_factory=dict)
    inner: Inner = Field(default_factory=Inner)
    optional: Inner | None = None
    choice: str | Mapping[str, Any] | None = None
    color: Annotated[str, COLORS] = "red"
    on: bool = False


def test_values_from_python_and_from_json_give_the_same():
    changes = {
        "size": 2,
        "folder": Path("/data"),
        "layers": [1, 2],
        "betas": (0.5, 1),
        "weights": {"CIDEr-D": 1},
        "inner": {"width": 4},
        "optional": {"rate": 1},
        "choice": {"name": "x", "layers": [1]},
        "color": "blue",
    }
    config = merge(Outer, changes, "outer")
    assert config.inner == Inner(width=4)
    assert config.optional == Inner(rate=1.0)
    assert (config.layers, config.betas) == ((1, 2), (0.5, 1.0))
    assert merge(Outer, json.loads(json.dumps(to_json(config))), "outer") == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("a/b", "outer must be a table of options, not 'a/b'"),
        ({}, "outer needs size"),
        ({"size": "2"}, "outer.size must be a valid integer, not '2'"),
        ({"size": 1, "sise": 2}, "outer has no option 'sise'; did you mean size?"),
        ({"size": 1, "inner": {"with": 2}}, "outer.inner has no option 'with'; did you mean width?"),
        ({"size": 1, "inner": {"width": "x"}}, r"outer.inner.width must be .*, not 'x' \(Channels\)"),
        ({"size": 1, "inner": 3}, "outer.inner must be"),
        ({"size": 1, "mode": "c"}, "outer.mode must be 'a' or 'b', not 'c'"),
        ({"size": 1, "betas": [1.0, 2.0]}, "outer.betas\\[0\\] must be"),
        ({"size": 1, "weights": {"x": "y"}}, "outer.weights.x must be"),
        ({"size": 1, "color": "bleu"}, "there is no color 'bleu'; did you mean blue?"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(changes, message):
    with pytest.raises(LegendaError, match=message) as caught:
        merge(Outer, changes, "outer")
    assert "\n" not in str(caught.value)


def test_paths_are_written_relative_to_a_folder():
    config = Outer(size=1, folder=Path("/data/x"))
    assert to_json(config, Path("/data/run"))["folder"] == "../x"
    assert map_paths(config, lambda path: path / "y").folder == Path("/data/x/y")


class Data(Config):
    folder: Path
    features: tuple[Path, ...]


def test_a_path_with_a_zero_byte_is_refused():
    with pytest.raises(ConfigError, match="features"):
        Data(folder=Path("a"), features=(Path("b"), Path("a\0b")))


def test_a_path_that_no_json_holds_is_refused_by_its_fault():
    with pytest.raises(ConfigError, match=r"^data holds text that is not Unicode, such as the name of a file"):
        merge(Data, {"folder": Path("/data/b\udcff")}, "data")


def test_products_of_sizes_fit_into_64_bits():
    with pytest.raises(ConfigError, match="geometry_dim"):
        create_model("ngsan", vocab_size=9, geometry_dim=2**63 - 1)


def configurations(base: type[Config] = Config) -> Iterator[type[Config]]:
    """Yield all configurations of the package."""
    for kind in base.__subclasses__():
        yield from (kind, *configurations(kind)) if kind.__module__.startswith("legenda.") else ()


def test_every_number_has_bounds():
    """Also where a subclass gives a field another default, which replaces the annotation of its base."""
    for module in walk_packages(legenda.__path__, "legenda."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    fields = [(kind, *field) for kind in configurations() for field in kind.model_fields.items()]
    assert len(fields) > 100
    for kind, name, field in fields:
        kinds = get_args(field.annotation) if isinstance(field.annotation, UnionType) else (field.annotation,)
        assert field.metadata or not {int, float}.intersection(kinds), f"{kind.__name__}.{name}"


def test_the_description_of_a_field_is_the_docstring_under_it():
    class Wide(Inner):
        depth: int = Field(1, description="Layers.")
        """Overruled by the field's own."""
        height: int = 2
        """Rows of the
        grid.
        """

        def area(self, scale: int) -> int:
            scale: int = 3
            """Not a field."""
            return scale

    assert descriptions(Wide) == {"width": "Channels.", "depth": "Layers.", "height": "Rows of the\ngrid."}
    made = type("Made", (Inner,), {"__module__": "nowhere"})
    assert descriptions(made) == {"width": "Channels."}
    with pytest.raises(ConfigError, match="Channels"):
        Wide(width="three")
