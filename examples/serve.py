"""Start a server for a run, caption an image over HTTP, and stop the server.

    python examples/serve.py runs/demo/ngsan image.png

Without an image, a scene is drawn. The page and the description of the API are at the printed address and at /docs.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import tyro

from legenda.data.scenes import draw_scene, make_scene


def post(address: str, image: bytes, **fields: object) -> dict[str, Any]:
    """Return the answer of POST /api/captions for the bytes of an image file."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="image.png"\r\n\r\n'
    body = b"".join([*parts, head.encode(), image, f"\r\n--{boundary}--\r\n".encode()])
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/api/captions", body, kind), timeout=60) as answer:
        return json.load(answer)


def wait_until_ready(address: str, seconds: float = 20.0) -> None:
    """Return when the server answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return


def main(run: Path, image: tyro.conf.Positional[Path | None] = None) -> dict[str, Any]:
    """Serve the run on a free port and return the captions of the image."""
    command = [sys.executable, "-m", "legenda", "serve", str(run), "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        if image is None:
            image = Path(folder) / "scene.png"
            draw_scene(make_scene("example", 0)).save(image)
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            started = re.search(r"http://\S+", server.stdout.readline())
            if started is None:
                raise SystemExit("the server did not start; its message is above")
            wait_until_ready(started[0])
            answer = post(started[0], image.read_bytes(), beam_size=3)
        finally:
            server.terminate()
            server.wait(20)
    for caption in answer["captions"]:
        print(f"{caption['log_prob']:.2f}  {caption['text']}")
    return answer


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
