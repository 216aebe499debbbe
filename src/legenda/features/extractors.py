"""Extractors, functions from images to regions: their names, their identity, and images that they do not know.

Names are `hf:MODEL`, `timm:MODEL`, `torchvision:MODEL`, `bottom-up:FILE`, `scenes`, registered ones and Python files.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from legenda.compute import AUTO, ComputeOptions, RunOptions
from legenda.errors import ConfigError, DataError, import_extra
from legenda.images.extractor import UNNAMED, Extractor, ExtractorIdentity, ImageRegions, find_mismatch
from legenda.io import read_bytes, verified
from legenda.registry import Registry, run_source

_LOG = logging.getLogger(__name__)


_MAX_FIXED_REGIONS = 300
"""The number of boxes that Bottom-Up attention's detector proposes."""

EXTRACTORS: Registry[Callable[..., Extractor]] = Registry(
    "extractor",
    {
        "hf": "legenda.extractors.hf:load_hf",
        "timm": "legenda.extractors.backbone:load_timm",
        "torchvision": "legenda.extractors.torchvision:load_torchvision",
        "bottom-up": "legenda.extractors.bottom_up:load_bottom_up",
        "scenes": "legenda.data.scenes.pixels:load_scenes",
        "photo": "legenda.photo.regions:load_photo",
        "pixels": "legenda.extractors.backbone:load_pixels",
    },
)
"""Functions that return an Extractor, by the part of the name before the colon.

Each takes the part after the colon and `compute`, the `ComputeOptions` of which it uses the device. The identity of the
Extractor is stored with the features and must load it again, unless it has a digest.
"""
_DOWNLOADING, _NEED_TORCHVISION = ("hf", "timm", "torchvision"), ("hf", "torchvision", "bottom-up")
_WITHOUT_MODELS = ("scenes", "photo")


def is_registered(name: str) -> bool:
    """Return whether a name as typed, such as hf:MODEL, is that of a registered extractor, not a file."""
    return ExtractorIdentity.read(name, "the extractor").name in EXTRACTORS


def needs_no_file(identity: ExtractorIdentity) -> bool:
    """Return whether the extractor can be loaded again from the identity that is stored with its features."""
    return identity.name in EXTRACTORS and not identity.digest


def load_extractor(
    name: str | Path | ExtractorIdentity,
    compute: ComputeOptions = AUTO,
    num_regions: int | None = None,
    *,
    allow_download: bool = True,
) -> Extractor:
    """Load a registered extractor by its name or its identity, or the extractor of a Python file.

    hf:MODEL           a vision backbone or DETR of transformers, from Hugging Face's hub or a folder;
    timm:MODEL         the grid of a vision backbone of timm;
    torchvision:MODEL  a Faster R-CNN of torchvision, or the 7 x 7 grid of a ResNet or ResNeXt, with its published
                       weights, or, followed by :FILE, those of a file;
    bottom-up:FILE     the detector of Bottom-Up attention with its public PyTorch weights;
    scenes             for images of the embedded scenes;
    photo              the extractor of the packaged model, for photographs; always on the CPU;
    pixels:SIDE        the pixels of a square image, for models with a backbone of their own;
    FILE               a Python file that defines
                       extract(images: list[PIL.Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]].

    compute: device and precision of a registered extractor's model. num_regions: a fixed number, for detectors; None
    for the number in the identity, or 10 to 100 by Bottom-Up attention's rule. The identity of the extractor holds
    precision and number where they are not the defaults, and the first 8 hex digits of a SHA-256 digest of its files.
    allow_download: whether hf and torchvision may fetch what this machine does not have.
    Raises ConfigError or DataError when the extractor cannot be loaded.
    """
    if not isinstance(name, ExtractorIdentity):
        name = absolute_name(str(name))
    again = partial(load_extractor, name, compute, num_regions, allow_download=allow_download)
    return replace(_load(name, compute, num_regions, allow_download=allow_download), loader=again)


def _load(
    name: str | ExtractorIdentity, compute: ComputeOptions, num_regions: int | None, *, allow_download: bool
) -> Extractor:
    identity = ExtractorIdentity.read(name, "the extractor")
    backend = identity.name
    if backend in EXTRACTORS:
        compute = compute if identity.precision == "float32" else compute.replace(precision=identity.precision)
        offline = {"allow_download": False} if backend in _DOWNLOADING and not allow_download else {}
        if backend in _WITHOUT_MODELS and (identity.model or compute.precision != "float32"):
            raise ConfigError(f'the extractor {backend} has no models and no --precision; write "{backend}" alone')
        if backend in _NEED_TORCHVISION:
            import_extra("torchvision", "vision")
        extractor = EXTRACTORS.get(backend)(identity.model, compute=compute, **offline)
        count = identity.regions if num_regions is None else num_regions
        if count is not None:
            extractor = _with_num_regions(extractor, count)
        return extractor if compute.precision == "float32" else _with_autocast(extractor, compute)
    if compute.precision != "float32":
        raise ConfigError("--precision is for registered extractors, such as hf:MODEL; set it in your Python file")
    if num_regions is not None:
        raise ConfigError("--num-regions is for registered detectors, such as bottom-up:FILE; set it in your file")
    return _load_file(Path(str(name)))


def resolve_extractor(recorded: ExtractorIdentity, name: str | None, folder: Path, options: RunOptions) -> Extractor:
    """Return the extractor of a model's features, on the device of `options`, in the precision of the training.

    recorded: the identity that the model's folder holds. name: the name or the file of an extractor; None where the
    identity loads it. Raise LegendaError where the extractor is missing or is not the recorded one. Nothing is fetched
    for an identity unless the options allow downloads.
    """
    compute, count = ComputeOptions(device=options.device), None
    if recorded == UNNAMED:
        if name is None:
            raise ConfigError(
                f"{folder} does not name the extractor of the features it was trained on; name it, as in "
                "--extractor my_extractor.py"
            )
        return load_extractor(name, compute)
    if recorded.frames is not None:
        raise ConfigError(f"{folder} captions videos, by features of their frames, and takes no images")
    if name is None and not needs_no_file(recorded):
        file = f"{recorded.name}:FILE" if recorded.name in EXTRACTORS else f"{recorded.name}.py"
        raise ConfigError(
            f"{folder} was trained on features of the extractor {recorded}; name its file, as in --extractor {file}"
        )
    if name is None:
        extractor = load_extractor(recorded, compute, allow_download=options.allow_download)
    else:
        if recorded.name in EXTRACTORS and ExtractorIdentity.read(name, "--extractor").name == recorded.name:
            compute, count = compute.replace(precision=recorded.precision), recorded.regions
        extractor = load_extractor(name, compute, count)
    difference = find_mismatch(recorded, extractor)
    if difference is not None:
        message = f"{folder} was trained on features of {recorded}, but {name or recorded} {difference}"
        refuse_extractor(message, ignore=options.ignore_extractor_mismatch)
    return extractor


def refuse_extractor(message: str, *, ignore: bool) -> None:
    """Raise ConfigError about features of another extractor than that of the training, or warn of them."""
    if not ignore:
        raise ConfigError(f"{message}; use the extractor of the training, or add --ignore-extractor-mismatch")
    _LOG.warning("%s; the results may be meaningless", message)


def absolute_name(name: str) -> str:
    """Return the name with the absolute path of its file or folder, for processes in other folders."""
    if not is_registered(name):
        return str(Path(name).resolve()) if Path(name).exists() else name
    backend, colon, file = name.rpartition(":")
    return f"{backend}{colon}{Path(file).resolve()}" if colon and file and Path(file).exists() else name


def _load_file(path: Path) -> Extractor:
    known = ", ".join(sorted(EXTRACTORS))
    source = read_bytes(path, f"name a Python file with a function extract(images), or one of: {known}")
    digest = hashlib.sha256(source).hexdigest()[:8]
    module = run_source(path, source, f"legenda_extractor_{path.stem}-{digest}")
    extract = getattr(module, "extract", None)
    if not callable(extract):
        raise DataError(f"{path} defines no function extract(images); add it")
    version = str(getattr(module, "VERSION", ""))
    return Extractor(ExtractorIdentity(name=path.stem, digest=digest, version=version), extract)


def _with_autocast(extractor: Extractor, compute: ComputeOptions) -> Extractor:
    """Return the extractor in another precision."""

    def extract(images: list[Image.Image]) -> list[ImageRegions]:
        with compute.autocast():
            return extractor.extract(images)

    return replace(extractor, identity=extractor.identity.replace(precision=compute.precision), extract=extract)


def _with_num_regions(extractor: Extractor, count: int) -> Extractor:
    """Return the extractor with a fixed number of regions."""
    if extractor.with_num_regions is None:
        raise ConfigError(
            f"the extractor {extractor.name} has no choice of {count} regions, as a grid has not; leave out "
            "--num-regions, or name a detector"
        )
    if not 1 <= count <= _MAX_FIXED_REGIONS:
        raise ConfigError(f"--num-regions must lie between 1 and {_MAX_FIXED_REGIONS}, not {count}")
    identity = extractor.identity.replace(regions=count)
    return replace(extractor, identity=identity, extract=extractor.with_num_regions(count))


def digest_of(files: Sequence[Path]) -> str:
    """Return the first 8 hex digits of a digest of files, "" for none; raise DataError for one that cannot be read."""
    digest = hashlib.sha256()
    for file in files:
        with verified(partial(file.open, "rb"), file, "name a file of weights") as stream:
            hashlib.file_digest(stream, lambda: digest)
    return digest.hexdigest()[:8] if files else ""
