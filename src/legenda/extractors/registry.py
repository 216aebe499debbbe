"""Extractors that have a name of their own: `hf:MODEL`, `torchvision:MODEL`, `bottom-up:WEIGHTS`."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.extractors.base import Extractor

KINDS = ("hf", "torchvision", "bottom-up")


def is_model_name(name: str) -> bool:
    """Whether a name, as it is given or as it is stored, is that of one of these extractors, and no file."""
    return _split(name)[0] in KINDS


def needs_no_file(name: str) -> bool:
    """Whether a stored extractor's name alone is enough to load it again."""
    kind, _, model = name.removesuffix("@half").partition(":")
    return kind in ("hf", "torchvision") and "@" not in model


def load_by_name(name: str, *, half: bool = False) -> Extractor:
    """Loads an extractor by name.

    hf:MODEL           a backbone or DETR of transformers, on Hugging Face's hub or in a folder;
    torchvision:MODEL  one of its Faster R-CNNs, with its published weights, or with :FILE those of a file;
    bottom-up:FILE     Bottom-Up attention's detector with its public PyTorch weights.

    half: computes in half precision. What is stored with the features tells it, and a digest of weights in files.
    Raises UserError when the extra `vision` is not installed, or the model or its weights cannot be had.
    """
    from legenda.extractors.base import Extractor

    half_said, plain = name.endswith("@half"), name.removesuffix("@half")
    half, mark = half or half_said, "@half" if half or half_said else ""
    kind, model = _split(plain)
    _check_installed()
    if kind == "bottom-up":
        from legenda.extractors.bottom_up import extract_regions, load_bottom_up

        if not model:
            raise UserError("bottom-up needs its weights; name the file, as in bottom-up:weights.pth")
        detector, digest = load_bottom_up(Path(model), half=half)
        return Extractor(f"bottom-up@{digest}{mark}", partial(extract_regions, detector))
    if kind == "torchvision":
        from legenda.extractors.torchvision_backend import load_torchvision

        model, _, weights = model.partition(":")
        own = f"torchvision:{model}@{_digest([Path(weights)])}{mark}" if weights else f"torchvision:{model}{mark}"
        return Extractor(own, load_torchvision(model, Path(weights) if weights else None, half=half))
    from legenda.extractors.hf_backend import load_hf

    extract = load_hf(model, half=half)
    folder = Path(model)
    files = sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.json")) if folder.is_dir() else []
    own = f"hf:{folder.resolve().name}@{_digest(files)}{mark}" if files else f"hf:{model}{mark}"
    return Extractor(own, extract)


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
