"""Extractors by name: `hf:MODEL`, `torchvision:MODEL`, `bottom-up:WEIGHTS`, `scenes`, and those that users register."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.errors import UserError
from legenda.plugins import Registry

Extract = Callable[[list[Image.Image]], list[tuple[np.ndarray, np.ndarray | None]]]


@dataclass(frozen=True)
class Extractor:
    """What turns images into regions.

    name: stored with the features; extract: RGB images to, for each, features (n, D) and boxes (n, 4) or None,
    boxes as x1 y1 x2 y2 in 0..1 of the image.
    """

    name: str
    extract: Extract


EXTRACTORS: Registry[Callable[..., Extractor]] = Registry(
    "extractor",
    {
        "hf": "legenda.extractors.registry:load_hf_extractor",
        "torchvision": "legenda.extractors.registry:load_torchvision_extractor",
        "bottom-up": "legenda.extractors.registry:load_bottom_up_extractor",
        "scenes": "legenda.extractors.registry:load_scenes_extractor",
    },
)
"""Extractors by the kind before the colon of their names: a function of what follows the colon and of `half`, whether
to compute in half precision, that returns an Extractor. The name of this is stored with the features and must load it
again, unless it holds a digest after an "@"."""


def is_registered(name: str) -> bool:
    """Return whether a name, as it is given or as it is stored, is that of a registered extractor, not of a file."""
    return _split(name)[0] in EXTRACTORS


def needs_no_file(name: str) -> bool:
    """Return whether a stored extractor's name alone is enough to load it again."""
    return is_registered(name) and "@" not in name.removesuffix("@half")


def load_by_name(name: str, *, half: bool = False) -> Extractor:
    """Return the extractor of that name.

    hf:MODEL           a backbone or DETR of transformers, on Hugging Face's hub or in a folder;
    torchvision:MODEL  one of its Faster R-CNNs, with its published weights, or with :FILE those of a file;
    bottom-up:FILE     Bottom-Up attention's detector with its public PyTorch weights;
    scenes             for images of the embedded scenes.

    half: compute in half precision; the name that is stored with the features ends in "@half" then. Raises UserError
    when the extra `vision` is not installed, or the model or its weights cannot be loaded.
    """
    kind, model = _split(name.removesuffix("@half"))
    return EXTRACTORS.get(kind)(model, half=half or name.endswith("@half"))


def load_bottom_up_extractor(weights: str, *, half: bool) -> Extractor:
    """Return Bottom-Up attention's detector with the weights of a file."""
    _check_installed()
    from legenda.extractors.bottom_up import extract_regions, load_bottom_up

    if not weights:
        raise UserError("bottom-up needs its weights; name the file, as in bottom-up:weights.pth")
    detector, digest = load_bottom_up(Path(weights), half=half)
    return Extractor(f"bottom-up@{digest}{_mark(half)}", partial(extract_regions, detector))


def load_torchvision_extractor(model: str, *, half: bool) -> Extractor:
    """Return a detector of torchvision, MODEL or MODEL:FILE."""
    _check_installed()
    from legenda.extractors.torchvision_backend import load_torchvision

    model, _, weights = model.partition(":")
    name = f"torchvision:{model}@{_digest([Path(weights)])}" if weights else f"torchvision:{model}"
    return Extractor(name + _mark(half), load_torchvision(model, Path(weights) if weights else None, half=half))


def load_hf_extractor(model: str, *, half: bool) -> Extractor:
    """Return a backbone or DETR of transformers, on the hub or in a folder."""
    _check_installed()
    from legenda.extractors.hf_backend import load_hf

    extract = load_hf(model, half=half)
    folder = Path(model)
    files = sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.json")) if folder.is_dir() else []
    name = f"hf:{folder.resolve().name}@{_digest(files)}" if files else f"hf:{model}"
    return Extractor(name + _mark(half), extract)


def load_scenes_extractor(model: str, *, half: bool) -> Extractor:
    """Return the extractor for images of the embedded scenes."""
    from legenda.datasets.scenes import extract

    if model or half:
        raise UserError("the extractor scenes has no models and no half precision; name scenes alone")
    return Extractor("scenes", extract)


def _mark(half: bool) -> str:
    """Return the end of the name of an extractor in half precision."""
    return "@half" if half else ""


def _split(name: str) -> tuple[str, str]:
    """The kind and what stands behind its colon."""
    kind, _, model = name.partition(":")
    return kind.partition("@")[0], model


def _check_installed() -> None:
    try:
        import torchvision  # noqa: F401
    except ImportError as error:
        raise UserError("extractors with names need the extra vision; install legenda[vision]") from error


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UserError(f"{file} cannot be read ({error.strerror or error}); name a file of weights") from error
    return digest.hexdigest()[:8]
