"""Extractors by name: `hf:MODEL`, `torchvision:MODEL`, `bottom-up:WEIGHTS`, `scenes`, registered ones, Python files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from legenda.compute import AUTO, ComputeOptions, Precision
from legenda.errors import ConfigError, DataError, import_extra
from legenda.extractors.base import Extractor, ImageRegions
from legenda.models.location import ASSETS, PACKAGED
from legenda.plugins import Registry, run_source

EXTRACTORS: Registry[Callable[..., Extractor]] = Registry(
    "extractor",
    {
        "hf": "legenda.extractors.registry:load_hf_extractor",
        "torchvision": "legenda.extractors.registry:load_torchvision_extractor",
        "bottom-up": "legenda.extractors.registry:load_bottom_up_extractor",
        "scenes": "legenda.extractors.registry:load_scenes_extractor",
        "photo": "legenda.extractors.registry:load_photo_extractor",
    },
)
"""Functions that return an Extractor, by the part of the name before the colon.

Each takes the part after the colon and `compute`, the `ComputeOptions` of which it uses the device. The name of the
Extractor is stored with the features and must load it again, unless it holds a digest after an "@".
"""
_DOWNLOADING = ("hf", "torchvision")


def is_registered(name: str) -> bool:
    """Return whether the name, as typed or as stored with features, is that of a registered extractor, not a file."""
    return _split(name)[0] in EXTRACTORS


def needs_no_file(name: str) -> bool:
    """Return whether the extractor can be loaded again from the name that is stored with its features."""
    return is_registered(name) and "@" not in _split_precision(name)[0]


def load_extractor(name: str | Path, compute: ComputeOptions = AUTO, *, allow_download: bool = True) -> Extractor:
    """Load a registered extractor by name, or the extractor of a Python file.

    hf:MODEL           a vision backbone or DETR of transformers, from Hugging Face's hub or a folder;
    torchvision:MODEL  a Faster R-CNN of torchvision with its published weights, or, followed by :FILE, those of a file;
    bottom-up:FILE     the detector of Bottom-Up attention with its public PyTorch weights;
    scenes             for images of the embedded scenes;
    photo              for photographs: that of the packaged model, always on the CPU;
    FILE               a Python file that defines
                       extract(images: list[PIL.Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]].

    compute: of a registered extractor's model. The name stored with the features ends in "@bf16" or "@fp16" where that
    is the precision, and has the first 8 hex digits of a SHA-256 digest of weights in files and of Python files.
    allow_download: whether hf and torchvision may fetch what this machine does not have.
    Raises ConfigError or DataError when the extractor cannot be loaded.
    """
    if is_registered(str(name)):
        plain, precision = _split_precision(str(name))
        backend, model = _split(plain)
        compute = compute if precision == "float32" else replace(compute, precision=precision)
        offline = {"allow_download": False} if backend in _DOWNLOADING and not allow_download else {}
        extractor = EXTRACTORS.get(backend)(model, compute=compute, **offline)
        return extractor if compute.precision == "float32" else _with_autocast(extractor, compute)
    if compute.precision != "float32":
        raise ConfigError("--precision is for registered extractors, such as hf:MODEL; set it in your Python file")
    return _load_file(Path(name))


def _load_file(path: Path) -> Extractor:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); name a Python file with a function extract(images), "
            f"or one of: {', '.join(sorted(EXTRACTORS))}"
        ) from error
    name = f"{path.stem}-{hashlib.sha256(source).hexdigest()[:8]}"
    module = run_source(path, source, f"legenda_extractor_{name}")
    extract = getattr(module, "extract", None)
    if not callable(extract):
        raise DataError(f"{path} defines no function extract(images); add it")
    return Extractor(name, extract, str(getattr(module, "VERSION", "")))


def load_bottom_up_extractor(weights: str, *, compute: ComputeOptions) -> Extractor:
    """Return Bottom-Up attention's detector with the weights of a file."""
    _require_torchvision()
    from legenda.extractors.bottom_up import extract_regions, load_bottom_up

    if not weights:
        raise ConfigError("bottom-up needs its weights; name the file, as in bottom-up:weights.pth")
    detector, digest = load_bottom_up(Path(weights), compute.resolve())
    return Extractor(f"bottom-up@{digest}", partial(extract_regions, detector))


def load_torchvision_extractor(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return a detector of torchvision, MODEL or MODEL:FILE."""
    _require_torchvision()
    from legenda.extractors.torchvision_backend import load_torchvision

    model, _, weights = model.partition(":")
    digest = f"@{_digest([Path(weights)])}" if weights else ""
    extract = load_torchvision(model, Path(weights) if weights else None, compute.resolve(), allow_download)
    return Extractor(f"torchvision:{model}{digest}", extract)


def load_hf_extractor(model: str, *, compute: ComputeOptions, allow_download: bool = True) -> Extractor:
    """Return a backbone or DETR of transformers, from the hub or a folder."""
    _require_torchvision()
    from legenda.extractors.hf_backend import load_hf

    extract = load_hf(model, compute.resolve(), allow_download)
    folder = Path(model)
    files = sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.json")) if folder.is_dir() else []
    stored = f"{folder.resolve().name}@{_digest(files)}" if files else model
    return Extractor(f"hf:{stored}", extract)


def load_scenes_extractor(model: str, *, compute: ComputeOptions) -> Extractor:
    """Return the extractor for images of the embedded scenes."""
    from legenda.datasets.scenes import extract

    if model or compute.precision != "float32":
        raise ConfigError('the extractor scenes has no models and no --precision; write "scenes" alone')
    return Extractor("scenes", extract)


def load_photo_extractor(model: str, *, compute: ComputeOptions) -> Extractor:
    """Return the extractor of the packaged model of photographs."""
    from legenda.extractors.photo import PhotoExtractor

    if model or compute.precision != "float32":
        raise ConfigError('the extractor photo has no models and no --precision; write "photo" alone')
    return Extractor("photo", PhotoExtractor.load(ASSETS / PACKAGED))


def _with_autocast(extractor: Extractor, compute: ComputeOptions) -> Extractor:
    """Return the extractor in another precision, which its name ends in."""

    def extract(images: list[Image.Image]) -> list[ImageRegions]:
        with compute.autocast():
            return extractor.extract(images)

    return replace(extractor, name=f"{extractor.name}@{compute.precision}", extract=extract)


def _split_precision(name: str) -> tuple[str, Precision]:
    """Return a stored name without its precision, and the precision."""
    for precision in ("bf16", "fp16"):
        if name.endswith(f"@{precision}"):
            return name.removesuffix(f"@{precision}"), precision
    return name, "float32"


def _split(name: str) -> tuple[str, str]:
    """Return the part of the name before the colon, without a digest, and the part after it."""
    backend, _, model = name.partition(":")
    return backend.partition("@")[0], model


def _require_torchvision() -> None:
    import_extra("torchvision", "vision")


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise DataError(f"{file} cannot be read ({error.strerror or error}); name a file of weights") from error
    return digest.hexdigest()[:8]
