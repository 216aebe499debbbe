"""The public names: those of `__all__` of the modules on the API pages, and all that the documentation uses."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re

import pytest

import legenda
from test_docs import BLOCKS, PAGES, ROOT

INTERNAL = {"cli", "photo", "serve"}
"""Packages whose names are not public: there are commands, an HTTP API, and a model that `legenda.open` opens."""
NAMES = {
    module: importlib.import_module(module).__all__
    for page, text in PAGES.items()
    if page.startswith("docs/api/") and page != "docs/api/cli.md"
    for module in re.findall(r"^::: (\S+)", text, flags=re.MULTILINE)
}
"""The public names of each module that has a place on a page."""


def test_every_package_has_a_page_or_is_internal():
    listed = set(re.findall(r"\]\((\w+)\.md\)", PAGES["docs/api/index.md"]))
    packages = {path.parent.name for path in (ROOT / "src" / "legenda").glob("*/__init__.py")}
    assert packages - INTERNAL == listed & packages - INTERNAL
    assert listed == {page.split("/")[-1][:-3] for page in PAGES if page.startswith("docs/api/")} - {"index"}
    assert {f"legenda.{package}" for package in packages - INTERNAL} == {
        ".".join(module.split(".")[:2]) for module in NAMES if module.split(".")[1] in packages
    }


def test_the_pages_show_all_alone():
    assert "filters: public" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    shown = [page for page, text in PAGES.items() if page.startswith("docs/api/") and "options:" in text]
    assert all(
        re.search(r"show_submodules|filters|members", PAGES[page]) is None for page in shown if "cli" not in page
    )


@pytest.mark.parametrize("module", NAMES)
def test_public_names_exist_and_have_docstrings(module):
    for name in NAMES[module]:
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module}.{name}"


def _used(source: str) -> set[str]:
    """Return the names of the package that Python code imports or reaches by its dots."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("legenda."):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"legenda(\.\w+)+", ast.unparse(node)):
            names.add(ast.unparse(node))
    return names


def test_what_the_documentation_uses_is_public():
    sources = BLOCKS | {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}
    cells = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    sources["tour.ipynb"] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for page, text in PAGES.items():  # also what prose names
        sources[page] = "\n".join(re.findall(r"`(legenda(?:\.[A-Za-z_]\w*)+)", text)) if "/api/" not in page else ""
    public = {f"{module}.{name}" for module, names in NAMES.items() for name in names} | set(NAMES)
    public |= {f"legenda.{name}" for name in legenda.__all__} | {"legenda.plugins"}
    for where, source in sources.items():
        for name in _used(source):
            assert name in public or name.rpartition(".")[0] in public - set(NAMES), f"{where}: {name}"
