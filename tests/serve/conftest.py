"""A client of the HTTP API, and its sample images."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> dict[str, Path]:
    """Sample images by their names."""
    from legenda.serve.samples import sample_images

    return sample_images(tmp_path_factory.mktemp("samples"), [], scenes=True)


@pytest.fixture(scope="module")
def client(served, samples) -> "Iterator[TestClient]":
    """A client of a server with the models of `served`."""
    from fastapi.testclient import TestClient

    from legenda.search_options import SearchOptions
    from legenda.serve.app import create_app
    from legenda.serve.limits import Limits

    limits = Limits(max_bytes=200_000, per_minute=100_000)
    with TestClient(create_app(served, samples, limits, SearchOptions())) as client:
        yield client
