"""`legenda figure`: figures of the papers, drawn from trained runs."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from legenda.errors import ConfigError, did_you_mean


def run(arguments: Sequence[str]) -> None:
    """Write one figure and print its path, or list all."""
    from legenda.report.paper_figures import FIGURES

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return
    name = arguments[0]
    if name.startswith("-"):
        raise ConfigError("the figure comes first, as in legenda figure ngsan.2; legenda figure lists them")
    if name not in FIGURES:
        raise ConfigError(f"there is no figure {name!r}; {did_you_mean(name, FIGURES)}")
    from legenda.cli.options import parse
    from legenda.report.paper_figures import options as figure_options

    entry = FIGURES[name]
    options = parse(getattr(figure_options, entry.options), arguments[1:], f"figure {name}")
    from legenda.report.figures import check_target, save_figure
    from legenda.report.figures.canvas import load_matplotlib

    out = check_target(options.out or Path(f"{name}.png"))
    load_matplotlib()
    draw = getattr(import_module(f"legenda.report.paper_figures.{entry.module}"), name.replace(".", "_"))
    path = save_figure(draw(options), out)
    print(f"{path.resolve()}: {name}, {entry.shows}")


def _usage() -> str:
    from legenda.report.paper_figures import FIGURES

    width = max(map(len, FIGURES))
    lines = "\n".join(
        f"  {name:<{width}}  {entry.shows}\n{'':<{width + 4}}{entry.needs}" for name, entry in FIGURES.items()
    )
    return (
        "usage: legenda figure NAME RUN [RUN ...] [--out FILE.png|.svg|.pdf] [OPTIONS]\n\n"
        "Draw a figure of the papers from trained runs; needs the extra `figures`. Runs of scenes need no image\n"
        "files: test scenes are drawn.\n\n"
        f"figures, what they show and what they need:\n{lines}\n\n"
        "legenda figure NAME --help lists the options of a figure."
    )
