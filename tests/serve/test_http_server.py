"""The HTTP server closes slow connections, prints its address when it listens, and leaves nothing behind."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from legenda.data.captions import ScenesData
from legenda.serve import http_server

_POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"
_LARGE, _PARTS = 16_000_000, 16


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with status 200 when the body has arrived."""
    if scope["type"] != "http":
        return
    while (message := await receive()).get("more_body"):
        pass
    if scope["path"] == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % _LARGE)]})
        for _ in range(_PARTS):
            await send({"type": "http.response.body", "body": bytes(_LARGE // _PARTS), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    elif message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch) -> Iterator[int]:
    """A server that waits 0.3 s for the parts of a request."""
    monkeypatch.setattr(http_server, "_SECONDS", dict.fromkeys(http_server._SECONDS, 0.3))
    ready = threading.Event()
    server = http_server.Server(_echo, ready.set)
    with http_server.listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        assert ready.wait(20)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(20)


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"", 0),
        (b"POST / HTTP/1.1\r\nhost:", 0),
        (_POST + b"ab", 0),
        (_POST + b"abcde" + _POST + b"ab", 1),
        (_POST + b"abcde" + b"GET", 1),
    ],
)
def test_connections_that_send_slowly_are_closed(port, sent, answers):
    with socket.create_connection(("127.0.0.1", port), timeout=4) as connection:  # Uvicorn alone closes some after 5 s
        connection.sendall(sent)
        received = b""
        while data := connection.recv(1000):
            received += data
    assert received.count(b"200 OK") == answers


@pytest.mark.parametrize("parts", [1, 16])
def test_connections_that_take_a_response_slowly_are_closed(port, monkeypatch, parts):
    monkeypatch.setattr(http_server, "_DELIVERY_S", 0.5)
    monkeypatch.setitem(globals(), "_PARTS", parts)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        received = len(slow.recv(1))
        threading.Event().wait(1.0)
        while data := slow.recv(1 << 20):
            received += len(data)
    assert received < _LARGE
    fast = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    fast.request("GET", "/large")
    assert len(fast.getresponse().read()) == _LARGE
    fast.close()


def test_a_connection_with_complete_requests_is_kept(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.connect()
    kept = connection.sock
    for _ in range(4):
        connection.request("POST", "/", b"abcde")
        assert connection.getresponse().read() == b"ok"
        threading.Event().wait(0.15)
    assert connection.sock is kept
    connection.close()


@pytest.fixture(scope="module")
def scenes_run(make_run):
    return make_run("ngsan", ScenesData(train=40, validation=2))


def test_the_address_is_printed_when_it_answers_and_sigterm_leaves_no_folder(scenes_run, tmp_path):
    command = [sys.executable, "-m", "legenda", "serve", str(scenes_run), "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://(\S+)", process.stdout.readline())
            assert found is not None
            connection = http.client.HTTPConnection(found[1], timeout=20)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
            assert list(tmp_path.iterdir())
            process.terminate()
            assert process.wait(20) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_used_port_is_named(scenes_run, run_command):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        code, out, err = run_command(f"serve {scenes_run} --port {port}")
    assert (code, out) == (2, "")
    assert f"127.0.0.1 port {port} cannot be listened on (Address already in use); set another --port or --host" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the resident memory of Linux")
def test_memory_of_large_images_is_returned():
    program = """
        import sys
        from PIL import Image
        from legenda.serve.http_server import return_freed_memory
        def resident():
            return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) / 1000
        return_freed_memory()
        size = (4000, 4000)  # 64 MB
        Image.new("RGB", size)
        first = Image.new("RGB", size)
        before = resident()
        second = first.copy()
        del first
        sys.exit(resident() - before > 32)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60).returncode == 0
