"""MD-SAN's figures of the encoder: the matrices of Eq. 19 (3) and self-attention (4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from drawing import MAX_COLUMNS, Block, CaptionRow, WeightMatrices, draw_image_grid, matrix_rows, word_rows
from encoders import distance_weights, position_matrices, self_attention
from inputs import (
    FigureImage,
    HeadOptions,
    PositionOptions,
    find_figure_images,
    format_verdict,
    open_runs,
    reject_options,
    run_label,
)
from matplotlib.figure import Figure
from PIL import Image

from legenda.data.captions import ScenesData
from legenda.data.scenes import FEATURE_DIM
from legenda.errors import ConfigError
from legenda.evaluation.runs import CaptionerRun
from legenda.images import find_images, read_image
from legenda.models import Captioner, create_model
from legenda.papers import get_recipe
from legenda.pipeline import GeneratedCaption
from legenda.regions import Regions
from legenda.report.images import draw_scene_image

T = TypeVar("T")

_CELLS, _PATCH = 7, 8
_UNTRAINED = {
    "mdsan.table7.abspe": "absolute position embedding",
    "mdsan.table7.relpe": "relative position embedding",
    "mdsan.table7.dsa": "distance-sensitive attention",
}
_ENOUGH_WORDS = 10
_HEADS = 8
"""Heads in a line."""


def mdsan_3(options: PositionOptions) -> Figure:
    """Draw the matrices Z of every head (MD-SAN, Figure 3 and Eq. 19)."""
    rows, source = _untrained(options) if not options.runs else _trained(options)
    return draw_image_grid(
        [Block("", matrix_rows(rows))],
        title=f"MD-SAN, Figure 3: Z = softmax(E / E\u2070) of each head, layer {options.layer}",
        footnote=f"{source} Row i, column j: the effect of positions on the weight of region j for query i; brighter "
        "is higher; each matrix has its own color scale, whose range is given below it.",
        columns=_HEADS,
    )


def mdsan_4(options: HeadOptions) -> Figure:
    """Draw the self-attention of each head (MD-SAN, Figure 4)."""
    runs = open_runs(options.runs, options)
    figure_images = find_figure_images(runs, options, options.count)
    captions = figure_images.captions(runs, options)
    title = f"MD-SAN, Figure 4: self-attention of each head, encoder layer {options.layer}"
    if options.cell is None:
        columns = _HEADS + 1
        footnote = (
            "Row i, column j: the weight of region j for query i; brighter is higher; each matrix has its own color "
            "scale, whose range is given below it. w < 0: near regions get more weight."
        )
    else:
        columns = MAX_COLUMNS
        title += f", query region {options.cell}"
        footnote = (
            "Yellow: large attention of the head, gray: almost none (overlapping regions add up); the number is the "
            "largest weight of a region. The query region is outlined in blue. w < 0: near regions get more weight."
        )
    blocks = []
    for index, entry in enumerate(figure_images.images):
        heads = {name: _heads(name, opened, entry, captions[name][index], options) for name, opened in runs.items()}
        image = entry.image.image
        if options.cell is None:
            rows = matrix_rows(list(chain.from_iterable(heads.values())), image)
        else:
            rows = word_rows(image, _cell_rows(heads, entry, runs, options.cell), "heat", joined=False)
        blocks.append(Block(entry.title, rows))
    return draw_image_grid(blocks, title=title, footnote=footnote, columns=columns)


def read_cells(image: Image.Image, cells: int) -> Regions:
    """Return the grid cells of a drawn scene as regions with the pixel features of scene extractors."""
    side = cells * _PATCH
    pixels = np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BOX), dtype=np.float32)
    patches = ((pixels - 240.0) / 128.0).reshape(cells, _PATCH, cells, _PATCH, 3).transpose(0, 2, 1, 3, 4)
    return Regions.from_grid(torch.from_numpy(patches.reshape(1, cells * cells, -1).copy()), cells, cells)


def _untrained(options: PositionOptions) -> tuple[list[WeightMatrices], str]:
    """Return the three models of the paper with random weights, on the cells of a scene."""
    run_options = ("extractor", "image_ids", "image_folder", "annotations", "features")
    reject_options(options, run_options, "is for runs, and none is named; untrained models read the cells of an image")
    path = None
    if options.image_files:
        reject_options(options, ("split",), "is for drawn scenes; leave it out with --image-files")
        path = _only(find_images(options.image_files))
    image = draw_scene_image(options.split, 0, 0).image if path is None else read_image(path)
    regions = read_cells(image, _CELLS)
    rows = []
    for name, title in _UNTRAINED.items():
        torch.manual_seed(options.seed)
        recipe = get_recipe(name)
        sizes = {"vocab_size": _ENOUGH_WORDS, "feature_dim": FEATURE_DIM}
        model = create_model(recipe.model, **sizes, **recipe.model_overrides).eval()
        rows.append(_matrices(f"{title} ({name}, not trained, seed {options.seed})", model, regions, options))
    return rows, f"The regions are the {_CELLS**2} cells of {'a drawn scene' if path is None else path.name}."


def _trained(options: PositionOptions) -> tuple[list[WeightMatrices], str]:
    reject_options(options, ("seed",), "is for untrained models; leave out the runs or the seed")
    runs = open_runs(options.runs, options)
    entry = _only(find_figure_images(runs, options).images)
    rows, as_cells = [], False
    for name, opened in runs.items():
        regions = entry.regions[name]
        if not opened.imported and isinstance(opened.data(), ScenesData):
            regions, as_cells = read_cells(entry.image.image, _CELLS), True
        rows.append(_matrices(run_label(name, opened), opened.model, regions, options))
    counts = sorted({row.matrices.shape[1] for row in rows})
    source = f"{' or '.join(map(str, counts))} regions of {entry.title}"
    return rows, f"{source}{', its grid cells' if as_cells else ''}."


def _only(choices: Sequence[T]) -> T:
    if len(choices) > 1:
        raise ConfigError(f"the figure shows one image, not {len(choices)}; name one")
    return choices[0]


def _matrices(name: str, model: Captioner, regions: Regions, options: PositionOptions) -> WeightMatrices:
    matrices = position_matrices(model, regions, options.layer, options.branch)
    weights = distance_weights(model, options.layer)
    where = f", branch {options.branch}" if len(weights) > 1 else ""
    return WeightMatrices(f"{name}{where}", matrices, _head_names(len(matrices), weights[options.branch - 1]))


def _heads(
    name: str, opened: CaptionerRun, entry: FigureImage, attention: GeneratedCaption, options: HeadOptions
) -> list[WeightMatrices]:
    """Return the self-attention of one run, a row for each selected branch."""
    weights = self_attention(opened.model, entry.regions[name], options.layer)
    distances = distance_weights(opened.model, options.layer)
    if options.branch is not None and not 1 <= options.branch <= len(weights):
        raise ConfigError(
            f"{opened.folder} has no branch {options.branch} in layer {options.layer}; choose from 1 to {len(weights)}"
        )
    remark = format_verdict(entry.image.check_caption(attention.text))
    caption = f"{attention.text}{f' ({remark})' if remark else ''}"
    rows = []
    for branch, (heads, scales) in enumerate(zip(weights, distances, strict=True), start=1):
        if options.branch in (None, branch):
            where = f", branch {branch}" if len(weights) > 1 else ""
            heading = f"{run_label(name, opened)}{where}: {caption}"
            rows.append(WeightMatrices(heading, heads, _head_names(len(heads), scales), _boxes(entry.regions[name])))
    return rows


def _head_names(count: int, weights: list[float] | None) -> list[str]:
    if weights is None:
        return [f"head {head}" for head in range(count)]
    return [f"{head}, w = {weight:.2f}".replace("-", "\u2212") for head, weight in enumerate(weights)]


def _boxes(regions: Regions) -> np.ndarray:
    """Return the boxes of the real regions of one image."""
    assert regions.boxes is not None  # find_figure_images returns regions with boxes
    return regions.boxes[0][regions.mask_or_ones[0]].cpu().numpy()


def _cell_rows(
    heads: Mapping[str, list[WeightMatrices]], entry: FigureImage, runs: Mapping[str, CaptionerRun], cell: int
) -> list[CaptionRow]:
    """Return the attention of one query region in each head."""
    rows = []
    for name, models in heads.items():
        boxes = _boxes(entry.regions[name])
        if not 1 <= cell <= len(boxes):
            raise ConfigError(
                f"{runs[name].folder} has no region {cell} in {entry.title}; choose from 1 to {len(boxes)}"
            )
        rows += [
            CaptionRow(model.heading, model.heads, model.matrices[:, cell - 1], boxes, marked=cell - 1)
            for model in models
        ]
    return rows
