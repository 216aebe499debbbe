"""Requests beyond the limits of the server are refused in one sentence, and bodies are counted as they arrive."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("multipart", reason="needs the extra serve")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from legenda.search_options import SearchOptions
from legenda.serve.app import create_app
from legenda.serve.limits import Limits

_FORM = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
_HEADERS = {"host": "testserver", "content-type": "multipart/form-data; boundary=b", "content-length": "5"}


async def _send(app: FastAPI, receive: Callable[[], Awaitable[Any]], headers: dict[str, str]) -> tuple[int, str]:
    """Return status and sentence of the answer to a POST whose body `receive` gives."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/captions",
        "raw_path": b"/api/captions",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("1.2.3.4", 5),
        "server": ("testserver", 80),
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body)["detail"]


def _body(chunks: Iterable[bytes]) -> tuple[Callable[[], Awaitable[Any]], list[int]]:
    """Return an ASGI `receive` of the chunks, and the list of the sizes that were read."""
    read: list[int] = []

    async def messages() -> AsyncIterator[Any]:
        for chunk in chunks:
            read.append(len(chunk))
            yield {"type": "http.request", "body": chunk, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    return messages().__anext__, read


def test_a_body_larger_than_its_content_length_is_refused_as_it_arrives(served):
    app = create_app(served, {}, Limits(max_bytes=100_000), SearchOptions())
    receive, read = _body([_FORM, *[bytes(50_000)] * 1000])
    answer = asyncio.run(_send(app, receive, {**_HEADERS, "transfer-encoding": "chunked"}))
    assert answer == (413, "the image is too large; send one of at most 0.1 MB")
    assert sum(read) < 200_000


def test_a_body_that_stops_arriving_is_refused(served):
    app = create_app(served, {}, Limits(body_timeout=0.1), SearchOptions())
    messages, _ = _body([_FORM])
    first = asyncio.run(messages())

    async def receive() -> Any:
        if first_time := not received:
            received.append(first_time)
            return first
        await asyncio.Event().wait()

    received: list[bool] = []
    status, sentence = asyncio.run(asyncio.wait_for(_send(app, receive, _HEADERS), 20))
    assert status == 408
    assert sentence == "the request did not arrive within 0.1 s; send a smaller image"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 422),
        ({"origin": "http://testserver"}, 422),
        ({"sec-fetch-site": "same-origin", "origin": "https://proxy.example"}, 422),
        ({"sec-fetch-site": "none"}, 422),
        ({"origin": "http://elsewhere.example"}, 403),
        ({"origin": "http://testserver:81"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://testserver"}, 403),
    ],
)
def test_posts_of_other_sites_are_refused(served, headers, status):
    with TestClient(create_app(served, {}, Limits(), SearchOptions())) as client:
        answer = client.post("/api/captions", data={"model": "ngsan"}, headers=headers)
    assert answer.status_code == status
    assert ("sent by another site" in answer.json()["detail"]) == (status == 403)


def test_too_many_requests_at_a_time_are_refused(served):
    app = create_app(served, {}, Limits(max_active=2, body_timeout=0.2), SearchOptions())

    async def silent() -> Any:
        await asyncio.Event().wait()

    async def send_all() -> list[tuple[int, str]]:
        return await asyncio.gather(*(_send(app, silent, _HEADERS) for _ in range(4)))

    for _ in range(2):  # those that were answered make room
        assert sorted(status for status, _ in asyncio.run(send_all())) == [408, 408, 503, 503]


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/health"), ("POST", "/api/captions")])
def test_every_answer_forbids_frames_and_other_origins(served, method, path):
    with TestClient(create_app(served, {}, Limits(), SearchOptions())) as client:
        headers = client.request(method, path).headers
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
