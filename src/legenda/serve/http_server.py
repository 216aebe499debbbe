"""Uvicorn with limits on connections and on the time in which a request must arrive."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from legenda.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_CONNECTIONS = 512
_SHUTDOWN_S = 10
_M_MMAP_THRESHOLD = -3
_SECONDS: dict[Any, float] = {h11.IDLE: 15.0, h11.SEND_BODY: 75.0}
"""Seconds for the head of a request and for its body; the application has answered slow bodies by then."""
_DELIVERY_S = 60.0
"""Seconds in which a client must take a response."""


class TimedProtocol(H11Protocol):
    """Close connections on which a request arrives, or a response is taken, too slowly.

    Uvicorn limits only the time between requests.
    """

    _timed: Any = None
    _deadline: asyncio.TimerHandle | None = None
    _delivery: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        """Go on to the next request, which may have arrived."""
        super().on_response_complete()
        self._set_deadline()
        self._limit_delivery()

    def pause_writing(self) -> None:
        """Let the application wait until the client has taken a part of the response."""
        super().pause_writing()
        self._limit_delivery()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        super().connection_lost(exc)
        self._cancel_deadline()
        if self._delivery is not None:
            self._delivery.cancel()

    def _limit_delivery(self) -> None:
        if self._delivery is None and self.transport.get_write_buffer_size():
            self._delivery = self.loop.call_later(_DELIVERY_S, self._abort, self.cycle)

    def _abort(self, cycle: Any) -> None:
        """Drop the connection, with what is not sent, unless another response is being sent by now."""
        self._delivery = None
        if self.cycle is not cycle:
            self._limit_delivery()
        elif self.transport.get_write_buffer_size():
            self.transport.abort()

    def _set_deadline(self) -> None:
        state = self.conn.their_state
        if state is not self._timed:
            self._cancel_deadline()
            self._timed = state
            if state in _SECONDS:
                self._deadline = self.loop.call_later(_SECONDS[state], self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class Server(uvicorn.Server):
    """A server that calls `ready` when it accepts connections."""

    def __init__(self, app: Any, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=TimedProtocol,
            ws="none",
            log_level="warning",
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        self.ready()


def allowed_hosts(host: str) -> tuple[str, ...]:
    """Return the Host headers to answer at an address: this machine's names for a local one, else all."""
    return (*_LOOPBACK, "[::1]") if host in _LOOPBACK else ("*",)


def run_server(app: Any, host: str, port: int, title: str, announce: Callable[[str], None]) -> None:
    """Serve an application until the process is stopped; announce title and address when it answers."""
    name = f"[{host}]" if ":" in host else host
    with listen(host, port) as sock:
        address = f"http://{name}:{sock.getsockname()[1]}"
        Server(app, lambda: announce(f"{title} at {address} (stop with Ctrl+C)")).run(sockets=[sock])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise ConfigError where the address cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(
            f"{host} port {port} cannot be listened on ({reason}); set another --port or --host"
        ) from error


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit meanwhile, so that temporary folders are removed; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def return_freed_memory() -> None:
    """Let glibc return the memory of large images to the system; it would keep freed blocks of up to 32 MB."""
    with suppress(OSError, AttributeError):  # other C libraries have no mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 8_000_000)
