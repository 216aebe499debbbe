"""Figures of captions word by word: AoANet's Figure 8, X-LAN's Figure 5 and MD-SAN's Figure 7."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from legenda.attention import XLinearAttention
from legenda.errors import UserError
from legenda.evaluation.runs import CaptionerRun
from legenda.models.aoanet_decoder import AoANetDecoder
from legenda.models.mdsan import MdsanConfig
from legenda.visualization.figures import CaptionRow, ImageCaptions, draw_word_rows
from legenda.visualization.paper_figures.images import find_figure_images, format_verdict, open_runs, run_label
from legenda.visualization.paper_figures.options import CaptionOptions, GateOptions, HeatOptions, RegionOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from legenda.visualization.figures.words import Style

_REGIONS = (
    "Each picture is dark where the word's attention (heads averaged) is small; the region with the largest weight is "
    "outlined in red with that weight."
)
_HEAT = (
    "Yellow is where most of the word's attention lies (last decoder layer, heads averaged; regions that overlap add "
    "up), and grey is where next to none does; the number is the largest weight of a region."
)


def aoanet_8(options: GateOptions) -> Figure:
    """The "base" model against a decoder with AoA (AoANet, Figure 8)."""
    runs = open_runs(options.runs)
    gated = {}
    for name, opened in runs.items():
        decoder = opened.model.decoder
        if not isinstance(decoder, AoANetDecoder):
            raise UserError(
                f"{opened.folder} holds {opened.model.name}, whose decoder is not of AoANet's family; name runs such "
                "as aoanet_base and aoanet_aoa"
            )
        gated[name] = decoder.aoa is not None
    if set(gated.values()) != {True, False}:
        missing = "without" if any(gated.values()) else "with"
        raise UserError(f"the figure needs a run {missing} AoA in its decoder too; name aoanet_base beside aoanet_aoa")
    return _draw(runs, options, "AoANet, Figure 8: what each word was read from, without and with AoA", "regions")


def xlan_5(options: RegionOptions) -> Figure:
    """The strongest region at each word (X-LAN, Figure 5)."""
    runs = open_runs(options.runs)
    if not any(_is_x_linear(opened) for opened in runs.values()):
        raise UserError(
            f"{_first(runs)}, which has no X-Linear attention in its decoder; name a run of xlan or xtransformer too"
        )
    return _draw(runs, options, "X-LAN, Figure 5: the region that each word was read from", "regions")


def mdsan_7(options: HeatOptions) -> Figure:
    """The heat of each word (MD-SAN, Figure 7)."""
    runs = open_runs(options.runs)
    if not any(isinstance(opened.model.config, MdsanConfig) for opened in runs.values()):
        raise UserError(f"{_first(runs)}, which is not of MD-SAN's family; name a run of mdsan too")
    return _draw(runs, options, "MD-SAN, Figure 7: where each word looked", "heat")


def _is_x_linear(opened: CaptionerRun) -> bool:
    return any(isinstance(module, XLinearAttention) for module in opened.model.decoder.modules())


def _first(runs: Mapping[str, CaptionerRun]) -> str:
    """The beginning of a sentence about runs that do not do."""
    opened = next(iter(runs.values()))
    return f"{opened.folder} holds {opened.model.name}"


def _draw(runs: Mapping[str, CaptionerRun], options: CaptionOptions, title: str, style: Style) -> Figure:
    views = find_figure_images(runs, options, options.count)
    captions = views.captions(runs, options)
    pictures = []
    for place, view in enumerate(views.views):
        spoken = []
        for name, opened in runs.items():
            looked = captions[name][place]
            assert looked.attention is not None  # all regions have boxes here
            remark = format_verdict(view.subject.check_caption(looked.text))
            spoken.append(CaptionRow(run_label(name, opened), looked.words, looked.attention, looked.boxes, remark))
        pictures.append(ImageCaptions(view.title, view.subject.image, spoken))
    return draw_word_rows(pictures, title=title, footnote=_HEAT if style == "heat" else _REGIONS, style=style)
