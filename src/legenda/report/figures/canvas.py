"""Empty figures, their common style, and writing them to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from legenda.errors import ConfigError, import_extra
from legenda.io import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, FAINT = "#ffffff", "#1d1f24", "#6b6f76"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The palette of Okabe and Ito, for color-blind readers; the most different colors first."""
DASHES = ("-", "--", "-.", ":")
COLORMAP = "viridis"
"""The higher a value, the brighter, also in gray."""

_DPI = 150
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The file formats, with metadata that omits the time of writing: equal data make equal files."""


def load_matplotlib() -> Any:
    """Return matplotlib; raise ConfigError where it is not installed."""
    return import_extra("matplotlib", "figures")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height in inches."""
    load_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, facecolor=PAPER)


def style_axes(axes: Axes) -> None:
    """Add a faint grid behind the data and hide the upper and right spines."""
    axes.grid(color="#e3e4e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, colors=INK)


def check_target(path: str | Path) -> Path:
    """Return the path of a figure; raise ConfigError unless its suffix is a supported format."""
    path = Path(path)
    if path.suffix.lower().removeprefix(".") not in _METADATA:
        known = ", ".join(f".{name}" for name in _METADATA)
        raise ConfigError(f"{path} has no supported figure format; use one of {known}")
    return path


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write the figure atomically, in the format of the suffix, and return its path.

    Raise an error for another suffix, and when the file cannot be written.
    """
    path = check_target(path)
    form = path.suffix.lower().removeprefix(".")
    with load_matplotlib().rc_context({"svg.hashsalt": "legenda"}), atomic_write(path) as partial:
        figure.savefig(partial, format=form, metadata=_METADATA[form])
    return path
