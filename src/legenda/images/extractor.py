"""Extractors, functions from images to regions as arrays.

Beside them: the identity by which stores, runs and exported models know what made their features, the check of regions,
the fingerprints of extractors, and the warning of images unlike those of the training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self, SupportsIndex

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from legenda.config import Config, NonNegativeInt, PositiveFloat, PositiveInt, Precision, merge
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.io import parse_json
from legenda.registry import reason_of
from legenda.terminal import counted

TOLERANCE = 0.01
"""The largest difference of two fingerprints of one extractor, relative to the size of its features."""
_MAX_FRAMES = 10_000
"""The largest number of frames that are taken of a video."""


class FrameSampling(Config):
    """Which frames of a video are taken: `num_frames` of them, or `frame_rate` in each second.

    Of n frames, number k of `num_frames` N is floor((k + 0.5) n / N), so a shorter video repeats frames. By rate, the
    first frame at or after each multiple of 1 / frame_rate seconds is taken, each once. Raise ConfigError unless
    exactly one of the two is set, positive, and at most 10,000 frames are taken.
    """

    num_frames: Annotated[int, Field(ge=1, le=_MAX_FRAMES)] | None = None
    frame_rate: PositiveFloat | None = None

    @model_validator(mode="after")
    def _check_sampling(self) -> Self:
        if (self.num_frames is None) == (self.frame_rate is None):
            raise ConfigError("give either --num-frames or --frame-rate for videos, not both")
        return self

    def __str__(self) -> str:
        return f"{self.num_frames}frames" if self.frame_rate is None else f"{self.frame_rate:g}fps"


class ExtractorIdentity(Config):
    """The identity of an extractor; text is the short form of one with a name and a model, such as hf:MODEL."""

    name: str
    """The loader of the extractor: the name in the registry of extractors, or that of a Python file without suffix."""
    model: str = ""
    """The model of a registered extractor."""
    digest: str = ""
    """First 8 hex digits of a digest of its files; empty where the name and the model load it again."""
    version: str = ""
    """The version that a Python file gives itself."""
    regions: PositiveInt | None = None
    """The fixed number of regions of each image; None for the extractor's own rule."""
    precision: Precision = "float32"
    """The precision in which the models compute."""
    frames: FrameSampling | None = None
    """The frames of which the regions are the means; None for images."""
    feature_dim: NonNegativeInt = 0
    """Width of the features, of an extractor with a fingerprint."""
    fingerprint: tuple[float, ...] = ()
    """The root mean square of the features of the test image, then projections of their moments; empty where they are
    not known."""

    @classmethod
    def read(cls, value: ExtractorIdentity | Mapping[str, object] | str, where: str | Path) -> ExtractorIdentity:
        """Return the identity that a file holds as a record, as its JSON, or in its short form.

        Raise DataError, naming the file, where it is none.
        """
        if isinstance(value, ExtractorIdentity):
            return value
        if isinstance(value, str) and not value.startswith("{"):
            name, _, model = value.partition(":")
            return cls(name=name, model=model)
        content = parse_json(value, f"{where}: extractor", "correct it") if isinstance(value, str) else value
        try:
            return merge(cls, content, "extractor")
        except ConfigError as error:
            raise DataError(f"{where}: {error}; correct it") from error

    def __str__(self) -> str:
        ends = (self.digest, self.regions and f"{self.regions}regions", self.frames)
        precision = "" if self.precision == "float32" else self.precision
        name = f"{self.name}:{self.model}" if self.model else self.name
        return "@".join([name, *(str(end) for end in (*ends[:2], precision, ends[2]) if end)])

    def to_json(self) -> dict[str, object]:
        """Return the record as files hold it, without fields of default values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def without_fingerprint(self) -> ExtractorIdentity:
        """Return the identity without the fingerprint, whose last digits depend on the processor."""
        return self.replace(feature_dim=0, fingerprint=())

    def find_difference(self, other: ExtractorIdentity) -> str | None:
        """Return how `other` differs, as the end of a sentence about it, or None for the same extractor.

        Equal records, digests included, are enough; with a changed file it is the same extractor where version, width
        and fingerprint agree.
        """
        if self.without_fingerprint() == other.without_fingerprint():
            return None
        changed = self.replace(digest="", version="", feature_dim=0, fingerprint=())
        if changed != other.replace(digest="", version="", feature_dim=0, fingerprint=()):
            return f"is {other}"
        if self.version != other.version:
            return f"has the version {other.version!r}, not {self.version!r}"
        if not self.fingerprint or len(self.fingerprint) != len(other.fingerprint):
            return f"is {other}, whose features were not compared"
        if self.feature_dim != other.feature_dim:
            return f"returns {other.feature_dim} channels, not {self.feature_dim}"
        pairs = zip(self.fingerprint, other.fingerprint, strict=True)
        difference = max(abs(a - b) for a, b in pairs) / max(abs(self.fingerprint[0]), 1e-9)
        if difference <= TOLERANCE:
            return None
        return f"differs by {difference:.0%} on the test image, where {TOLERANCE:.0%} is the limit"


UNNAMED = ExtractorIdentity(name="unnamed")
"""The extractor of a file without the name of one."""


ImageRegions = tuple[np.ndarray, np.ndarray | None]
"""The features (n, D) and boxes (n, 4) of an image, x1 y1 x2 y2 in 0..1, or None."""


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """The regions of B images, padded with zeros to the same number N.

    features: (B, N, D), float16 or float32 as stored; boxes: (B, N, 4) float32, x1 y1 x2 y2 in 0..1, or None;
    mask: (B, N) bool, True = real.
    """

    features: np.ndarray
    boxes: np.ndarray | None
    mask: np.ndarray


_BOX_TOLERANCE = 1e-3
_LARGEST = 1e9
"""The largest feature, far beyond those of all extractors: products of larger ones overflow in float32."""
_HALF_INFINITY = 0x7C00
"""The bits of float16 infinity; without the sign bit, those of NaN are greater, those of finite numbers less."""
_BLOCK = 1 << 16


def pack(regions: Sequence[ImageRegions], feature_dim: int, has_boxes: bool) -> RegionArrays:
    """Return the regions of several images as one batch, padded with zeros."""
    counts = np.array([len(features) for features, _ in regions], np.int64)
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    halves = bool(regions) and all(features.dtype == np.float16 for features, _ in regions)
    features = np.empty((*mask.shape, feature_dim), np.float16 if halves else np.float32)
    boxes = np.zeros((*mask.shape, 4), np.float32) if has_boxes else None
    for row, (image_features, image_boxes) in enumerate(regions):
        features[row, : len(image_features)] = image_features
        features[row, len(image_features) :] = 0
        if boxes is not None:
            boxes[row, : len(image_features)] = image_boxes
    return RegionArrays(features, boxes, mask)


def check_regions(features: np.ndarray, boxes: np.ndarray | None, dtype: np.dtype | None = None) -> ImageRegions:
    """Return the features (n, D) of an image in a dtype, and its boxes (n, 4) in float32, clipped to 0..1.

    dtype: float16 or float32; by default float16 stays, and all else becomes float32. Raise ValueError for wrong
    types, shapes or values, with the fault as the end of a sentence about the image.
    """
    features = np.asarray(features)
    require_real(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"features of shape {features.shape}, where (regions, width) with at least one region is needed"
        )
    if dtype is None:
        dtype = np.dtype(np.float16 if features.dtype == np.float16 else np.float32)
    if features.dtype == np.float16:
        bits = features.reshape(-1).view(np.uint16)  # np.isfinite takes five times as long
        blocks = (bits[start : start + _BLOCK] for start in range(0, bits.size, _BLOCK))
        if any((block & 0x7FFF).max() >= _HALF_INFINITY for block in blocks):
            raise ValueError("features that are NaN or infinite")
    else:
        worst = np.maximum(-float(features.min()), float(features.max()))  # NaN wins every minimum and maximum
        limit = min(float(np.finfo(dtype).max), _LARGEST)
        if not np.isfinite(worst):
            raise ValueError("features that are NaN or infinite")
        if worst > limit:
            raise ValueError(f"features as large as {worst:g}, where the limit is {limit:g}")
    features = features.astype(dtype, copy=False)
    if boxes is None:
        return features, None
    require_real(np.asarray(boxes))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows leaves 0..1
        boxes = np.asarray(boxes, np.float32)
    if boxes.shape != (len(features), 4):
        raise ValueError(f"boxes of shape {boxes.shape} for {len(features)} regions")
    low, high = boxes.min(), boxes.max()
    if not (low >= -_BOX_TOLERANCE and high <= 1 + _BOX_TOLERANCE):
        inside = ((boxes >= -_BOX_TOLERANCE) & (boxes <= 1 + _BOX_TOLERANCE)).all(1)
        raise ValueError(f"the box {boxes[~inside][0].tolist()}, which leaves 0..1")
    cut = boxes if low >= 0 and high <= 1 else boxes.clip(0, 1)
    filled = (cut[:, 2:] > cut[:, :2]).all(1)
    if not filled.all():
        raise ValueError(f"the box {boxes[~filled][0].tolist()}, which is empty (x1 < x2 and y1 < y2 are needed)")
    return features, cut


def require_real(values: np.ndarray) -> None:
    """Raise ValueError for values that are no real numbers: complex numbers, text, dates, objects."""
    if values.dtype.kind not in "fiub":
        raise ValueError(f"values of type {values.dtype}, where real numbers are needed")


def grid_boxes(height: int, width: int) -> np.ndarray:
    """Return the boxes (height * width, 4) of the cells of a grid in row-major order, x1 y1 x2 y2 in 0..1."""
    y, x = np.divmod(np.arange(height * width), width)
    corners = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    return np.stack(corners, axis=1).astype(np.float32)


_LOG = logging.getLogger(__name__)

Extract = Callable[[list[Image.Image]], list[ImageRegions]]
"""A function from RGB images to the regions of each."""


@dataclass(frozen=True, init=False)
class Extractor:
    """A function from images to regions, and its identity, which is stored with its features.

    identity: the record, or its short form, such as blocks:8. with_num_regions: for detectors, returns the function for
    a fixed number of regions. sufficient_side: pixels of an image that suffice for it, see
    `legenda.images.files.shrink`; None for all. loader: loads the extractor again, which is what its pickle holds; None
    where the parts are pickled.
    """

    identity: ExtractorIdentity
    extract: Extract
    with_num_regions: Callable[[int], Extract] | None = None
    sufficient_side: int | None = None
    loader: Callable[[], Extractor] | None = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        identity: ExtractorIdentity | str,
        extract: Extract,
        with_num_regions: Callable[[int], Extract] | None = None,
        sufficient_side: int | None = None,
        loader: Callable[[], Extractor] | None = None,
    ) -> None:
        vars(self).update(
            identity=ExtractorIdentity.read(identity, "the extractor"),
            extract=extract,
            with_num_regions=with_num_regions,
            sufficient_side=sufficient_side,
            loader=loader,
        )

    @property
    def name(self) -> str:
        """The identity as people read it."""
        return str(self.identity)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple:
        return super().__reduce_ex__(protocol) if self.loader is None else (self.loader, ())

    def __deepcopy__(self, memo: object) -> Extractor:
        return self  # nothing in it changes


_PROJECTIONS = 2
"""Random projections of the fingerprint."""


def run_extractor(extractor: Extractor, images: list[Image.Image], names: Sequence[str | Path]) -> list[ImageRegions]:
    """Call the extractor on a batch and check types, shapes and values of the result.

    names: paths or URLs, for messages. Raise DataError when the extractor fails, with the message of its own
    LegendaError, or returns anything but regions. Warn of images unlike those that its models are trained on.
    """
    first, last = Path(names[0]).name, Path(names[-1]).name
    where = f"the extractor {extractor.name}, called with {counted(len(images), 'images')} ({first} to {last}),"
    try:
        regions = extractor.extract(images)
    except LegendaError as error:
        subject = f"{names[0]}" if len(images) == 1 else f"{names[0]} to {names[-1]}"
        raise DataError(f"{subject}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise DataError(f"{where} failed ({reason_of(error)}); correct it") from error
    if not isinstance(regions, list) or len(regions) != len(images):
        count = f" of {len(regions)}" if isinstance(regions, list | tuple) else ""
        returned = f"{type(regions).__name__}{count}"
        raise DataError(f"{where} returned a {returned}; it must return a list with one entry per image")
    for name, entry in zip(names, regions, strict=True):
        types = [type(part).__name__ for part in entry] if isinstance(entry, tuple | list) else [type(entry).__name__]
        if types not in (["ndarray", "ndarray"], ["ndarray", "NoneType"]):
            raise DataError(
                f"{where} returned ({', '.join(types)}) for {Path(name).name}; "
                "it must return a pair of NumPy arrays: features (n, D) and boxes (n, 4) or None"
            )
        try:
            check_regions(*entry)
        except ValueError as fault:
            raise DataError(f"{where} returned {fault} for {Path(name).name}; correct it") from None
    named = zip(map(str, names), (boxes for _, boxes in regions), strict=True)
    warning = describe_unfamiliar(find_unfamiliar(extractor.name, named))
    if warning is not None:
        _LOG.warning(warning)
    return regions


def identify(extractor: Extractor, frames: FrameSampling | None = None) -> ExtractorIdentity:
    """Return the identity that is stored with the features of images, or of the frames of videos.

    Only an extractor that is read from files is run on the test image; one that fails on it has no fingerprint.
    """
    identity = extractor.identity if frames is None else extractor.identity.replace(frames=frames)
    if identity.digest:
        with suppress(LegendaError):
            (regions,) = run_extractor(extractor, [_draw_test_image()], ["test image"])
            return identity.replace(feature_dim=regions[0].shape[1], fingerprint=fingerprint(*regions))
    return identity


def find_mismatch(recorded: ExtractorIdentity, extractor: Extractor) -> str | None:
    """Return how an extractor differs from a recorded one, as the end of a sentence about it; None where it does not.

    It is run on the test image only where the digest of its files is another one.
    """
    if extractor.identity == recorded.without_fingerprint():
        return None
    return recorded.find_difference(identify(extractor))


def _draw_test_image() -> Image.Image:
    """Return the test image, 320 x 240: smooth colors with a disc and a rectangle."""
    y, x = np.mgrid[0:240, 0:320]
    pixels = np.stack([x * 255 / 319, y * 255 / 239, 127.5 + 127.5 * np.sin(x / 9) * np.cos(y / 13)], axis=-1)
    pixels[(x - 90) ** 2 + (y - 120) ** 2 < 60**2] = [230, 40, 30]
    pixels[40:110, 190:290] = [20, 60, 220]
    return Image.fromarray(pixels.astype(np.uint8))


def fingerprint(features: np.ndarray, boxes: np.ndarray | None) -> tuple[float, ...]:
    """Return the root mean square of the features, and projections of their means, plain and weighted by box centers.

    The projections are on fixed vectors of +-1, in the scale of the features. features: (n, D); boxes: (n, 4) or None.
    """
    values = features.astype(np.float64)
    centers = np.zeros((len(values), 2)) if boxes is None else boxes[:, :2] / 2 + boxes[:, 2:] / 2
    weights = np.concatenate([np.ones((len(values), 1)), centers.astype(np.float64)], axis=1)
    moments = weights.T @ values / len(values)  # (3, D)
    index = np.arange(values.shape[1])
    signs = np.stack([np.where(np.sin((index + 1) * (row + 1.7)) < 0, -1.0, 1.0) for row in range(_PROJECTIONS)])
    projections = moments @ signs.T / np.sqrt(len(index))
    return tuple(float(f"{value:.4g}") for value in (np.sqrt((values**2).mean()), *projections.ravel()))


_MAX_SCENE_SIDE = 1 / 3
"""In a scene, things are at most 0.18 of the image long. In each of 563 photographs (559 of Flickr8k) in which the
extractor of scenes finds regions, one is longer than a third."""


def find_unfamiliar(extractor: str, images: Iterable[tuple[str, np.ndarray | None]]) -> list[str]:
    """Return the names of the images unlike those that models of an extractor are trained on.

    images: names and boxes of the regions, `(n, 4)` in 0..1. Only for the extractor "scenes" this is known: images
    with a region longer than a third of the image.
    """
    if extractor != "scenes":
        return []
    sides = ((name, boxes[:, 2:] - boxes[:, :2]) for name, boxes in images if boxes is not None and len(boxes))
    return [name for name, sizes in sides if sizes.max() > _MAX_SCENE_SIDE]


def describe_unfamiliar(names: list[str]) -> str | None:
    """Return a warning of images unlike those of the training; None where there is none."""
    if not names:
        return None
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{names[0]}{others}: a model of scenes knows only colored things on a plain ground, which this does not show; "
        "use a model of photographs"
    )
