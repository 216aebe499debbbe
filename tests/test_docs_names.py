"""Every name in backticks of the documentation that looks like Legenda's exists: modules, files, functions, fields."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import legenda
from legenda.papers import all_recipes, all_tables
from test_docs import BLOCKS, ROOT
from test_docs import PAGES as DOCS

PAGES = DOCS | {"CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}

FOREIGN = {"logging.basicConfig", "HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "PyTorchModelHubMixin"}
FOREIGN |= {"en_vectors_web_lg", "resnext101_64x4d", "fasterrcnn_resnet50_fpn_v2", "cocobu_att", "cocobu_box"}
"""Names of other libraries."""
PLACEHOLDERS = r"FIELD|ID_|COCO_|MINUTES"
COMMANDS = r"(?:legenda|pip|python|make|git|docker|curl|torchrun|\.venv|https?:|/|-)"
FILES = r".*\.(?:cff|jsonl?|[ct]sv|txt|safetensors|pth|hdf5|zip|jpg|png|py|toml|html|md|net|fr|npz|pkl|tar\.gz)$"

SPANS = sorted(
    {
        (span, page)
        for page, text in PAGES.items()
        for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    }
)


def identifiers() -> set[str]:
    """Return all names of the sources: functions, arguments, attributes, keys, and words of their TOML files."""
    found: set[str] = set()
    for folder in ("src", "examples", "research"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                        found.add(name)
                    case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                        found.update(name.split("."))
                    case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.-]+", text):
                        found.update(re.findall(r"\w+", text))
        for path in (ROOT / folder).rglob("*.toml"):
            found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return found


def resolve(name: str) -> None:
    """Raise AttributeError where a dotted name of the package does not exist."""
    parts = name.split(".")
    module = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        try:
            module = getattr(module, part)
        except AttributeError:
            module = importlib.import_module(".".join(parts[:number]))


def test_dotted_names_of_the_package_exist():
    for span, page in SPANS:
        for name in re.findall(r"(?<![\w/.])legenda(?:\.[A-Za-z_]\w*)+", span):
            if name == "legenda.plugins":  # the group of entry points
                continue
            try:
                resolve(name)
            except (AttributeError, ImportError) as error:
                pytest.fail(f"{page}: `{span}`: {error}")


def test_what_blocks_import_exists():
    """Also in blocks that need a trained run, and are not executed."""
    for page, block in BLOCKS.items():
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("legenda"):
                for name in node.names:
                    try:
                        resolve(f"{node.module}.{name.name}")
                    except (AttributeError, ImportError) as error:
                        pytest.fail(f"{page}: {error}")


def test_files_exist():
    for span, page in SPANS:
        for name in re.findall(r"(?<![\w/.{*])(?:src|tests|examples|research|docs|\.ci)/[\w./*-]+", span):
            assert list(ROOT.glob(name.rstrip("/"))), f"{page}: `{span}`"


def test_identifiers_exist():
    """Functions, fields and options: names with an underscore, an inner capital, brackets or a value behind "="."""
    known = identifiers() | FOREIGN | set(all_recipes()) | set(all_tables())
    missing = []
    for span, page in SPANS:
        if re.match(f"{COMMANDS}|{FILES}", span) or re.search(PLACEHOLDERS, span):
            continue
        names = re.findall(r"(?<![\w/.-])([A-Za-z_][\w.]*)(?=[=(])", span)
        if re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", span) and re.search(r"_|[a-z][A-Z]|\.", span):
            names.append(span)
        for name in names:
            if name not in known and not all(part in known for part in name.split(".")):
                missing.append(f"{page}: `{span}`")
    assert not missing, "\n".join(sorted(set(missing)))


def test_the_types_of_the_package_are_those_of_its_names():
    """`legenda/__init__.pyi` has every public name, and no other."""
    tree = ast.parse(Path(str(legenda.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = {a.asname for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assigned = {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)}
    assert (imported | assigned) - {None} == set(legenda.__all__)
