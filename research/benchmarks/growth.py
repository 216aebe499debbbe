"""Measure how the cost per image grows with regions, rows, layers, vocabulary, beam size and batch size.

    python research/benchmarks/growth.py --out growth.json --figure research/results/speed-growth.png
    python research/benchmarks/growth.py --out growth.json --models xlan --axes regions beam

The rest is as in models.py: a cross-entropy step of 4 images with 5 rows each, or a beam search of beam size 3. Each
number is the minimum of two calls after a warm-up call, in CPU seconds per image. `num_layers` counts the layers of the
encoder in aoanet, xlan and xtransformer, and of encoder and decoder elsewhere.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from legenda.io import write_json
from legenda.models.packing import PackedWeights
from models import MODELS, ROWS, make_captioner, make_regions, make_task, timed

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from drawing import COLORS, DASHES, INK, new_figure, save_figure, style_axes

IMAGES = 4
AXES: dict[str, tuple[int, ...]] = {
    "regions": (16, 36, 64, 144),
    "rows": (1, 5, 10, 20),
    "layers": (1, 2, 4, 6),
    "vocabulary": (2_500, 5_000, 10_000, 20_000),
    "beam": (1, 3, 5, 10),
    "images": (8, 16, 32, 64),
}
TITLES = {
    "regions": "regions (cross-entropy)",
    "rows": "rows per image (cross-entropy)",
    "layers": "num_layers (cross-entropy)",
    "vocabulary": "vocabulary (cross-entropy)",
    "beam": "beam size (beam search)",
    "images": "batch size (beam search)",
}
CALLS = 2


@dataclass(frozen=True)
class Options:
    """What to measure."""

    out: Path
    """A JSON file: model, axis, value and seconds of each measurement."""
    figure: Path | None = None
    models: tuple[str, ...] = MODELS
    axes: tuple[str, ...] = tuple(AXES)


def main() -> None:
    """Measure, write after each model, and plot."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    results = []
    for name in options.models:
        for axis in options.axes:
            for value in AXES[axis]:
                results.append({"model": name, "axis": axis, "value": value, "seconds": measure(name, axis, value)})
                print(
                    "{model:<13} {axis:<11} {value:>6} {seconds:8.3f} CPU s per image".format(**results[-1]), flush=True
                )
        write_json(options.out, results)
    if options.figure is not None:
        plot(results, options.figure)


def measure(name: str, axis: str, value: int) -> float:
    """Return CPU seconds per image."""
    torch.manual_seed(0)
    changes = {"layers": {"num_layers": value}, "vocabulary": {"vocab_size": value}}.get(axis, {})
    images = value if axis == "images" else IMAGES
    regions = make_regions(name, images, value if axis == "regions" else None)
    task = {"beam": f"beam{value}", "images": "beam3"}.get(axis, "xe")
    captioner = make_captioner(name, **changes)
    weights = PackedWeights()  # as the commands have
    run = make_task(captioner, task, regions, value if axis == "rows" else ROWS, weights)
    run()
    return min(timed(run)[0] for _ in range(CALLS)) / images


def plot(results: list[dict], path: Path) -> None:
    """Plot one panel per axis and one line per model."""
    shown = [axis for axis in AXES if any(row["axis"] == axis for row in results)]
    names = list(dict.fromkeys(row["model"] for row in results))
    figure = new_figure(11.5, 3.6 * -(-len(shown) // 3))
    for number, axis in enumerate(shown):
        panel = figure.add_subplot(-(-len(shown) // 3), 3, number + 1)
        for index, name in enumerate(names):
            points = [(row["value"], row["seconds"]) for row in results if (row["model"], row["axis"]) == (name, axis)]
            panel.plot(*zip(*points, strict=True), DASHES[index % len(DASHES)], color=COLORS[index % len(COLORS)],
                       linewidth=2, marker="o", markersize=3.5, label=name)  # fmt: skip
        panel.set_title(TITLES[axis], fontsize=10.5, color=INK, loc="left")
        panel.set_ylim(bottom=0)
        panel.set_xlim(left=0)
        style_axes(panel)
        if number % 3 == 0:
            panel.set_ylabel("CPU seconds per image", fontsize=10, color=INK)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=10, frameon=False, loc="upper center", ncol=6)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    save_figure(figure, path)


if __name__ == "__main__":
    main()
