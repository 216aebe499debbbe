"""Figures of captions word by word: AoANet's Figure 8, X-LAN's Figure 5 and MD-SAN's Figure 7."""

from __future__ import annotations

from collections.abc import Mapping

from drawing import Block, CaptionRow, Style, draw_image_grid, word_rows
from inputs import (
    CaptionOptions,
    GateOptions,
    HeatOptions,
    RegionOptions,
    find_figure_images,
    format_verdict,
    open_runs,
    run_label,
)
from matplotlib.figure import Figure

from legenda.attention import XLinearAttention
from legenda.errors import ConfigError
from legenda.evaluation.runs import CaptionerRun
from legenda.models.aoanet import AoANetDecoder
from legenda.models.mdsan import MdsanConfig

_REGIONS = (
    "Regions of small attention (mean over heads) are dark; the region with the largest weight is outlined in red with "
    "its weight."
)
_HEAT = (
    "Yellow: large attention, gray: almost none (last decoder layer, mean over heads; overlapping regions add up); the "
    "number is the largest weight of a region."
)


def aoanet_8(options: GateOptions) -> Figure:
    """Compare the "base" model with a decoder with AoA (AoANet, Figure 8)."""
    runs = open_runs(options.runs, options)
    gated = {}
    for name, opened in runs.items():
        decoder = opened.model.decoder
        if not isinstance(decoder, AoANetDecoder):
            raise ConfigError(
                f"{opened.folder} holds {opened.model.name}, whose decoder is not of AoANet's family; name runs such "
                "as those of scenes.aoanet.table4.base and scenes.aoanet.table4.aoa"
            )
        gated[name] = decoder.aoa is not None
    if set(gated.values()) != {True, False}:
        missing = "without" if any(gated.values()) else "with"
        raise ConfigError(
            f"the figure needs a run {missing} AoA in its decoder too; name runs such as those of "
            "scenes.aoanet.table4.base and scenes.aoanet.table4.aoa"
        )
    return _draw(runs, options, "AoANet, Figure 8: attention of each word, without and with AoA", "regions")


def xlan_5(options: RegionOptions) -> Figure:
    """Draw the region with the largest weight for each word (X-LAN, Figure 5)."""
    runs = open_runs(options.runs, options)
    modules = (module for opened in runs.values() for module in opened.model.decoder.modules())
    if not any(isinstance(module, XLinearAttention) for module in modules):
        raise ConfigError(
            f"{_first(runs)}, which has no X-Linear attention in its decoder; name a run of xlan or xtransformer too"
        )
    return _draw(runs, options, "X-LAN, Figure 5: the region with the largest weight for each word", "regions")


def mdsan_7(options: HeatOptions) -> Figure:
    """Draw the heatmap of each word (MD-SAN, Figure 7)."""
    runs = open_runs(options.runs, options)
    if not any(isinstance(opened.model.config, MdsanConfig) for opened in runs.values()):
        raise ConfigError(f"{_first(runs)}, which is not of MD-SAN's family; name a run of mdsan too")
    return _draw(runs, options, "MD-SAN, Figure 7: attention of each word", "heat")


def _first(runs: Mapping[str, CaptionerRun]) -> str:
    """Return the beginning of an error message about unsuitable runs."""
    opened = next(iter(runs.values()))
    return f"{opened.folder} holds {opened.model.name}"


def _draw(runs: Mapping[str, CaptionerRun], options: CaptionOptions, title: str, style: Style) -> Figure:
    figure_images = find_figure_images(runs, options, options.count)
    captions = figure_images.captions(runs, options)
    blocks = []
    for index, figure_image in enumerate(figure_images.images):
        rows = []
        for name, opened in runs.items():
            caption = captions[name][index]
            remark = format_verdict(figure_image.image.check_caption(caption.text))
            rows.append(CaptionRow(run_label(name, opened), caption.words, caption.attention, caption.boxes, remark))
        blocks.append(Block(figure_image.title, word_rows(figure_image.image.image, rows, style)))
    return draw_image_grid(blocks, title=title, footnote=_HEAT if style == "heat" else _REGIONS)
