"""A server in this process, and requests with images of scenes."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from legenda.data.scenes import draw_scene, make_scene

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("multipart", reason="needs the extra serve")

if TYPE_CHECKING:
    from fastapi.testclient import TestClient
    from httpx import Response


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> dict[str, Path]:
    """Sample images by their names."""
    from legenda.serve.app import sample_images

    return sample_images(tmp_path_factory.mktemp("samples"), [], scenes=True)


@pytest.fixture(scope="module")
def connect(served, samples) -> Iterator[Callable[..., "TestClient"]]:
    """Return clients of servers with the models of `served`, or others; further settings are those of `create_app`."""
    from contextlib import ExitStack

    from fastapi.testclient import TestClient

    from legenda.serve.app import create_app
    from legenda.serve.engine import Engine

    with ExitStack() as stack:

        def call(models: Any = served, max_pixels: int = 50_000_000, **settings: Any) -> TestClient:
            engine = stack.enter_context(Engine(models, max_pixels))
            app = create_app(engine, samples, {}, **settings)
            return stack.enter_context(TestClient(app, base_url="http://localhost"))

        yield call


@pytest.fixture(scope="module")
def client(connect) -> "TestClient":
    """A client of a server with two models."""
    return connect(max_bytes=200_000)


def scene(number: int = 0) -> Image.Image:
    """Return the image of a scene."""
    return draw_scene(make_scene("request", number))


def png(image: Image.Image) -> bytes:
    """Return the image as a PNG file."""
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def header_of_png(width: int, height: int) -> bytes:
    """Return a PNG that says its size and holds no pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def post(
    client: "TestClient", data: bytes, path: str = "/api/captions", name: str = "a.png", **fields: object
) -> "Response":
    """Send an image with the fields of a form, and return the response."""
    return client.post(path, files={"image": (name, data)}, data={key: str(value) for key, value in fields.items()})
