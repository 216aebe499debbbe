"""An empty figure on a light ground, and its file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from legenda.errors import UserError
from legenda.io import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, FAINT = "#ffffff", "#1d1f24", "#6b6f76"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Those of Okabe and Ito, which the colour-blind tell apart, the most different first."""
DASHES = ("-", "--", "-.", ":")
MAP = "viridis"
"""Colours of numbers: the higher, the brighter, also in grey."""

_DPI = 150
_UNDATED = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The file formats, with what keeps the time of writing out of them: the same data make the same file."""


def load_matplotlib() -> ModuleType:
    """The drawing library; UserError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError('figures need matplotlib; install it with pip install "legenda[figures]"') from error
    return matplotlib


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches."""
    load_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, facecolor=PAPER)


def style_axes(axes: Axes) -> None:
    """A faint grid behind what is drawn, no frame above and to the right."""
    axes.grid(color="#e3e4e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, colors=INK)


def check_target(path: str | Path) -> Path:
    """The path of a figure to be; UserError unless its suffix names a format that can be written."""
    path = Path(path)
    if path.suffix.lower().removeprefix(".") not in _UNDATED:
        known = ", ".join(f".{name}" for name in _UNDATED)
        raise UserError(f"{path} names no format of figures; let it end in one of {known}")
    return path


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Writes the figure whole, in the format that the suffix names, and gives its path.

    Raises UserError for another suffix, and when the file cannot be written.
    """
    path = check_target(path)
    form = path.suffix.lower().removeprefix(".")
    with load_matplotlib().rc_context({"svg.hashsalt": "legenda"}), atomic_write(path) as partial:
        figure.savefig(partial, format=form, metadata=_UNDATED[form])
    return path
