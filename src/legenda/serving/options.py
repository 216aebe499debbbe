"""Options of `legenda serve`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from legenda.compute import ExtractorOptions
from legenda.config import Bound, PositiveInt
from legenda.search_options import RunSearchOptions


@dataclass(frozen=True)
class ServeOptions(RunSearchOptions, ExtractorOptions):
    """Serves trained models as a web page and an HTTP API; needs the extra `serve`.

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
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 admits the whole network."""
    port: Annotated[int, Bound("0 or more", lambda value: value >= 0, most=65535)] = 8000
    """The port; 0 selects a free one."""
    rate_limit: PositiveInt = 600
    """Requests per minute from one address."""
    max_upload_mb: PositiveInt = 12
    """The largest accepted image, in MB."""
    max_megapixels: PositiveInt = 50
    """The largest accepted image, in millions of pixels; three such images may wait at a time."""
