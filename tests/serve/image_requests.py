"""Images of scenes and requests with them."""

import io
from typing import TYPE_CHECKING

from PIL import Image

from legenda.data.scenes import draw_scene, make_scene

if TYPE_CHECKING:
    from fastapi.testclient import TestClient
    from httpx import Response


def scene(number: int = 0) -> Image.Image:
    """Return the image of a scene."""
    return draw_scene(make_scene("request", number))


def png(image: Image.Image) -> bytes:
    """Return the image as a PNG file."""
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def post(
    client: "TestClient", data: bytes, path: str = "/api/captions", name: str = "a.png", **fields: object
) -> "Response":
    """Send an image with the fields of a form, and return the response."""
    return client.post(path, files={"image": (name, data)}, data={key: str(value) for key, value in fields.items()})
