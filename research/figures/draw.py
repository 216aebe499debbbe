"""Draw a figure of the papers from trained runs; needs the extra figures.

python research/figures/draw.py                                   # lists the figures
python research/figures/draw.py ngsan 2 runs/nsan runs/transformer --out curves.pdf
python research/figures/draw.py mdsan 3 --help
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import captions
import mdsan
import ngsan
import tyro
from drawing import check_target, save_figure
from inputs import (
    CurveOptions,
    GateOptions,
    HeadOptions,
    HeatOptions,
    PositionOptions,
    RegionOptions,
    SurfaceOptions,
)
from matplotlib.figure import Figure

from legenda.compute import ComputeOptions
from legenda.errors import ConfigError, LegendaError, did_you_mean


@dataclass(frozen=True)
class Entry:
    """A figure: what it shows, the runs it needs, its options and the function that draws it."""

    shows: str
    needs: str
    options: type
    draw: Callable[[Any], Figure]


FIGURES: Mapping[str, Entry] = {
    "ngsan 2": Entry("scores by epoch", "runs with metrics.jsonl; seeds are averaged", CurveOptions, ngsan.ngsan_2),
    "ngsan 3": Entry(
        "geometric weight by relative position",
        "a run with geometry, of one layer",
        SurfaceOptions,
        ngsan.ngsan_3,
    ),
    "ngsan 4": Entry("geometric weight by relative size", "the same", SurfaceOptions, ngsan.ngsan_4),
    "aoanet 8": Entry(
        "captions word by word, without and with AoA",
        "two runs, such as those of scenes.aoanet.table4.base and .aoa",
        GateOptions,
        captions.aoanet_8,
    ),
    "xlan 5": Entry(
        "captions word by word, the region with the largest weight in red",
        "a run of xlan, and others to compare",
        RegionOptions,
        captions.xlan_5,
    ),
    "mdsan 3": Entry(
        "effect of positions on the scores of each head (Z, Eq. 19)",
        "runs such as those of scenes.mdsan.table7.abspe, .relpe and .dsa; or none",
        PositionOptions,
        mdsan.mdsan_3,
    ),
    "mdsan 4": Entry("self-attention of each head", "runs with a Transformer encoder", HeadOptions, mdsan.mdsan_4),
    "mdsan 7": Entry("a heatmap for each word", "a run of mdsan, and others to compare", HeatOptions, captions.mdsan_7),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one figure and print its path, or list all."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        for name, entry in FIGURES.items():
            print(f"{name:<10}{entry.shows}\n{'':<10}needs {entry.needs}")
        return
    name = " ".join(arguments[:2])
    if name not in FIGURES:
        raise ConfigError(f"there is no figure {name!r}; {did_you_mean(name, FIGURES)}")
    entry = FIGURES[name]
    options = tyro.cli(entry.options, args=arguments[2:], prog=f"draw.py {name}")
    for option in ("count", "beam_size"):
        if getattr(options, option, 1) < 1:
            raise ConfigError(f"--{option.replace('_', '-')} must be at least 1, not {getattr(options, option)}")
    if isinstance(options, ComputeOptions):
        options.resolve()
    out = check_target(options.out or Path(f"{name.replace(' ', '.')}.png"))
    path = save_figure(entry.draw(options), out)
    print(f"{path.resolve()}: {name}, {entry.shows}")


if __name__ == "__main__":
    try:
        main()
    except LegendaError as error:
        print(f"draw.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
