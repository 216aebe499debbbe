"""The remedies that messages, helps and docstrings name exist: commands, options, pages, extras, keys of recipes."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from legenda.cli.main import COMMANDS
from test_docs_commands import options_of

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = {"--abbrev", "--always", "--dirty", "--error-unmatch", "--exclude", "--no-optional-locks"}  # git
FOREIGN |= {"--add-opens", "--c40", "--only-predicted", "--only-referenced", "--then"}  # Java; CSS; of no user
FOREIGN |= {"--extra-index-url", "--no-", "--do-sample"}  # pip; a prefix; an option of another library
EVERYWHERE = {"--help", "--help-all", "--plugin", "--version"}
NO_COMMANDS = {"again"}
"""Words that follow "legenda" in a sentence on installing it."""


def _literals(path: Path) -> Iterator[str]:
    """Yield every string of a file; values in f-strings are braces."""
    inner: set[int] = set()
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node)}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    yield from (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
    )


TEXTS = [
    (str(path.relative_to(ROOT)), " ".join(text.split()))
    for path in sorted((ROOT / "src").rglob("*.py"))
    for text in _literals(path)
] + [
    (str(path.relative_to(ROOT)), " ".join(path.read_text(encoding="utf-8").split()))
    for path in (ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / ".github").rglob("*.yml"))
]


def test_every_command_exists():
    for file, text in TEXTS:
        for name in re.findall(r"(?<![\w./-])legenda ([a-z]+)\b", text):
            assert name in COMMANDS or name in NO_COMMANDS, f"{file}: legenda {name}"


def test_every_option_exists_and_is_of_the_command_before_it():
    known = set().union(EVERYWHERE, FOREIGN, *map(options_of, COMMANDS))
    for file, text in TEXTS:
        if not file.startswith("src"):  # they name options of other programs too
            continue
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
            assert option in known, f"{file}: {option}"
        for command, rest in re.findall(r"(?<![\w./-])legenda ([a-z]+)\b((?:(?!legenda)[^;,:`])*)", text):
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", rest):
                assert option in options_of(command) | EVERYWHERE, f"{file}: legenda {command} ... {option}"


def test_every_page_and_extra_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for file, text in TEXTS:
        for page in re.findall(r"(?<![\w/])(?:docs|research|examples)/[\w/.-]*\w", text):
            if "/" in page:
                assert (ROOT / page).exists(), f"{file}: {page}"
        for extra in re.findall(r"(?:legenda|\.)\[(\w+)\]'?\"?", text):
            assert extra in extras, f"{file}: legenda[{extra}]"


def test_every_key_of_a_recipe_exists():
    fields = {
        node.target.id
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for file, text in TEXTS:
        for key in re.findall(r"(?<![\w./:{])(?:training|fine_tuning|data|model)((?:\.[a-z_]+)+)=", text):
            for part in key.split(".")[1:]:
                assert part in fields, f"{file}: {key}"
