"""HTTP: an application that checks the origin and the size of requests, and Uvicorn, which stops within seconds.

Encryption, passwords, limits of rates and slow clients are those of a reverse proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legenda.errors import ConfigError, LegendaError
from legenda.images.files import ImageTooLargeError
from legenda.io import __version__
from legenda.serve.engine import BusyError

_LOCAL = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"(?:\[([^\s/?#@\[\]]+)\]|([^\s:/?#@\[\]]+))(?::[0-9]*)?")
_MAX_CONNECTIONS = 256
_SHUTDOWN_S = 5
"""Seconds that requests at work have to be answered when the server stops."""
_MAX_DISCARDED, _DISCARD_S = 256 << 20, 10
"""Bytes and seconds for which the body of a refused request is read after the answer."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none, browsers send forms with the origin "null"
    "Content-Security-Policy": "frame-ancestors 'none'",  # has no effect in the policy of the page itself
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_TELEMETRY: Any = {
    "auto_configure": False,  # else environment variables can make FastAPI send telemetry
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
}


def create_guarded_app(
    *, max_bytes: int, host: str = "127.0.0.1", allowed_hosts: Sequence[str] = (), **settings: Any
) -> FastAPI:
    """Return an application without pages that answers errors in one sentence; see `Guard`. settings: FastAPI's."""
    handlers: Any = {LegendaError: _answer(422), ImageTooLargeError: _answer(413), BusyError: _answer(503)}
    app = FastAPI(
        title="Legenda",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
        exception_handlers=handlers | {RequestValidationError: _answer_invalid},
        **settings,
    )
    app.add_middleware(Guard, max_bytes=max_bytes, host=host, allowed_hosts=allowed_hosts)
    return app


def _answer(code: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return a handler that answers an exception with its message."""

    async def answer(_: Request, error: Exception) -> Response:
        return _error_response(code, str(error))

    return answer


async def _answer_invalid(_: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    return _error_response(422, f"{'.'.join(map(str, first['loc'][1:])) or 'request'}: {first['msg']}")


class Guard:
    """Refuse requests for other hosts, posts of other sites, and bodies of more than `max_bytes`.

    Bodies are counted as they arrive, whatever their Content-Length says; where a response is sent before the body has
    arrived, the connection is closed.

    host: the address to listen on. allowed_hosts: names in a Host header to answer to ("*": all) besides this
    machine's and, at another address than a local one, IP addresses. Any other name may be that of a site whose
    address has been changed to this one (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, max_bytes: int, host: str, allowed_hosts: Sequence[str]) -> None:
        self.app, self.max_bytes = app, max_bytes
        self.names = {*_LOCAL, host.lower(), *map(str.lower, allowed_hosts)}
        self.is_local = host in _LOCAL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        arrived = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        size, started = 0, False

        async def receive_counted() -> Message:
            nonlocal size, arrived
            message = await receive()
            size += len(message.get("body", b""))
            arrived = not message.get("more_body", False)
            if size > self.max_bytes:
                raise HTTPException(413, self._too_large)
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                fields = MutableHeaders(scope=message)
                fields.update(_HEADERS)
                if not arrived:
                    fields["Connection"] = "close"
            elif refusal is not None and not arrived and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _discard(receive)  # else the connection is reset, and a client that still sends reads no answer
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        refusal = self._find_refusal(scope["method"], headers)
        try:
            await (refusal or self.app)(scope, receive_counted, send_with_headers)
        except asyncio.CancelledError:  # by Uvicorn at the end of _SHUTDOWN_S; it would send status 500
            if started:
                raise
            await _error_response(503, "the server is stopping")(scope, receive, send_with_headers)

    @property
    def _too_large(self) -> str:
        return f"the image is too large; send one of at most {self.max_bytes / 1e6:g} MB"

    def _find_refusal(self, method: str, headers: Headers) -> Response | None:
        name = _host_of(headers.get("host", ""))
        if not (self.names & {name, "*"} or (not self.is_local and _is_address(name))):
            return _error_response(
                400, "the server does not answer to this host name; start it with --allowed-host NAME"
            )
        if method != "POST":
            return None
        if _is_cross_site(headers):
            return _error_response(403, "the request was sent by another site; use the page of this server")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return _error_response(411, "the request has no Content-Length header; send one")
        if len(length) > 18 or int(length) > self.max_bytes:
            return _error_response(413, self._too_large)
        return None


async def _discard(receive: Receive) -> None:
    """Read the body of a refused request while it comes, up to _MAX_DISCARDED bytes and _DISCARD_S seconds."""
    size, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while more and size < _MAX_DISCARDED:
                message = await asyncio.wait_for(receive(), 1)
                size, more = size + len(message.get("body", b"")), message.get("more_body", False)


def _error_response(code: int, sentence: str) -> JSONResponse:
    """Return an error in one sentence."""
    return JSONResponse({"detail": sentence}, code, {"Retry-After": "5"} if code == 503 else None)


def run_server(
    app: FastAPI,
    host: str,
    port: int,
    title: str,
    announce: Callable[[str], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until the process is stopped.

    announce: called with title and address once connections are accepted. on_stop: called first when the server stops.
    Raise ConfigError where the address cannot be used.
    """
    config = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    name = f"[{host}]" if ":" in host else host
    with _listen(host, port) as sock:
        announce(f"{title} at http://{name}:{sock.getsockname()[1]} (stop with Ctrl+C)")
        _Server(config, on_stop).run(sockets=[sock])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_stop = on_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_stop()
        await super().shutdown(sockets)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit meanwhile, so that temporary folders are removed, and end the process afterwards.

    Only in the main thread. Nothing waits then for threads that decode or caption, nor for the models to be freed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if received:
            os._exit(128 + signal.SIGTERM)


def _listen(host: str, port: int) -> socket.socket:
    if not host.strip():
        raise ConfigError("the address to listen on is empty; set --host 127.0.0.1, or 0.0.0.0 for the whole network")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(
            f"{host} port {port} cannot be listened on ({reason}); set another --port or --host"
        ) from error


def _is_cross_site(headers: Headers) -> bool:
    """Return whether a browser sent the request from another origin; other programs send neither header."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc != headers.get("host")
    except ValueError:  # brackets that are wrong
        return True


def _host_of(header: str) -> str:
    """Return the lower-case name in a Host header, without port and brackets; "" where it holds anything else."""
    match = _HOST.fullmatch(header)
    return "" if match is None else (match[1] or match[2]).lower()


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
