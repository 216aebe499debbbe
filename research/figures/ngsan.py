"""NG-SAN's figures: scores by epoch (2) and the geometric weight over relative geometry (3 and 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from drawing import Curve, SurfaceRow, draw_curves, draw_surface_plots
from encoders import depends_on_features, geometric_weights
from inputs import CurveOptions, SurfaceOptions, open_runs, run_label
from matplotlib.figure import Figure

from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.evaluation.runs import CaptionerRun, resolve_data
from legenda.hub import unique_run_names
from legenda.regions import Regions
from legenda.run_folder import HISTORY, read_config, split_model, stages_of
from legenda.training.checkpoint import read_history

_FIXED = (0.5, 1.0, 2.0)
_MAX_RATIO, _GRID_POINTS, _MIN_RATIO = 3.0, 61, 1e-3
"""The range of the plots; 0, whose logarithm is not finite, is replaced by the floor of Eq. 8."""


@dataclass(frozen=True)
class _History:
    """The scores of a run by epoch, its candidate names from short to long, and its settings without the seed."""

    names: tuple[str, str, str]
    settings: str
    scores: Mapping[int, float]


def ngsan_2(options: CurveOptions) -> Figure:
    """Draw a validation score by epoch (NG-SAN, Figure 2)."""
    folders = [inner for folder in options.runs for inner in _seeds(folder)]
    histories = [_read(name, folder, options.metric) for name, folder in unique_run_names(folders).items()]
    groups: dict[str, list[_History]] = {}
    for history in histories:
        groups.setdefault(history.settings, []).append(history)
    known = [name for group in groups.values() for name in set(group[0].names)]
    curves = [
        _curve(next(name for name in group[0].names if known.count(name) == 1 or name == group[0].names[-1]), group)
        for group in groups.values()
    ]
    return draw_curves(
        curves, score=f"{options.metric}, validation", title=f"NG-SAN, Figure 2: {options.metric} during training"
    )


def ngsan_3(options: SurfaceOptions) -> Figure:
    """Draw the weight phi over relative distances (NG-SAN, Figure 3)."""
    return _surfaces(options, "position")


def ngsan_4(options: SurfaceOptions) -> Figure:
    """Draw the weight phi over relative sizes (NG-SAN, Figure 4)."""
    return _surfaces(options, "size")


def surface_ratios(varied: Literal["position", "size"], grid: np.ndarray, fixed: float) -> np.ndarray:
    """dx, dy, dw, dh at all grid of a plot, `(Y * X, 4)`: two of them run over the grid, x fastest."""
    second, first = (axis.ravel() for axis in np.meshgrid(grid, grid, indexing="ij"))
    still = np.full_like(first, fixed)
    pairs = (first, second, still, still) if varied == "position" else (still, still, first, second)
    return np.stack(pairs, axis=1)


def _seeds(folder: Path) -> list[Path]:
    """A run folder, or those of the seeds in it."""
    inner = sorted(path.parent for path in folder.glob(f"seed*/{HISTORY}"))
    return [folder] if (folder / HISTORY).exists() or not inner else inner


def _read(name: str, folder: Path, metric: str) -> _History:
    if not (folder / HISTORY).is_file():
        raise DataError(f"{folder} has no {HISTORY}, which training writes; name the folder of a trained run")
    scores: dict[int, float] = {}
    known: set[str] = set()
    for record in read_history(folder):
        validation: Mapping[str, Any] = record.get("validation", {})
        known |= validation.keys()
        if isinstance(value := validation.get(metric), int | float):
            scores[int(record["epoch"])] = float(value)
    if not known:
        raise DataError(f"{folder / HISTORY} has no validation scores yet; train the run until its first validation")
    if not scores:
        raise DataError(f"{folder / HISTORY} holds no score {metric!r}; {did_you_mean(metric, known)}")
    config: dict[str, Any] = read_config(folder, "a run folder holds it; train the run again")
    model, _ = split_model(config, folder)
    stages = {name: {**stage, "seed": None} for name, stage in stages_of(config).items()}  # that of the data is kept
    settings = {**config, **stages, "environment": None}
    return _History((model, str(config.get("name", name)), name), json.dumps(settings, sort_keys=True), scores)


def _curve(name: str, group: Sequence[_History]) -> Curve:
    epochs = sorted(set.intersection(*(set(history.scores) for history in group)))
    if not epochs:
        raise DataError(f"the runs of {name} have no validated epoch in common; train them for equally many epochs")
    return Curve(name, epochs, np.array([[history.scores[epoch] for epoch in epochs] for history in group]))


def _surfaces(options: SurfaceOptions, varied: Literal["position", "size"]) -> Figure:
    if options.count < 1:
        raise ConfigError(f"--count is {options.count}; give at least 1")
    grid = np.linspace(0.0, _MAX_RATIO, _GRID_POINTS)
    rows = []
    for name, opened in open_runs(options.runs, options).items():
        rows += _rows(run_label(name, opened), opened, options, varied, np.maximum(grid, _MIN_RATIO))
    names = ("\u0394x", "\u0394y"), ("\u0394w", "\u0394h")
    axes, fixed = names if varied == "position" else names[::-1]
    return draw_surface_plots(
        rows,
        grid,
        axes_names=axes,
        fixed=[f"{fixed[0]} = {fixed[1]} = {value:g}" for value in _FIXED],
        measured="\u03c6",
        title=f"NG-SAN, Figure {3 if varied == 'position' else 4}: geometric weight \u03c6 by relative {varied}",
    )


def _rows(
    name: str, opened: CaptionerRun, options: SurfaceOptions, varied: Literal["position", "size"], grid: np.ndarray
) -> list[SurfaceRow]:
    """Return the rows of one run: for each branch the mean over heads, or the selected heads."""
    layer = _layer(opened, options.layer)
    contents, suffix = None, ""
    if depends_on_features(opened.model, layer):
        contents = _contents(opened, options)
        suffix = f", mean over the regions of {len(contents)} images"
    phi = np.stack(
        [geometric_weights(opened.model, layer, surface_ratios(varied, grid, still), contents) for still in _FIXED],
        axis=2,
    )
    phi = phi.reshape(*phi.shape[:3], len(grid), len(grid))
    heads = phi.shape[1]
    for head in options.heads:
        if not 0 <= head < heads:
            raise ConfigError(f"{opened.folder} has no head {head}; choose from 0 to {heads - 1}")
    rows = []
    for branch, surfaces in enumerate(phi, start=1):
        label = f"{name}, layer {layer}" + (f", branch {branch}" if len(phi) > 1 else "")
        selected = [(f"head {head}", surfaces[head]) for head in options.heads]
        selected = selected or [(f"mean of {heads} heads", surfaces.mean(axis=0))]
        rows += [SurfaceRow(f"{label}, {what}{suffix}", values) for what, values in selected]
    return rows


def _layer(opened: CaptionerRun, layer: int | None) -> int:
    layers = len(getattr(opened.model.encoder, "layers", ()))
    if layer is None and layers > 1:
        raise ConfigError(
            f"{opened.folder} has {layers} layers, and the paper's figure is of a model with one; choose one with "
            "--layer, or train such a model: legenda train scenes.ngsan.table4.content model.num_layers=1"
        )
    return 1 if layer is None else layer


def _contents(opened: CaptionerRun, options: SurfaceOptions) -> Regions:
    split = resolve_data(opened, options.annotations, options.features).split(options.split)
    return opened.model.encoder.with_default_boxes(split.read(np.arange(min(options.count, len(split)))))
