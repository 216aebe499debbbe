"""The process of `legenda serve`: its address, connections it closes, SIGTERM under load, and its options."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import png, scene

pytest.importorskip("uvicorn", reason="needs the extra serve")

from legenda.data.captions import ScenesData

_SLOW = """
    import sys, time
    from legenda.cli.main import main
    from legenda.pipeline import Pipeline
    caption = Pipeline.caption
    def slow(self, images, **options):
        time.sleep({seconds})
        return caption(self, images, **options)
    Pipeline.caption = slow
    main(["serve", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def run_folder(make_run) -> Path:
    return make_run("ngsan", ScenesData(train=40, validation=2))


@contextlib.contextmanager
def serving(run: Path, folder: Path, seconds: float = 0.0) -> Iterator[tuple[subprocess.Popen, str]]:
    """Give a server process, which takes so many seconds for each batch, and its address."""
    program = textwrap.dedent(_SLOW.format(seconds=seconds))
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://(\S+)", process.stdout.readline())
            assert address is not None
            yield process, address[1]
        finally:
            process.kill()


def send(address: str, number: int) -> int:
    """Send an image; return the status of the answer, or 0 where the server closed the connection."""
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        connection.request("POST", "/api/captions", form + png(scene(number)) + b"\r\n--b--\r\n", kind)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize(("seconds", "statuses"), [(0.5, {200, 503}), (30.0, {503})])
def test_sigterm_under_load_ends_the_server_within_seconds_and_no_request_gets_500(
    run_folder, tmp_path, seconds, statuses
):
    with serving(run_folder, tmp_path, seconds) as (process, address), ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(send, address, number) for number in range(24)]
        time.sleep(1.0)
        assert list(tmp_path.iterdir())
        process.terminate()
        start = time.monotonic()
        assert process.wait(20) == 128 + signal.SIGTERM
        assert time.monotonic() - start < 12
        found = [answer.result() for answer in answers]
    answered = set(found) - {0}
    assert answered
    assert answered <= statuses
    assert found.count(0) < 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: localhost\r\nContent-Length: 900000000", 413),
        ("Host: localhost\r\nTransfer-Encoding: chunked", 411),
        ("Host: elsewhere.example\r\nContent-Length: 90000", 400),
        ("Host: localhost\r\nOrigin: http://[\r\nContent-Length: 90000", 403),
    ],
)
def test_a_refused_body_is_not_read(shared_server, head, status):
    host, port = shared_server.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST /api/captions HTTP/1.1\r\n{head}\r\n\r\n".encode())
        received = b""
        while data := connection.recv(100_000):  # until the server closes the connection
            received += data
    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in received.lower()


@pytest.fixture(scope="module")
def shared_server(run_folder, tmp_path_factory) -> Iterator[str]:
    with serving(run_folder, tmp_path_factory.mktemp("server")) as (_, address):
        yield address


def test_a_used_port_and_bad_options_are_named(run_folder, run_command):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        code, out, err = run_command(f"serve {run_folder} --port {port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"127.0.0.1 port {port} cannot be listened on" in err
    for line, message in [
        ("serve", "name at least one model, such as photo"),
        ("serve gone", "gone"),
        (f"serve {run_folder} --top-p 0.5", "--top-p is for sampling"),
        ("serve x --max-megapixels 0", "--max-megapixels must be"),
        ("serve x --port 99999", "--port must be"),
    ]:
        code, _, err = run_command(line)
        assert (code, message in err) == (2, True), err
