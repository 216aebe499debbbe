"""Options of `legenda serve`, and the packages that it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from legenda.compute import ExtractorOptions
from legenda.config import Bound, Bounded, PositiveInt
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
