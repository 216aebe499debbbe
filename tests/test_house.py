"""The house: one table of rooms, the drawing of docs/concepts.md made from it, and a test of every import.

`python tests/test_house.py` draws docs/images/house.svg anew.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "legenda"
DRAWING = ROOT / "docs" / "images" / "house.svg"
LINE = "PyTorch begins here"
"""The dotted line: no room below it in the drawing imports PyTorch, not even late."""

# From the ground up: what a floor is, and its rooms with what each holds. A room imports from the floors below it, and
# on its own floor from the rooms to its left.
HOUSE: tuple[tuple[str, dict[str, str]] | str, ...] = (
    (
        "what everything stands on",
        {
            "terminal": "progress bars",
            "errors": "one sentence",
            "config": "checked fields",
            "io": "atomic files, arrays",
            "registry": "names, plugins",
            "run_folder": "files of a run",
            "hub": "models by name",
        },
    ),
    (
        "words, images and numbers",
        {
            "text": "tokens, vocabularies",
            "metrics": "CIDEr-D, BLEU ...",
            "images": "files, URLs, shards",
        },
    ),
    (
        "captions without PyTorch",
        {
            "runtime": "exported models, search",
            "photo": "the packaged captioner",
        },
    ),
    LINE,
    (
        "the papers",
        {
            "environment": "versions",
            "compute": "device, precision",
            "regions": "Regions, Memory",
            "attention": "one mechanism a file",
            "decoding": "beams, samples",
            "models": "one model a file",
        },
    ),
    (
        "what models read",
        {
            "features": "stores, extraction",
            "data": "captions, scenes",
            "extractors": "images to regions",
        },
    ),
    ("how weights come about", {"tasks": "batches, losses", "training": "loop, schedules"}),
    (
        "whole experiments",
        {
            "recipes": "model, data, stages",
            "papers": "rows of tables",
            "experiment": "train a recipe",
            "importers": "released weights",
            "export": "ONNX",
        },
    ),
    ("images in, captions and scores out", {"evaluation": "open, predict, score", "pipeline": "captions from Python"}),
    (
        "what people see",
        {
            "jobs": "pools and clusters",
            "report": "one page that compares runs",
            "serve": "web page and HTTP API",
            "extras": "VQA, video ...",
        },
    ),
    ("", {"cli": "one file per command: legenda train, evaluate, caption, serve ..."}),
)
ROOMS = [room for floor in HOUSE if not isinstance(floor, str) for room in floor[1]]
WITHOUT_TORCH = frozenset(
    room for floor in HOUSE[: HOUSE.index(LINE)] if not isinstance(floor, str) for room in floor[1]
)
TORCH = {"torch", "torchvision", "jaxtyping", "lightning_fabric", "timm", "transformers"}


def modules() -> dict[str, Path]:
    """Return the files of the package by the names of their modules."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("legenda", *path.relative_to(PACKAGE).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every import of a file, late ones and those for types too: the module, and a name in it or ""."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from ((str(node.module), alias.name) for alias in node.names)


def graph(files: dict[str, Path]) -> dict[str, set[str]]:
    """Return the modules of the package that each file imports, or the stub file beside it."""
    edges: dict[str, set[str]] = {}
    for module, path in files.items():
        sources = [source for source in (path, path.with_suffix(".pyi")) if source.exists()]
        named = {f"{m}.{name}" if f"{m}.{name}" in files else m for source in sources for m, name in imports(source)}
        edges[module] = {name for name in named if name in files} - {module}
    return edges


def room_of(module: str) -> str:
    """Return the room of a module; "" for the package itself, whose names are loaded when they are used."""
    return module.partition(".")[2].partition(".")[0]


def circles(edges: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the largest sets of files each of which imports all others of its set, directly or not (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(frozenset(group))

    for module in edges:
        if module not in index:
            visit(module)
    return found


def arrows_up(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports of a room from one above it or to its right: file and imported module."""
    floors = {room: number for number, room in enumerate((*ROOMS, "", "__main__"))}
    return {
        (module, other)
        for module, others in edges.items()
        for other in others
        if floors[room_of(other)] > floors[room_of(module)]
    }


def torch_imports(files: dict[str, Path]) -> set[str]:
    """Return the modules of rooms that do without PyTorch which import it, or what stands on it."""
    return {
        module
        for module, path in files.items()
        if room_of(module) in WITHOUT_TORCH and any(m.partition(".")[0] in TORCH for m, _ in imports(path))
    }


def test_every_room_is_in_the_table():
    assert {room_of(module) for module in modules()} - {"", "__main__"} == set(ROOMS)
    assert len(ROOMS) == len(set(ROOMS))


def test_no_room_imports_from_above():
    assert not arrows_up(graph(modules()))


def test_no_files_import_each_other_in_a_circle():
    assert not circles(graph(modules()))


def test_the_rooms_below_the_line_do_without_pytorch():
    assert not torch_imports(modules())


def test_the_drawing_is_that_of_the_table():
    assert DRAWING.read_text(encoding="utf-8") == draw()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    from legenda.cli.main import main", {"legenda.cli.main"}),
        ("if TYPE_CHECKING:\n    from legenda import errors", {"legenda.errors"}),
        ("import legenda.models.base as base", {"legenda.models.base"}),
    ],
)
def test_late_imports_and_those_for_types_count(source, expected, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(source)
    assert graph({**modules(), "legenda.io.module": file})["legenda.io.module"] == expected


def test_a_circle_of_three_files_is_one():
    edges = defaultdict(set, {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circles(edges) == [frozenset("abc")]


_WIDTH, _HEIGHT, _GAP, _LEFT, _RIGHT = 860, 66, 6, 40, 820
_COLORS = (("#eef0f4", "#667080"), ("#e6f4ea", "#338855"), ("#e7ecfb", "#5566bb"), ("#fdf1e3", "#bb7722"))


def draw() -> str:
    """Return the drawing of the house, SVG."""
    floors = [floor for floor in HOUSE if not isinstance(floor, str)]
    below = HOUSE.index(LINE)
    top = 130
    height = top + len(floors[:-1]) * (_HEIGHT + _GAP) + 4 * _GAP + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="DejaVu Sans, Helvetica, '
        'Arial, sans-serif" role="img" aria-label="The packages of Legenda as floors of a house; each imports from the '
        'floors below it">',
        f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#fbfbfe" stroke="#e0e2ea"/>',
        f'<path d="M18 {top - 6} L430 18 L842 {top - 6} Z" fill="#f7e3e3" stroke="#aa4444" stroke-width="1.4"/>',
    ]
    ((roof, text),) = floors[-1][1].items()
    lines += [_text(430, 80, roof, 16, bold=True), _text(430, 102, text, 12)]
    y = top
    for number in range(len(floors) - 2, -1, -1):
        title, rooms = floors[number]
        if number == below - 1:
            lines.append(
                f'<path d="M{_LEFT} {y + 2 * _GAP} H{_RIGHT}" stroke="#4a5162" stroke-width="1.4" '
                'stroke-dasharray="3 5"/>'
            )
            lines.append(_text(_RIGHT, y + 2 * _GAP - 4, LINE, 10.5, anchor="end"))
            y += 4 * _GAP
        fill, stroke = _COLORS[0 if number == 0 else 1 if number < below else 2 if number < below + 3 else 3]
        lines.append(
            f'<rect x="{_LEFT}" y="{y}" width="{_RIGHT - _LEFT}" height="{_HEIGHT}" fill="{fill}" stroke="{stroke}" '
            'stroke-width="1.2"/>'
        )
        lines.append(_text(_LEFT + 8, y + 15, title, 10.5, anchor="start"))
        width = (_RIGHT - _LEFT - 8 * (len(rooms) + 1)) / len(rooms)
        for position, (room, text) in enumerate(rooms.items()):
            x = _LEFT + 8 + position * (width + 8)
            lines.append(
                f'<rect x="{x:.1f}" y="{y + 21}" width="{width:.1f}" height="38" rx="5" fill="#fff" stroke="{stroke}"/>'
            )
            lines += [_text(x + width / 2, y + 37, room, 13, bold=True), _text(x + width / 2, y + 52, text, 10)]
        y += _HEIGHT + _GAP
    note = "A room imports from the floors below it and from the rooms to its left, never from above."
    return "\n".join([*lines, _text(430, height - 18, note, 12), "</svg>", ""])


def _text(x: float, y: float, text: str, size: float, *, bold: bool = False, anchor: str = "middle") -> str:
    style = 'font-weight="bold" fill="#1c2030"' if bold else 'fill="#4a5162"'
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    DRAWING.write_text(draw(), encoding="utf-8")
