"""The pictures that a figure is of: those the user names, or some of a split of the runs' data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from legenda.datasets.captions import CaptionDataset
from legenda.errors import UserError, nearest
from legenda.evaluation.data import resolve_data
from legenda.evaluation.runs import CaptionerRun, load_captioner_run, unique_run_names
from legenda.extractors import find_images, read_image, run_extractor
from legenda.regions import Regions
from legenda.visualization.caption_attention import CaptionAttention, predict_with_attention
from legenda.visualization.paper_figures.options import CaptionOptions, PictureOptions
from legenda.visualization.report.images import ReportImage, no_verdict, resolve_images


@dataclass(frozen=True)
class FigureImage:
    """One picture to be shown, and the regions that each run reads of it, by the run's name."""

    title: str
    subject: ReportImage
    regions: Mapping[str, Regions]


@dataclass(frozen=True)
class FigureImages:
    """The pictures of a figure, and the sets of each run in which they lie at `positions`."""

    views: tuple[FigureImage, ...]
    sets: Mapping[str, CaptionDataset]
    positions: tuple[int, ...]

    def captions(self, runs: Mapping[str, CaptionerRun], options: CaptionOptions) -> dict[str, list[CaptionAttention]]:
        """What each run says of the pictures, in their order, and where each word looked."""
        found = {}
        for name, opened in runs.items():
            split = self.sets[name]
            looked = predict_with_attention(opened, split, options.beam_size, positions=self.positions)
            found[name] = [looked[split.ids[position]] for position in self.positions]
        return found


def open_runs(folders: Sequence[Path]) -> dict[str, CaptionerRun]:
    """The runs under short names; UserError where none is named."""
    if not folders:
        raise UserError("name at least one run folder, such as runs/demo/ngsan")
    return {name: load_captioner_run(folder) for name, folder in unique_run_names(folders).items()}


def run_label(name: str, opened: CaptionerRun) -> str:
    """A run's name with that of its model where they differ."""
    return name if opened.model.name in name else f"{name}, {opened.model.name}"


def format_verdict(verdict: tuple[bool | None, str]) -> str:
    """Whether a caption is true, where anybody can tell."""
    true, reason = verdict
    return "" if true is None else "true" if true else f"false: {reason}"


def check_supported(options: PictureOptions, names: Sequence[str], reason: str) -> None:
    """UserError where one of these options was given, and not as it is anyway."""
    usual = {field.name: field.default for field in fields(options)}
    for name in names:
        if getattr(options, name) != usual[name]:
            raise UserError(f"--{name.replace('_', '-')} {reason}")


def find_figure_images(runs: Mapping[str, CaptionerRun], options: PictureOptions, count: int = 1) -> FigureImages:
    """The pictures that the options name, or the first `count` images of the split.

    Raises UserError for pictures that are not there, for runs of other images than the first one's, and for regions
    that say not where they lie.
    """
    if count < 1:
        raise UserError(f"--count must be 1 or more, not {count}")
    if options.image_files:
        of_data = ("split", "image_ids", "image_folder", "annotations", "features")
        check_supported(options, of_data, "is for images of the runs' data; leave it out beside --image-files")
        paths = find_images(options.image_files)
        titles, positions = [path.name for path in paths], range(len(paths))
        sets = {name: _own_set(opened, paths, options.extractor) for name, opened in runs.items()}
        subjects = _own_subjects(paths)
    else:
        check_supported(options, ("extractor",), "is for pictures of your own; name some with --image-files")
        data = [resolve_data(opened, options.annotations, options.features) for opened in runs.values()]
        sets = {name: settings.split(options.split) for name, settings in zip(runs, data, strict=True)}
        titles = list(_identities(runs, sets, options.split))
        positions = _positions(titles, options, count)
        subjects = resolve_images(data[0], options.split, titles, positions, options.image_folder)
    sets = {name: _placed(opened, sets[name]) for name, opened in runs.items()}
    views = []
    for position in positions:
        regions = {name: split.read(np.array([position])) for name, split in sets.items()}
        first = next(iter(regions.values()))
        assert first.boxes is not None
        subject = subjects(position, first.boxes[0][first.mask_or_ones[0]].tolist())
        views.append(FigureImage(titles[position] + ("" if subject.found else " (not found)"), subject, regions))
    return FigureImages(tuple(views), sets, tuple(positions))


def _own_subjects(paths: Sequence[Path]) -> Callable[[int, Sequence[Sequence[float]]], ReportImage]:
    return lambda position, _: ReportImage(read_image(paths[position]), "", no_verdict)


def _own_set(opened: CaptionerRun, paths: Sequence[Path], given: str | None) -> CaptionDataset:
    """Pictures of the user's as a set without references, read by the run's extractor."""
    extractor = opened.resolve_extractor(given)
    regions = []
    for path in paths:
        ((features, boxes),) = run_extractor(extractor, [read_image(path)], [path])
        regions.append(Regions.from_numpy(features, boxes))
    ids = tuple(map(str, paths))
    return CaptionDataset(
        ids,
        ((),) * len(paths),
        lambda positions: Regions.stack([regions[position] for position in positions.tolist()]),
        "the pictures",
        extractor.name,
    )


def _identities(runs: Mapping[str, CaptionerRun], sets: Mapping[str, CaptionDataset], split: str) -> tuple[str, ...]:
    """Those of all runs' images, which must be the same."""
    first = next(iter(sets))
    for name, other in sets.items():
        if other.ids != sets[first].ids:
            raise UserError(
                f"{runs[name].folder} describes other images of {split} than {runs[first].folder}; draw runs of the "
                "same data together, or name pictures with --image-files"
            )
    return sets[first].ids


def _positions(ids: Sequence[str], options: PictureOptions, count: int) -> Sequence[int]:
    """Where the chosen images lie in the split."""
    if not options.image_ids:
        return range(min(count, len(ids)))
    places = {identity: position for position, identity in enumerate(ids)}
    for identity in options.image_ids:
        if identity not in places:
            raise UserError(f"there is no image {identity} in {options.split}; {_alike(identity, ids)}")
    return [places[identity] for identity in options.image_ids]


def _alike(identity: str, ids: Sequence[str]) -> str:
    told = nearest(identity, ids)
    return told if told.startswith("did") else f"they are named like {ids[0]}"


def _placed(opened: CaptionerRun, split: CaptionDataset) -> CaptionDataset:
    """The set with boxes, which the model's encoder may know where the features have none."""

    def read(positions: np.ndarray) -> Regions:
        regions = opened.model.encoder.place(split.read(positions))
        if regions.boxes is None:
            raise UserError(
                f"{opened.folder} reads features without boxes from {split.source}, so its attention has no place in a "
                "picture; use an extractor that gives boxes"
            )
        return regions

    return replace(split, read=read)
