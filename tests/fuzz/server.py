"""Send requests that schemathesis derives from the server's OpenAPI document, or damaged ones to a server.

    python tests/fuzz/server.py --examples 200 --seed 3
    python tests/fuzz/server.py --raw 1000 --seed 3

Every answer must have a status, a type and a content that the document names, and none may be a server error. Half of
the uploads are images. With --raw, a server in a process of its own gets requests with damaged lines, headers and
bodies, as strangers and proxies send them; it must refuse other hosts, answer none with 500, and live.
Exit code 1 where an answer is another. research/benchmarks/serve.py loads a server.
"""

from __future__ import annotations

import argparse
import http.client
import io
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from subjects import SHORT, TINY, call


def train(folder: Path) -> Path:
    """Return the run folder of a small model of scenes."""
    scenes = "data.train=12 data.validation=3 data.test=4"
    call(f"train scenes.ngsan --out {folder}/run {TINY} model.geometry_dim=4 {SHORT} {scenes}")
    return folder / "run"


def create_app(folder: Path) -> Any:
    """Return the application with a small model of scenes."""
    from legenda.evaluation.runs import load_captioner_run
    from legenda.pipeline import Pipeline
    from legenda.serve.app import create_app, sample_images
    from legenda.serve.engine import Engine

    run = load_captioner_run(train(folder))
    models = {"run": Pipeline(run.captioner, run.resolve_extractor(None))}
    (folder / "samples").mkdir()
    samples = sample_images(folder / "samples", [], scenes=True)
    return create_app(Engine(models), samples, {}, allowed_hosts=["testserver"])


def draw(number: int = 1) -> bytes:
    """Return an image as PNG."""
    from legenda.data.scenes import draw_scene, make_scene

    data = io.BytesIO()
    draw_scene(make_scene("fresh", number)).save(data, "PNG")
    return data.getvalue()


def check_operation(operation: Any, examples: int, seed: int) -> str | None:
    """Send requests to one operation; return what is wrong with an answer, or None."""
    import hypothesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy())
    def send(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])  # bytes that are no image are valid data

    try:
        send()
    except (Exception, BaseExceptionGroup) as error:  # all kinds of failures, and what the application itself raises
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def serving(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Give the process of a server and its address."""
    command = [sys.executable, "-m", "legenda", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split("http://")[1].split()[0]
        finally:
            process.kill()


def send(address: str, data: bytes) -> int:
    """Send an image; return the status of the answer, or 0 where the connection was closed."""
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + data + b"\r\n--b--\r\n"
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.request("POST", "/api/captions", form, {"Content-Type": "multipart/form-data; boundary=b"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


_TARGETS = (
    "/", "/api/health", "/api/captions", "/api/samples/../x", "/%00", "//evil", "http://evil/", "*", "/" + "a" * 9000,
)  # fmt: skip
_HOSTS = (
    "{0}", "{0}", "{0}", "localhost", "evil.example", "{0}.evil.example", "{0}@evil.example", "", "[::1", "\xff",
    "a, {0}",
)  # fmt: skip
_VALUES = (
    "", "0", "-1", "5", "99999999999999999999", "1e3", "chunked", "chunked, chunked", "gzip", "close", "upgrade",
    "null", "http://evil.example", "http://[", "https://{0}", "127.0.0.1", "for=127.0.0.1;host={0}", "100-continue",
    "\xff" * 20, "multipart/form-data", "multipart/form-data; boundary=b", "multipart/form-data; boundary=",
    "application/json", "bytes=0-", "a" * 20_000, "x\x00y", "\t", "websocket",
)  # fmt: skip
_FIELDS = (
    "Content-Length", "Transfer-Encoding", "Connection", "Origin", "Referer", "X-Forwarded-For", "X-Forwarded-Host",
    "X-Forwarded-Proto", "Forwarded", "Expect", "Content-Type", "Range", "Accept-Encoding", "Upgrade", "Cookie", "Host",
    "Sec-Fetch-Site", "bad name", "",
)  # fmt: skip


def send_raw(address: str, random: Random, image: bytes) -> str | None:
    """Send a damaged request; return what is wrong with its answer, or None."""
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + image + b"\r\n--b--\r\n"
    body = random.choice((b"", b"x" * 50, form, form[: random.randrange(len(form))], b"5\r\nhello\r\n0\r\n\r\n"))
    host = random.choice(_HOSTS)
    fields = [("Host", host)] if random.random() < 0.95 else []
    if body and random.random() < 0.7:
        fields += [("Content-Type", "multipart/form-data; boundary=b"), ("Content-Length", str(len(body)))]
    fields += [(random.choice(_FIELDS), random.choice(_VALUES)) for _ in range(random.randrange(4))]
    method, version = (
        random.choice(("GET", "POST", "HEAD", "PUT", "OPTIONS", "get", "")),
        random.choice(("1.1", "1.0", "3")),
    )
    lines = [f"{method} {random.choice(_TARGETS)} HTTP/{version}", *(f"{name}: {value}" for name, value in fields)]
    head = "\r\n".join(lines).replace("{0}", address).encode("latin-1") + b"\r\n\r\n"
    name, _, port = address.rpartition(":")
    answer = b""
    with suppress(OSError), socket.create_connection((name, int(port)), timeout=5) as connection:
        connection.settimeout(1)  # a request that is not complete gets no answer
        connection.sendall(head + body)
        answer = connection.recv(200)
    status = answer.split(b" ")[1][:3].decode() if answer.startswith(b"HTTP/1.1 ") else ""
    hosts = {value for name, value in fields if name == "Host"}
    if status.startswith("5") and status != "503":
        return f"{status}: {head[:500]!r}"
    if status == "200" and not hosts & {"{0}", "localhost", "127.0.0.1"}:
        return f"host {hosts} is answered: {head[:500]!r}"
    return None


def send_damaged(run: Path, requests: int, seed: int) -> bool:
    """Send damaged requests to a server; return whether all went well."""
    random, image = Random(seed), draw()
    scans = b"\xff\xd8" + b"\xff\xda\x00\x02" * 60  # of a JPEG
    with serving(run) as (process, address):
        problems = list(
            filter(None, (send_raw(address, random, random.choice((image, scans))) for _ in range(requests)))
        )
        alive = process.poll() is None and send(address, image) == 200
    print(*problems, f"{requests} requests, {len(problems)} wrong answers, alive: {alive}", sep="\n", flush=True)
    return alive and not problems


def main() -> int:
    """Check all operations of the document, or send damaged requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200, help="requests of each operation (default: 200)")
    parser.add_argument("--seed", type=int, help="of the requests (default: a random one, which is printed)")
    parser.add_argument("--raw", type=int, help="damaged requests to a server")
    options = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if options.raw is not None:
        print(f"seed {seed}", flush=True)
        with tempfile.TemporaryDirectory(prefix="legenda-server-") as folder:
            return int(not send_damaged(train(Path(folder)), options.raw, seed))
    import schemathesis
    from hypothesis import strategies
    from starlette.testclient import TestClient

    print(f"seed {seed}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed = False
    with tempfile.TemporaryDirectory(prefix="legenda-server-") as folder:
        app = create_app(Path(folder))
        with TestClient(app):  # starts the engine
            schemathesis.openapi.format("binary", strategies.binary() | strategies.just(draw()))
            schema = schemathesis.openapi.from_asgi("/openapi.json", app)
            for found in schema.get_all_operations():
                operation = found.ok()
                problem = check_operation(operation, options.examples, seed)
                failed |= problem is not None
                print(f"{operation.label:<28} {problem or f'{options.examples} requests'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
