"""Registries: lazy parts, names of users, and files and entry points that add to them."""

import colorsys
import sys

import pytest

import legenda
from legenda import LegendaError
from legenda.attention.distance import WINDOWS
from legenda.registry import Registry, load_plugin

pytestmark = pytest.mark.usefixtures("forget_plugins")


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


def test_users_add_and_replace_their_own_parts_only(registry):
    @registry.register("mine")
    def part():
        return 1

    assert registry.get("mine") is part
    assert registry.registered == ("mine",)

    @registry.register("mine")  # as a cell of a notebook that is run again
    def part():
        return 2

    assert registry.get("mine") is part
    with pytest.raises(LegendaError, match=r"'mine'.*test_plugins.*colorsys"):
        registry.add("mine", colorsys.hsv_to_rgb)
    with pytest.raises(LegendaError, match="'two'"):
        registry.add("two", 3)
    assert registry.get("two") == 2


@pytest.fixture
def install(tmp_path, monkeypatch, forget_plugins):
    """Install a package with one module, which its entry point names, as pip would."""

    def install(source: str) -> None:
        info = tmp_path / "parts_of_package-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parts-of-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[legenda.plugins]\nmine = parts_of_package\n")
        (tmp_path / "parts_of_package.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        forget_plugins()

    yield install
    sys.modules.pop("parts_of_package", None)


def test_entry_points_are_loaded_once_when_a_name_is_not_known(install):
    install("import legenda\nlegenda.register_window('installed')(lambda *_: (None, None))")
    assert WINDOWS.get("none")
    assert "parts_of_package" not in sys.modules
    assert WINDOWS.get("installed")
    first = sys.modules.pop("parts_of_package")
    assert "installed" in list(WINDOWS)
    assert first
    assert "parts_of_package" not in sys.modules


def test_errors_of_any_class_and_without_a_message_are_named(registry, install, tmp_path):
    install("class OddError(BaseException):\n    def __str__(self):\n        raise ValueError\nraise OddError")
    with pytest.raises(LegendaError, match=r"parts_of_package.*OddError"):
        list(registry)
    file = tmp_path / "my_plugin.py"
    file.write_text("class OddError(BaseException):\n    __str__ = None\nraise OddError")
    with pytest.raises(LegendaError, match=r"my_plugin\.py.*OddError"):
        load_plugin(file)
    file.write_text(
        "class Kind(type):\n    __name__ = property(lambda _: 1 / 0)\n"
        "class OddError(BaseException, metaclass=Kind):\n    def __str__(self):\n        raise SystemExit(7)\n"
        "raise OddError"
    )
    with pytest.raises(LegendaError, match=r"my_plugin\.py.*OddError"):
        load_plugin(file)
    file.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugin(file)


def test_a_file_that_fails_is_named_in_one_sentence(tmp_path):
    file = tmp_path / "my_plugin.py"
    file.write_text("1 / 0")
    with pytest.raises(LegendaError):
        load_plugin(file)
    assert "my_plugin" not in sys.modules
    file.write_text("import legenda\nlegenda.register_norm('mine')(print)")
    load_plugin(file)
    assert legenda.attention.normalization.NORMS.get("mine") is print


def test_an_installed_package_registers_by_its_entry_point(tmp_path, install, forget_plugins):
    install("import legenda\nlegenda.register_window('installed')(lambda *_: (None, None))")
    options = {"vocab_size": 9, "feature_dim": 5, "dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8}
    legenda.create_model("nsan", window="installed", **options).save(tmp_path / "model")
    sys.modules.pop("parts_of_package")  # as in a new process
    forget_plugins()
    legenda.load(tmp_path / "model")
    sys.modules.pop("parts_of_package")
    sys.path.remove(str(tmp_path))
    forget_plugins()
    with pytest.raises(LegendaError, match="'installed'"):
        legenda.load(tmp_path / "model")
