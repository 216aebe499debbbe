"""The rooms of the house: imports point one way only, and the doors open fast."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import legenda

_ROOT = Path(legenda.__file__).parent
_ORDER = (
    "errors",
    "io",
    "run_files",
    "plugins",
    "config",
    "text",
    "metrics",
    "regions",
    "attention",
    "decoding",
    "models",
    "importers",
    "features",
    "datasets",
    "extractors",
    "tasks",
    "training",
    "recipes",
    "evaluation",
    "pipeline",
    "visualization",
    "serving",
    "scale",
    "cli",
    "__main__",
)
"""Every room imports only itself and rooms before it; a new room must be given its place here."""


@dataclass(frozen=True)
class _Import:
    file: str
    module: str
    names: tuple[str, ...]
    late: bool

    @property
    def source(self) -> str:
        return self.file.split("/")[0].removesuffix(".py")

    @property
    def rooms(self) -> set[str]:
        """The rooms it reaches into; a name of the package itself counts as the room it comes from."""
        if self.module != "legenda":
            return {self.module.split(".")[1]}
        homes = {name: name for name in _ORDER} | {name: home.split(".")[1] for name, home in legenda._NAMES.items()}
        return {homes[name] for name in self.names if name != "__version__"}


def _imports(path: Path) -> Iterator[_Import]:
    """All imports of the house in a file: at the top, inside functions, and by import_module."""
    file = path.relative_to(_ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    used = tuple(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "legenda"
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, used if alias.name == "legenda" else ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} line {node.lineno}: imports name the whole path"
            found = [(node.module or "", tuple(alias.name for alias in node.names))]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            if file == "plugins.py":  # imports what a registry names, checked where the registry is
                continue
            argument = node.args[0]
            start = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
            assert isinstance(start, ast.Constant), f"{file} line {node.lineno}: what is imported cannot be told"
            found = [(str(start.value), ())]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"legenda[\w.]*:\w+", str(node.value)):  # of a registry
            yield _Import(file, str(node.value).split(":")[0], (), True)
            continue
        else:
            continue
        for module, names in found:
            if module.split(".")[0] == "legenda":
                yield _Import(file, module, names, id(node) in late)


def _all_imports() -> list[_Import]:
    # The package's own __init__ opens every room when it is first asked for.
    files = [path for path in sorted(_ROOT.rglob("*.py")) if path != _ROOT / "__init__.py"]
    return [found for path in files for found in _imports(path)]


def test_every_room_has_its_place():
    rooms = {path.relative_to(_ROOT).parts[0].removesuffix(".py") for path in _ROOT.rglob("*.py")} - {"__init__"}
    assert rooms == set(_ORDER)


def test_imports_point_one_way():
    rank = {room: number for number, room in enumerate(_ORDER)}
    backwards = {
        (found.file, room): found for found in _all_imports() for room in found.rooms if rank[room] > rank[found.source]
    }
    assert set(backwards) == set()


def _loaded(*arguments: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import legenda; dir(legenda)"),
        ("-c", "import legenda.errors, legenda.io, legenda.text"),
        ("-m", "legenda", "--help"),
        ("-m", "legenda", "--version"),
    ],
    ids=["package", "text", "help", "version"],
)
def test_light_doors_load_neither_torch_nor_numpy(arguments):
    loaded = _loaded(*arguments)
    assert "legenda" in loaded
    assert not loaded & {"torch", "numpy", "scipy", "PIL", "matplotlib", "transformers", "tyro", "rich"}


@pytest.mark.parametrize("room", ["metrics", "features", "extractors", "visualization"])
def test_rooms_of_plain_data_do_not_load_torch(room):
    loaded = _loaded("-c", f"import legenda.{room}")
    assert "legenda" in loaded
    assert "torch" not in loaded


def test_every_public_name_is_there():
    for name in set(legenda.__all__) - {"UserError"}:
        assert getattr(legenda, name).__name__.split(".")[-1] == name
    assert set(legenda.__all__) == set(dir(legenda))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = legenda.lode
