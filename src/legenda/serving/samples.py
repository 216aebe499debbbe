"""Pictures to try in the served page: drawn scenes, photographs that are named, and some no model learnt from."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from legenda.datasets.annotations import read_annotations
from legenda.datasets.captions import KarpathyData
from legenda.datasets.scenes import FAMILIES, draw_scene, make_scenes
from legenda.errors import UserError
from legenda.serving.engine import Served
from legenda.visualization.report.images import find_photographs

_MOST = 6
"""Scenes, and photographs that nobody named."""


def sample_pictures(folder: Path, photographs: Sequence[Path], *, scenes: bool) -> dict[str, Path]:
    """Pictures to try, by name: six scenes, drawn into `folder`, where a model reads them, and the photographs.

    Of photographs of one name, the later ones are numbered.
    """
    samples: dict[str, Path] = {}
    for number, family in enumerate(FAMILIES * (_MOST // len(FAMILIES)) if scenes else ()):
        chosen = [scene for scene in make_scenes("served", 40) if scene.family == family]
        path = folder / f"scene-{number + 1}.png"
        draw_scene(chosen[number // len(FAMILIES)]).save(path)
        samples[path.name] = path
    for path in photographs:
        name, number = path.name, 2
        while name in samples:
            name, number = f"{path.stem}-{number}{path.suffix}", number + 1
        samples[name] = path
    return samples


def photographs_of(models: Collection[Served]) -> list[Path]:
    """Six photographs, but none of the training split, of the data of the first model that has some beside their
    annotations; none where no model was trained on photographs, or where they are gone.
    """
    for served in models:
        with suppress(UserError):  # an imported run has no data; annotations may have moved since the training
            data = served.run.data()
            if isinstance(data, KarpathyData):
                images = read_annotations(data.annotations, lists=data.lists)
                fresh = {image.id: image.file for image in images if image.split not in ("train", "restval")}
                if found := find_photographs(data, fresh, limit=_MOST):
                    return list(found.values())
    return []
