"""MD-SAN's figures of the encoder: the matrices of Eq. 19 (3) and whom regions look at (4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from PIL import Image

from legenda.datasets.captions import ScenesData
from legenda.datasets.scenes import FEATURE_DIM
from legenda.errors import UserError
from legenda.evaluation.runs import CaptionerRun
from legenda.extractors import find_images, read_image
from legenda.models import Captioner, create_model
from legenda.regions import Regions
from legenda.visualization.caption_attention import CaptionAttention
from legenda.visualization.figures import (
    CaptionRow,
    ImageCaptions,
    ImageMatrices,
    WeightMatrices,
    draw_matrices,
    draw_word_rows,
)
from legenda.visualization.paper_figures.data import distance_weights, position_matrices, self_attention
from legenda.visualization.paper_figures.images import (
    FigureImage,
    check_supported,
    find_figure_images,
    format_verdict,
    open_runs,
    run_label,
)
from legenda.visualization.paper_figures.options import HeadOptions, PositionOptions
from legenda.visualization.report.images import draw_scene_image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

_CELLS, _PATCH = 7, 8
_UNTRAINED = {
    "mdsan_abspe": "absolute position embedding",
    "mdsan_relpe": "relative position embedding",
    "mdsan_dsa": "distance-sensitive attention",
}
_ENOUGH_WORDS = 10


def mdsan_3(options: PositionOptions) -> Figure:
    """The matrices Z of every head (MD-SAN, Figure 3 and Eq. 19)."""
    rows, of = _untrained(options) if not options.runs else _trained(options)
    return draw_matrices(
        [ImageMatrices("", None, rows)],
        title=f"MD-SAN, Figure 3: Z = softmax(E / E\u2070) of each head, layer {options.layer}",
        footnote=f"{of} Row i, column j: what positions make of what region i gives to region j; the brighter, the "
        "higher, each matrix in colours of its own, whose range stands below it.",
    )


def mdsan_4(options: HeadOptions) -> Figure:
    """Whom regions look at in each head (MD-SAN, Figure 4)."""
    runs = open_runs(options.runs)
    views = find_figure_images(runs, options, options.count)
    captions = views.captions(runs, options)
    rows = [
        {name: _heads(name, opened, view, captions[name][place], options) for name, opened in runs.items()}
        for place, view in enumerate(views.views)
    ]
    title = f"MD-SAN, Figure 4: self-attention of each head, encoder layer {options.layer}"
    if options.cell is not None:
        return draw_word_rows(
            [
                ImageCaptions(view.title, view.subject.image, _looks(found, view, runs, options.cell))
                for view, found in zip(views.views, rows, strict=True)
            ],
            title=f"{title}, looking from region {options.cell}",
            footnote="Yellow is where most of the head's attention lies (regions that overlap add up), and grey is "
            "where next to none does; the number is the largest weight of a region. The region that looks is outlined "
            "in blue. w below 0: near regions count more.",
            style="heat",
            joined=False,
        )
    return draw_matrices(
        [
            ImageMatrices(view.title, view.subject.image, list(chain.from_iterable(found.values())))
            for view, found in zip(views.views, rows, strict=True)
        ],
        title=title,
        footnote="Row i, column j: the weight that region i gives to region j; the brighter, the higher, each matrix "
        "in colours of its own, whose range stands below it. w below 0: near regions count more.",
    )


def read_cells(picture: Image.Image, cells: int) -> Regions:
    """The cells of a drawn scene as regions, each a patch of its pixels as wide as those of things."""
    side = cells * _PATCH
    pixels = np.asarray(picture.convert("RGB").resize((side, side), Image.Resampling.BOX), dtype=np.float32)
    patches = ((pixels - 240.0) / 128.0).reshape(cells, _PATCH, cells, _PATCH, 3).transpose(0, 2, 1, 3, 4)
    return Regions.from_grid(torch.from_numpy(patches.reshape(1, cells * cells, -1).copy()), cells, cells)


def _untrained(options: PositionOptions) -> tuple[list[WeightMatrices], str]:
    """The three models of the paper with new weights, on the cells of a scene."""
    needless = ("extractor", "image_ids", "image_folder", "annotations", "features")
    check_supported(options, needless, "is for runs, and none is named; untrained models read the cells of a picture")
    path = None
    if options.image_files:
        check_supported(options, ("split",), "is for drawn scenes; leave it out beside --image-files")
        path = _only(find_images(options.image_files))
    picture = draw_scene_image(options.split, 0, 0).image if path is None else read_image(path)
    regions = read_cells(picture, _CELLS)
    rows = []
    for name, told in _UNTRAINED.items():
        torch.manual_seed(options.seed)
        model = create_model(name, vocab_size=_ENOUGH_WORDS, feature_dim=FEATURE_DIM).eval()
        rows.append(_matrices(f"{told} ({name}, not trained, seed {options.seed})", model, regions, options))
    return rows, f"The regions are the {_CELLS**2} cells of {'a drawn scene' if path is None else path.name}."


def _trained(options: PositionOptions) -> tuple[list[WeightMatrices], str]:
    check_supported(options, ("seed",), "is for untrained models; leave out the runs or the seed")
    runs = open_runs(options.runs)
    view = _only(find_figure_images(runs, options).views)
    rows, cut = [], False
    for name, opened in runs.items():
        regions = view.regions[name]
        if not opened.imported and isinstance(opened.data(), ScenesData):
            regions, cut = read_cells(view.subject.image, _CELLS), True
        rows.append(_matrices(run_label(name, opened), opened.model, regions, options))
    counts = sorted({row.matrices.shape[1] for row in rows})
    of = f"{' or '.join(map(str, counts))} regions of {view.title}"
    return rows, f"{of}{', cut into cells' if cut else ''}."


def _only(found: Sequence[T]) -> T:
    if len(found) > 1:
        raise UserError(f"the figure is of one picture, not of {len(found)}; name one")
    return found[0]


def _matrices(name: str, model: Captioner, regions: Regions, options: PositionOptions) -> WeightMatrices:
    found = position_matrices(model, regions, options.layer, options.branch)
    weights = distance_weights(model, options.layer)
    where = f", branch {options.branch}" if len(weights) > 1 else ""
    return WeightMatrices(f"{name}{where}", found, _head_names(len(found), weights[options.branch - 1]))


def _heads(
    name: str, opened: CaptionerRun, view: FigureImage, looked: CaptionAttention, options: HeadOptions
) -> list[WeightMatrices]:
    """One run's self-attention, a row for each branch that is asked for."""
    weights = self_attention(opened.model, view.regions[name], options.layer)
    distances = distance_weights(opened.model, options.layer)
    if options.branch is not None and not 1 <= options.branch <= len(weights):
        raise UserError(
            f"{opened.folder} has no branch {options.branch} in layer {options.layer}; choose from 1 to {len(weights)}"
        )
    remark = format_verdict(view.subject.check_caption(looked.text))
    caption = f"{' '.join(looked.words)}{f' ({remark})' if remark else ''}"
    rows = []
    for branch, (heads, scales) in enumerate(zip(weights, distances, strict=True), start=1):
        if options.branch in (None, branch):
            where = f", branch {branch}" if len(weights) > 1 else ""
            heading = f"{run_label(name, opened)}{where}: {caption}"
            rows.append(WeightMatrices(heading, heads, _head_names(len(heads), scales), _boxes(view.regions[name])))
    return rows


def _head_names(count: int, weights: list[float] | None) -> list[str]:
    if weights is None:
        return [f"head {head}" for head in range(count)]
    return [f"{head}, w = {weight:.2f}".replace("-", "\u2212") for head, weight in enumerate(weights)]


def _boxes(regions: Regions) -> np.ndarray:
    """Those of the real regions of one picture."""
    assert regions.boxes is not None  # all regions of a view have boxes
    return regions.boxes[0][regions.mask_or_ones[0]].cpu().numpy()


def _looks(
    found: Mapping[str, list[WeightMatrices]], view: FigureImage, runs: Mapping[str, CaptionerRun], cell: int
) -> list[CaptionRow]:
    """Where one region looks in each head."""
    rows = []
    for name, models in found.items():
        boxes = _boxes(view.regions[name])
        if not 1 <= cell <= len(boxes):
            raise UserError(
                f"{runs[name].folder} reads no region {cell} of {view.title}; choose from 1 to {len(boxes)}"
            )
        rows += [
            CaptionRow(model.heading, model.heads, model.matrices[:, cell - 1], boxes, marked=cell - 1)
            for model in models
        ]
    return rows
