"""Options of `legenda serve` and `legenda judge`, and the packages that both need."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from legenda.compute import ExtractorOptions
from legenda.config import Bound, Bounded, NonNegativeInt, PositiveInt
from legenda.errors import import_extra
from legenda.search_options import RunSearchOptions


def require_packages() -> None:
    """Raise ConfigError where a package of the extra `serve` is missing."""
    for module in ("multipart", "fastapi", "uvicorn"):  # forms need the first
        import_extra(module, "serve")


@dataclass(frozen=True, kw_only=True)
class AddressOptions(Bounded):
    """Where to listen, and how many requests to answer."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 admits the whole network."""
    port: Annotated[int, Bound("0 or more", lambda value: value >= 0, most=65535)] = 8000
    """The port; 0 selects a free one."""
    rate_limit: PositiveInt = 600
    """Requests per minute from one address."""


@dataclass(frozen=True)
class JudgeOptions(AddressOptions):
    """Let people compare the captions of two models for the same images, blinded, in a page; needs the extra `serve`.

    As in the human evaluation of AoANet (section 4.5), a judge sees an image with the captions of both, on random
    sides, and chooses the better one or neither. Every judgment is kept at once; called again, judges continue.

    legenda judge --summarize FILE prints shares, preference and agreement; legenda judge --correlate RATINGS
    --references REFERENCES prints the rank correlation of every metric with published human ratings. Both take --out.
    """

    section: ClassVar[str] = "--"

    first: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FIRST")]]
    """A run folder with evaluation_SPLIT.json, such a file, or a file of captions as legenda score reads it."""
    second: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SECOND")]]
    """The captions of the other model for the same images."""
    images: Path
    """The folder of the images, there and one folder below; files are named by image id, or end in COCO's number."""
    out: Path
    """The file of the judgments, JSON lines; an existing one of the same captions is continued."""
    split: str = "val"
    """The split whose evaluation_SPLIT.json is read from run folders."""
    num_images: PositiveInt | None = None
    """The number of images, drawn at random among those found; by default all. The paper has 100."""
    seed: NonNegativeInt = 0
    """Seed of the draw."""


@dataclass(frozen=True)
class ServeOptions(RunSearchOptions, ExtractorOptions, AddressOptions):
    """Serve trained models as a web page and an HTTP API; needs the extra `serve`.

    The page loads nothing from other hosts, and images are neither stored nor sent on. Only this machine can connect
    unless --host says otherwise. The options of the search apply to requests that do not set them. The API is described
    at /docs and in /openapi.json.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""
    extractor: str | None = None
    """The extractor, a Python file or a name, for runs whose extractor is not built in."""
    samples: tuple[str, ...] = ()
    """Sample photographs: files, folders or patterns; by default four of the package and six held-out ones, if
    they are found next to the annotations of a model. Models of scenes have drawn scenes."""
    max_upload_mb: PositiveInt = 12
    """The largest accepted image, in MB."""
    max_megapixels: PositiveInt = 50
    """The largest accepted image, in millions of pixels; three such images may wait at a time."""
