"""The structure of the package: imports point one way, no file is in a circle, and light commands start fast."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import legenda

_ROOT = Path(legenda.__file__).parent
_ORDER = (
    "terminal",
    "errors",
    "io",
    "locks",
    "plain_pickle",
    "npz",
    "torch_pickle",
    "lazy",
    "machine",
    "progress",
    "run_files",
    "plugins",
    "plugin_records",
    "register",
    "config",
    "run_config",
    "packed_weights",
    "compute",
    "search_options",
    "hub",
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
    "experiment",
    "export",
    "claims",
    "visualization",
    "serving",
    "scale",
    "cli",
    "__main__",
)
"""The packages and top-level modules in layers: each imports only itself and those before it, late imports counted."""


@dataclass(frozen=True)
class _Import:
    """An import statement, or a call of import_module, of the package itself."""

    file: str
    module: str
    names: tuple[str, ...]

    @property
    def source(self) -> str:
        """The layer of the importing file."""
        return self.file.split("/")[0].removesuffix(".py")

    def targets(self, modules: set[str]) -> set[str]:
        """Return the modules that are imported; a name of the top-level package stands for its home."""
        if self.module == "legenda":
            homes = {name: legenda._NAMES.get(name, f"legenda.{name}") for name in self.names if name != "__version__"}
            return set(homes.values()) & modules
        submodules = {f"{self.module}.{name}" for name in self.names} & modules
        only_submodules = self.names and len(submodules) == len(self.names)
        return submodules if only_submodules else {self.module} | submodules


def _imports(path: Path) -> Iterator[_Import]:
    """Yield all imports of the package in a file, at the top, inside functions and for type checking."""
    file = path.relative_to(_ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    attributes = tuple(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "legenda"
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, attributes if alias.name == "legenda" else ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} line {node.lineno}: imports name the whole path"
            found = [(node.module or "", tuple(alias.name for alias in node.names))]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            argument = node.args[0]
            start = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
            if not isinstance(start, ast.Constant):
                continue  # a registry imports the modules that its entries name as text
            found = [(str(start.value).rstrip("."), ())]
        else:
            continue
        for module, names in found:
            if module.split(".")[0] == "legenda":
                yield _Import(file, module, names)


def _module(file: str) -> str:
    return ".".join(("legenda", *Path(file).with_suffix("").parts)).removesuffix(".__init__")


# The package's own __init__ imports lazily; so do packages with a stub, which holds their imports.
_FILES = [path for path in sorted(_ROOT.rglob("*.py*")) if path.suffix in (".py", ".pyi") and path.parent != _ROOT]
_FILES += [path for path in sorted(_ROOT.glob("*.py")) if path.name != "__init__.py"]
_MODULES = {_module(path.relative_to(_ROOT).as_posix()) for path in _FILES}
_IMPORTS = [found for path in _FILES for found in _imports(path)]


def test_every_package_has_a_layer():
    packages = {path.relative_to(_ROOT).parts[0].removesuffix(".py") for path in _ROOT.rglob("*.py")} - {"__init__"}
    assert packages == set(_ORDER)


def test_imports_point_one_way():
    rank = {package: number for number, package in enumerate(_ORDER)}
    upward = {
        (found.file, target)
        for found in _IMPORTS
        for target in found.targets(_MODULES)
        if rank[target.split(".")[1]] > rank[found.source]
    }
    assert upward == set()


def test_no_file_is_in_a_circle():
    graph: dict[str, set[str]] = {}
    for found in _IMPORTS:
        file = _module(found.file)
        graph.setdefault(file, set()).update(found.targets(_MODULES) - {file})
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_files_have_one_subject():
    limits = {path: 80 if path.parent.name == "cli" else 300 for path in _FILES}
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _FILES}
    too_long = {path.relative_to(_ROOT).as_posix(): n for path, n in lengths.items() if n > limits[path]}
    assert too_long == {}


def test_only_the_command_line_prints():
    printing = [
        f"{path.relative_to(_ROOT).as_posix()}:{node.lineno}"
        for path in _FILES
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write", "sys.stderr.write")
    ]
    assert printing == []


def test_consoles_and_progress_bars_are_made_in_one_file():
    making = {
        path.relative_to(_ROOT).as_posix()
        for path in _FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in ("rich", "tqdm")
        and {alias.name for alias in node.names} & {"Console", "Progress", "track", "tqdm"}
    }
    assert making == {"progress.py"}


def _loaded(*arguments: str, code: int = 0) -> set[str]:
    """Return the top-level packages that a fresh interpreter has loaded; code: the exit code that it should have."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
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
def test_light_commands_load_neither_torch_nor_numpy(arguments):
    loaded = _loaded(*arguments)
    assert "legenda" in loaded
    assert not loaded & {"torch", "numpy", "scipy", "PIL", "matplotlib", "transformers", "tyro", "rich"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("train scenes.ngsan --training.epoch 3", 2),
        ("train vqa2.mcan_gsa --model.dimension 8", 2),
        ("train wmt14.nsa --help", 0),
        ("recipes", 0),
        ("caption --beam-sise 3", 2),
    ],
)
def test_options_are_parsed_before_torch_is_loaded(arguments, code):
    loaded = _loaded("-m", "legenda", *arguments.split(), code=code)
    assert "tyro" in loaded
    assert not loaded & {"torch", "scipy", "matplotlib", "transformers"}


@pytest.mark.parametrize("package", ["metrics", "features", "extractors", "visualization"])
def test_packages_of_plain_data_do_not_load_torch(package):
    loaded = _loaded("-c", f"import legenda.{package}")
    assert "legenda" in loaded
    assert "torch" not in loaded


def test_every_public_name_is_there():
    for name in legenda.__all__:
        assert getattr(legenda, name).__name__.split(".")[-1] == name
    assert set(legenda.__all__) == set(dir(legenda))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = legenda.lode
