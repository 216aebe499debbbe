"""`legenda figure`: figures of the papers, drawn from runs of one's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from legenda.errors import UserError, nearest


@dataclass(frozen=True)
class Entry:
    """One figure: what it shows, what it needs, and the module that makes it, under a function of the same name."""

    shows: str
    needs: str
    module: str
    options: str


FIGURES: Mapping[str, Entry] = {
    "ngsan.2": Entry("scores by epoch", "runs with metrics.jsonl; seeds are joined", "ngsan", "CurveOptions"),
    "ngsan.3": Entry(
        "geometric weight by relative position", "a run with geometry, of one layer", "ngsan", "SurfaceOptions"
    ),
    "ngsan.4": Entry("geometric weight by relative size", "the same", "ngsan", "SurfaceOptions"),
    "aoanet.8": Entry(
        "captions word by word, without and with AoA",
        "two runs, such as aoanet_base and aoanet_aoa",
        "words",
        "GateOptions",
    ),
    "xlan.5": Entry(
        "captions word by word, the strongest region in red",
        "a run of xlan, others beside it",
        "words",
        "RegionOptions",
    ),
    "mdsan.3": Entry(
        "what positions do to each head's scores (Z, Eq. 19)",
        "runs such as mdsan_abspe, mdsan_relpe, mdsan_dsa; or none",
        "mdsan",
        "PositionOptions",
    ),
    "mdsan.4": Entry("self-attention of each head", "runs with a Transformer's encoder", "mdsan", "HeadOptions"),
    "mdsan.7": Entry("a heat map for each word", "a run of mdsan, others beside it", "words", "HeatOptions"),
}


def run(arguments: Sequence[str]) -> None:
    """Writes one figure and says where, or lists all."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return
    name = arguments[0]
    if name.startswith("-"):
        raise UserError("the figure comes first, as in legenda figure ngsan.2; legenda figure lists them")
    if name not in FIGURES:
        raise UserError(f"there is no figure {name!r}; {nearest(name, FIGURES)}")
    from legenda.cli.options import parse
    from legenda.visualization.paper_figures import options as figure_options

    entry = FIGURES[name]
    options = parse(getattr(figure_options, entry.options), arguments[1:], f"figure {name}")
    from legenda.visualization.figures import check_target, save_figure
    from legenda.visualization.figures.canvas import load_matplotlib

    out = check_target(options.out or Path(f"{name}.png"))
    load_matplotlib()
    draw = getattr(import_module(f"legenda.visualization.paper_figures.{entry.module}"), name.replace(".", "_"))
    path = save_figure(draw(options), out)
    print(f"{path.resolve()}: {name}, {entry.shows}")


def _usage() -> str:
    width = max(map(len, FIGURES))
    lines = "\n".join(
        f"  {name:<{width}}  {entry.shows}\n{'':<{width + 4}}{entry.needs}" for name, entry in FIGURES.items()
    )
    return (
        "usage: legenda figure NAME RUN [RUN ...] [--out FILE.png|.svg|.pdf] [OPTIONS]\n\n"
        "Draws a figure of the papers from runs of your own; needs the extra `figures`. Runs of scenes need no\n"
        "pictures: drawn test scenes serve.\n\n"
        f"figures, with what they show and need:\n{lines}\n\n"
        "legenda figure NAME --help says what a figure takes."
    )
