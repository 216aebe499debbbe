"""Sample images of the served page: drawn scenes, given photographs, and held-out photographs of the data."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from legenda.data.captions import KarpathyData
from legenda.data.scenes import FAMILIES, draw_scene, make_scenes
from legenda.errors import LegendaError
from legenda.pipeline import CaptionsModel
from legenda.report.images import find_photographs, packaged_photographs

_MAX_SAMPLES = 6
"""Number of scenes, and of photographs chosen by default."""


def sample_images(folder: Path, photographs: Sequence[Path], *, scenes: bool) -> dict[str, Path]:
    """Return the sample images by name: the photographs, and six scenes, drawn into `folder`, if `scenes` is set.

    Photographs with the same name are numbered.
    """
    samples: dict[str, Path] = {}
    for path in photographs:
        name, number = path.name, 2
        while name in samples:
            name, number = f"{path.stem}-{number}{path.suffix}", number + 1
        samples[name] = path
    for number, family in enumerate(FAMILIES * (_MAX_SAMPLES // len(FAMILIES)) if scenes else ()):
        candidates = [scene for scene in make_scenes("served", 40) if scene.family == family]
        path = folder / f"scene-{number + 1}.png"
        draw_scene(candidates[number // len(FAMILIES)]).save(path)
        samples[path.name] = path
    return samples


def default_photographs(runs: Collection[CaptionsModel]) -> list[Path]:
    """Return sample photographs: up to six outside the training split, of the first run whose photographs are found
    next to its annotations, and those of the package.
    """
    for run in runs:
        with suppress(LegendaError):  # an imported run has no data; annotations may have moved since the training
            data = run.data()
            if isinstance(data, KarpathyData):
                held_out = {
                    image.id: image.file for image in data.read_images() if image.split not in ("train", "restval")
                }
                if photographs := find_photographs(data, held_out, limit=_MAX_SAMPLES):
                    return [*photographs.values(), *packaged_photographs()]
    return packaged_photographs()
