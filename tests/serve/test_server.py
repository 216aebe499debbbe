"""The process of `legenda serve`: its address, connections it closes, SIGTERM under load, and its options."""

import contextlib
import http.client
import json
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
from threading import Barrier

import pytest

from command_results import error_of
from conftest import png, scene

pytest.importorskip("uvicorn", reason="needs the extra serve")

from legenda.data.captions import ScenesData

_HELD = """
    import sys, time
    from pathlib import Path
    from legenda.cli.main import main
    from legenda.pipeline import Pipeline
    caption, marks = Pipeline.caption, Path(sys.argv[1])
    def held(self, images, **options):
        marks.is_dir() and (marks / "started").touch()
        while (marks / "held").exists():
            time.sleep(0.02)
        return caption(self, images, **options)
    Pipeline.caption = held
    main(["serve", *sys.argv[2:]])
"""
TIMEOUT = 120
"""Seconds; generous, for a busy machine."""


@pytest.fixture(scope="module")
def run_folder(make_run) -> Path:
    return make_run("ngsan", ScenesData(train=40, validation=2))


@contextlib.contextmanager
def serving(run: Path, folder: Path, marks: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """Give a server process and its address; it captions while `marks` holds no file "held"."""
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(_HELD), str(marks), str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://(\S+)", process.stdout.readline())
            assert address is not None
            yield process, address[1]
        finally:
            process.kill()


def send(address: str, number: int, sent: Barrier) -> int:
    """Send an image; return the status of the answer, or 0 where the server closed the connection."""
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        connection.request("POST", "/api/captions", form + png(scene(number)) + b"\r\n--b--\r\n", kind)
        sent.wait()
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("released", "statuses"), [(True, {200, 503}), pytest.param(False, {503}, marks=pytest.mark.slow)]
)
def test_sigterm_under_load_ends_the_server_and_no_request_gets_500(run_folder, tmp_path, released, statuses):
    """Also while a batch never ends, where released is False."""
    folder, marks = tmp_path / "temporary", tmp_path / "marks"
    folder.mkdir()
    marks.mkdir()
    (marks / "held").touch()
    sent = Barrier(25, timeout=TIMEOUT)
    with serving(run_folder, folder, marks) as (process, address), ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(send, address, number, sent) for number in range(24)]
        sent.wait()
        while not (marks / "started").exists():
            time.sleep(0.02)
        assert list(folder.iterdir())
        process.terminate()
        if released:
            (marks / "held").unlink()
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
        found = {answer.result() for answer in answers}
    assert found - {0}
    assert found <= statuses | {0}
    assert list(folder.iterdir()) == []


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


def test_a_large_upload_is_refused_readably(shared_server):
    body = bytes(40_000_000)
    for _ in range(3):
        connection = http.client.HTTPConnection(shared_server, timeout=30)
        connection.request("POST", "/api/captions", body, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        assert answer.status == 413
        assert "too large" in json.loads(answer.read())["detail"]


@pytest.fixture(scope="module")
def shared_server(run_folder, tmp_path_factory) -> Iterator[str]:
    with serving(run_folder, tmp_path_factory.mktemp("server"), Path("nowhere")) as (_, address):
        yield address


def test_a_used_port_and_bad_options_are_named(run_folder, run_command):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        sentence = error_of(run_command(f"serve {run_folder} --port {port}"))
    assert f"127.0.0.1 port {port} cannot be listened on" in sentence
    for line, message in [
        ("serve", "name at least one model, such as photo"),
        ("serve gone", "gone"),
        (f"serve {run_folder} --top-p 0.5", "--top-p is for sampling"),
        ("serve x --max-megapixels 0", "--max-megapixels must be"),
        ("serve x --port 99999", "--port must be"),
        (f"serve {run_folder} --host=", "the address to listen on is empty"),
    ]:
        assert message in error_of(run_command(line))
