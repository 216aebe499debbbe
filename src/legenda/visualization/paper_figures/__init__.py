"""The figures of the papers, drawn from trained models."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FigureEntry:
    """A figure: what it shows, the runs it needs, and the module and options of the function with its name."""

    shows: str
    needs: str
    module: str
    options: str


FIGURES: Mapping[str, FigureEntry] = {
    "ngsan.2": FigureEntry("scores by epoch", "runs with metrics.jsonl; seeds are averaged", "ngsan", "CurveOptions"),
    "ngsan.3": FigureEntry(
        "geometric weight by relative position", "a run with geometry, of one layer", "ngsan", "SurfaceOptions"
    ),
    "ngsan.4": FigureEntry("geometric weight by relative size", "the same", "ngsan", "SurfaceOptions"),
    "aoanet.8": FigureEntry(
        "captions word by word, without and with AoA",
        "two runs, such as aoanet_base and aoanet_aoa",
        "words",
        "GateOptions",
    ),
    "xlan.5": FigureEntry(
        "captions word by word, the region with the largest weight in red",
        "a run of xlan, and others to compare",
        "words",
        "RegionOptions",
    ),
    "mdsan.3": FigureEntry(
        "effect of positions on the scores of each head (Z, Eq. 19)",
        "runs such as mdsan_abspe, mdsan_relpe, mdsan_dsa; or none",
        "mdsan",
        "PositionOptions",
    ),
    "mdsan.4": FigureEntry("self-attention of each head", "runs with a Transformer encoder", "mdsan", "HeadOptions"),
    "mdsan.7": FigureEntry("a heatmap for each word", "a run of mdsan, and others to compare", "words", "HeatOptions"),
}
