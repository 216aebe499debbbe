"""What a figure takes: its options, the runs, and images from files or from a split of the runs' data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from legenda.compute import RunOptions
from legenda.config import Config
from legenda.data.captions import CaptionDataset
from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.evaluation.evaluate import find_changed
from legenda.evaluation.runs import CaptionerRun, load_captioner_run, resolve_data
from legenda.extractors import run_extractor
from legenda.hub import unique_run_names
from legenda.images import find_images, read_image
from legenda.pipeline import GeneratedCaption
from legenda.regions import Regions
from legenda.report.images import ReportImage, resolve_images
from legenda.report.report import common_split, predict_with_attention

Runs = tyro.conf.Positional[tuple[Path, ...]]


def reject_options(options: Config, names: Iterable[str], reason: str) -> None:
    """Raise ConfigError where one of the named options is not its default; `reason` ends the message."""
    for name in find_changed(options, names):
        raise ConfigError(f"--{name.replace('_', '-')} {reason}")


@dataclass(frozen=True)
class CurveOptions:
    """Draw a score of the validation by epoch, a line for each system (NG-SAN, Figure 2: N-SAN against SAN).

    It reads the metrics.jsonl of run folders and no model. Runs that differ only in the training seed are one
    system: their mean with a band from the lowest to the highest. A folder of `legenda train --seeds`, with the
    subfolders seed0, seed1 and so on, is replaced by these.
    """

    runs: Runs
    """Run folders."""
    metric: str = "CIDEr-D"
    """A validation metric."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure, as in ngsan.2.png."""


class SurfaceOptions(RunOptions):
    """Draw the geometric weight phi of a trained geometry model (NG-SAN, appendix: Figures 3 and 4).

    ngsan.3 shows it over the relative distances dx and dy, with the relative sizes dw = dh fixed at 0.5, 1 and 2;
    ngsan.4 vice versa. As in the paper phi is that of content-independent geometry in a one-layer model, such
    as `legenda train scenes.ngsan.table4.content model.num_layers=1` gives. For several layers name one; for query- or
    key-dependent geometry (gsan, ngsan) phi is the mean over the regions of images of the run's data.
    """

    runs: Runs
    """Run folders; a row each."""
    layer: int | None = None
    """The layer of the encoder, counted from 1; required for several layers."""
    heads: tuple[int, ...] = ()
    """Heads to draw, counted from 0, a row each; by default their mean."""
    split: Literal["train", "val", "test"] = "test"
    """The split of the images over whose regions the mean is taken."""
    count: int = 100
    """The number of images."""
    annotations: Path | None = None
    """Annotations to use instead of the run's; required for imported models."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure, as in ngsan.2.png."""


class ImageOptions(RunOptions):
    """Common options of figures with images."""

    runs: Runs
    """Run folders; a row each."""
    image_files: tuple[str, ...] = ()
    """Image files, folders or patterns; by default images of the runs' data."""
    extractor: str | None = None
    """The extractor for image files, as for legenda caption; not needed if it is built in."""
    split: Literal["train", "val", "test"] = "test"
    """The split of the runs' data from which images are taken."""
    image_ids: tuple[str, ...] = ()
    """Ids of images of the split; by default the first ones."""
    image_folder: Path | None = None
    """The folder of the photographs, if they are neither next to the annotations nor one folder below."""
    annotations: Path | None = None
    """Annotations to use instead of the runs'; required for imported models."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure, as in ngsan.2.png."""


class CaptionOptions(ImageOptions):
    """Common options of figures with captions."""

    count: int = 2
    """The number of images of the split, if none is named."""
    beam_size: int = 3
    """Hypotheses kept by beam search."""


class GateOptions(CaptionOptions):
    """Draw captions word by word with the attention over the image (AoANet, Figure 8).

    Two or more models of AoANet's family, one with and one without attention on attention in its decoder, such
    as those of scenes.aoanet.table4.aoa and scenes.aoanet.table4.base. The image is dark where the attention is small;
    the region with the largest weight is red and labeled with it.
    """


class RegionOptions(CaptionOptions):
    """Draw captions word by word with the regions of the image (X-LAN, Figure 5).

    One model or more, of which one has X-Linear attention in its decoder, such as xlan and updown. The region with
    the largest weight is red; the smaller a weight, the darker its region.
    """


class HeatOptions(CaptionOptions):
    """Draw a heatmap of the attention of each word of a caption (MD-SAN, Figure 7).

    One model or more, of which one is of MD-SAN's family, such as mdsan. The weights are those of
    the last decoder layer, the mean over its heads.
    """


class PositionOptions(ImageOptions):
    """Draw the effect of positions on the scores of each head: Z = softmax(E / E0), Eq. 19 (MD-SAN, Figure 3).

    A row for each model, such as those of mdsan.table7.abspe, .relpe and .dsa; without any, these three with random
    weights. The regions are those of one image; without runs and --image-files, of the first scene of the split. Models
    of scenes, and untrained ones, read 49 grid cells of it, each as a patch of pixels.
    """

    runs: Runs = ()
    """Run folders of models with positions in their encoder; a row each."""
    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int = 1
    """The branch of that layer, counted from 1."""
    seed: int = 0
    """The seed of the weights of untrained models."""


class HeadOptions(CaptionOptions):
    """Draw the self-attention of each head of an encoder with the captions (MD-SAN, Figure 4).

    A row for each model and branch, such as those of mdsan.table7.plain and mdsan.table7.dsa. With --cell it draws
    the attention of one query region as a heatmap over the image.
    """

    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int | None = None
    """The branch of that layer, counted from 1; by default all."""
    cell: int | None = None
    """A query region, or a grid cell, counted from 1 row by row."""
    count: int = 1
    """The number of images of the split, if none is named."""


@dataclass(frozen=True)
class FigureImage:
    """One image with the regions that each run reads, by the name of the run."""

    title: str
    image: ReportImage
    regions: Mapping[str, Regions]


@dataclass(frozen=True)
class FigureImages:
    """The images of a figure, and the data set of each run, which holds them at `positions`."""

    images: tuple[FigureImage, ...]
    datasets: Mapping[str, CaptionDataset]
    positions: tuple[int, ...]

    def captions(self, runs: Mapping[str, CaptionerRun], options: CaptionOptions) -> dict[str, list[GeneratedCaption]]:
        """Return the caption of each image with its attention, by run, in the order of the images."""
        captions = {}
        for name, opened in runs.items():
            split = self.datasets[name]
            by_id = predict_with_attention(opened, split, {"beam_size": options.beam_size}, positions=self.positions)
            captions[name] = [by_id[split.ids[position]] for position in self.positions]
        return captions


def open_runs(folders: Sequence[Path], compute: RunOptions) -> dict[str, CaptionerRun]:
    """Load the runs, with unique short names; raise ConfigError for none."""
    return {name: load_captioner_run(folder, compute) for name, folder in unique_run_names(folders).items()}


def run_label(name: str, opened: CaptionerRun) -> str:
    """Return the name of a run, with that of its model where they differ."""
    return name if opened.model.name in name else f"{name}, {opened.model.name}"


def format_verdict(verdict: tuple[bool | None, str]) -> str:
    """Return the verdict on a caption as text; empty where it is unknown."""
    true, reason = verdict
    return "" if true is None else "true" if true else f"false: {reason}"


def find_figure_images(runs: Mapping[str, CaptionerRun], options: ImageOptions, count: int = 1) -> FigureImages:
    """Return the image files that the options name, or the first `count` images of the split.

    Raise an error for missing files, for runs with different images, and for regions without boxes.
    """
    if options.image_files:
        data_options = ("split", "image_ids", "image_folder", "annotations", "features")
        reject_options(options, data_options, "selects images of the runs' data; leave it out with --image-files")
        paths = find_images(options.image_files)
        titles, positions = [path.name for path in paths], range(len(paths))
        datasets = {name: _file_dataset(opened, paths, options.extractor) for name, opened in runs.items()}

        def open_image(position: int, boxes: Sequence[Sequence[float]]) -> ReportImage:  # noqa: ARG001
            return ReportImage(read_image(paths[position]))

    else:
        reject_options(options, ("extractor",), "is for image files; name some with --image-files")
        data = [resolve_data(opened, options.annotations, options.features) for opened in runs.values()]
        datasets = {name: settings.split(options.split) for name, settings in zip(runs, data, strict=True)}
        remedy = "draw runs of the same data together, or name images with --image-files"
        titles = common_split(runs, datasets, options.split, "images", remedy).ids
        positions = _positions(titles, options, count)
        open_image = resolve_images(data[0], options.split, titles, positions, options.image_folder)
    datasets = {name: _with_boxes(opened, datasets[name]) for name, opened in runs.items()}
    images = []
    for position in positions:
        regions = {name: split.read(np.array([position])) for name, split in datasets.items()}
        first = next(iter(regions.values()))
        assert first.boxes is not None
        image = open_image(position, first.boxes[0][first.mask_or_ones[0]].tolist())
        images.append(FigureImage(titles[position] + (" (not found)" if image.missing else ""), image, regions))
    return FigureImages(tuple(images), datasets, tuple(positions))


def _file_dataset(opened: CaptionerRun, paths: Sequence[Path], extractor_name: str | None) -> CaptionDataset:
    """Return image files as a data set without references, with regions of the run's extractor."""
    extractor = opened.resolve_extractor(extractor_name)
    regions = []
    for path in paths:
        ((features, boxes),) = run_extractor(extractor, [read_image(path)], [path])
        regions.append(Regions.from_numpy(features, boxes))
    ids = tuple(map(str, paths))
    return CaptionDataset(
        ids,
        ((),) * len(paths),
        lambda positions: Regions.stack([regions[position] for position in positions.tolist()]),
        "the image files",
        extractor.name,
    )


def _positions(ids: Sequence[str], options: ImageOptions, count: int) -> Sequence[int]:
    """Return the positions of the selected images in the split."""
    if not options.image_ids:
        return range(min(count, len(ids)))
    positions = {image_id: position for position, image_id in enumerate(ids)}
    for image_id in options.image_ids:
        if image_id not in positions:
            raise ConfigError(f"there is no image {image_id} in {options.split}; {did_you_mean(image_id, ids)}")
    return [positions[image_id] for image_id in options.image_ids]


def _with_boxes(opened: CaptionerRun, split: CaptionDataset) -> CaptionDataset:
    """Return the data set with boxes, which the encoder may add where the features have none."""

    def read(positions: np.ndarray) -> Regions:
        regions = opened.model.encoder.with_default_boxes(split.read(positions))
        if regions.boxes is None:
            raise DataError(
                f"{opened.folder} reads features without boxes from {split.source}, so its attention cannot be drawn; "
                "use an extractor that returns boxes"
            )
        return regions

    return replace(split, read=read)
