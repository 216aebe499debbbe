"""The images of a figure: image files, or images of a split of the runs' data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from legenda.compute import ComputeOptions
from legenda.data.captions import CaptionDataset
from legenda.errors import ConfigError, DataError, did_you_mean
from legenda.evaluation.data import resolve_data
from legenda.evaluation.runs import CaptionerRun, load_captioner_run, unique_run_names
from legenda.evaluation.tasks import reject_options
from legenda.extractors import find_images, read_image, run_extractor
from legenda.pipeline import GeneratedCaption
from legenda.regions import Regions
from legenda.report.build import common_split
from legenda.report.caption_attention import predict_with_attention
from legenda.report.images import ReportImage, no_verdict, resolve_images
from legenda.report.paper_figures.options import CaptionOptions, ImageOptions


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
        found = {}
        for name, opened in runs.items():
            split = self.datasets[name]
            by_id = predict_with_attention(opened, split, options.beam_size, positions=self.positions)
            found[name] = [by_id[split.ids[position]] for position in self.positions]
        return found


def open_runs(folders: Sequence[Path], compute: ComputeOptions) -> dict[str, CaptionerRun]:
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
        datasets = {name: _file_dataset(opened, paths, options.extractor, options) for name, opened in runs.items()}

        def open_image(position: int, boxes: Sequence[Sequence[float]]) -> ReportImage:  # noqa: ARG001
            return ReportImage(read_image(paths[position]), "", no_verdict)

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
        images.append(FigureImage(titles[position] + ("" if image.found else " (not found)"), image, regions))
    return FigureImages(tuple(images), datasets, tuple(positions))


def _file_dataset(
    opened: CaptionerRun, paths: Sequence[Path], extractor_name: str | None, compute: ComputeOptions
) -> CaptionDataset:
    """Return image files as a data set without references, with regions of the run's extractor."""
    extractor = opened.resolve_extractor(extractor_name, compute)
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
