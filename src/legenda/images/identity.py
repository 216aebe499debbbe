"""The identity of an extractor: the record by which stores, runs and exported models know what has made features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from legenda.config import Config, NonNegativeInt, PositiveFloat, PositiveInt, Precision, describe
from legenda.errors import ConfigError, DataError

TOLERANCE = 0.01
"""The largest difference of two fingerprints of one extractor, relative to the size of its features."""
MAX_FRAMES = 10_000
"""The largest number of frames that are taken of a video."""


class FrameSampling(Config):
    """Which frames of a video are taken: `num_frames` of them, or `frame_rate` in each second.

    Of n frames, number k of `num_frames` N is floor((k + 0.5) n / N), so a shorter video repeats frames. By rate, the
    first frame at or after each multiple of 1 / frame_rate seconds is taken, each once. Raise ConfigError unless
    exactly one of them is given, positive, and at most MAX_FRAMES frames are asked for.
    """

    num_frames: Annotated[int, Field(ge=1, le=MAX_FRAMES)] | None = None
    frame_rate: PositiveFloat | None = None

    @model_validator(mode="after")
    def _check_sampling(self) -> Self:
        if (self.num_frames is None) == (self.frame_rate is None):
            raise ConfigError("give either --num-frames or --frame-rate for videos, not both")
        return self

    def __str__(self) -> str:
        return f"{self.num_frames}frames" if self.frame_rate is None else f"{self.frame_rate:g}fps"


class ExtractorIdentity(Config):
    """What distinguishes extractors; text is the short form of one with a name and a model, such as hf:MODEL."""

    name: str
    """What loads the extractor: the name in the registry of extractors, or that of a Python file without suffix."""
    model: str = ""
    """The model of a registered extractor."""
    digest: str = ""
    """First 8 hex digits of a digest of its files; empty where the name and the model load it again."""
    version: str = ""
    """What a Python file says of itself."""
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
        try:
            return cls.model_validate_json(value if isinstance(value, str) else json.dumps(value, default=repr))
        except ValidationError as error:
            raise DataError(f"{where}: {describe(error, cls, 'extractor')}; correct it") from error

    def __str__(self) -> str:
        ends = (self.digest, self.regions and f"{self.regions}regions", self.frames)
        precision = "" if self.precision == "float32" else self.precision
        name = f"{self.name}:{self.model}" if self.model else self.name
        return "@".join([name, *(str(end) for end in (*ends[:2], precision, ends[2]) if end)])

    def to_json(self) -> dict[str, object]:
        """Return the record as files hold it, without fields of default values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def without_fingerprint(self) -> ExtractorIdentity:
        """Return what no processor changes: the digest stands for the files, their features may differ a little."""
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
