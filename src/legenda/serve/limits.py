"""Limits that protect the server from overload."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_MAX_ADDRESSES = 10_000
WAITING_IMAGES = 3
"""How many of the largest images may be in memory at a time; of smaller ones there may be more."""


class BusyError(Exception):
    """The server cannot caption an image now."""


class MemoryBudget:
    """The bytes that images take from before they are decoded until they are answered: four per pixel of 8-bit RGB."""

    def __init__(self, max_pixels: int) -> None:
        self.free = 4 * WAITING_IMAGES * max_pixels

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Take the bytes of an image while the context lasts; raise BusyError where they are not free."""
        if 4 * pixels > self.free:
            raise BusyError("the images that wait take all memory; try again in a few seconds")
        self.free -= 4 * pixels
        try:
            yield
        finally:
            self.free += 4 * pixels


@dataclass(frozen=True)
class Limits:
    """max_bytes: size of one request; per_minute: requests of one address; hosts: allowed Host headers;
    max_active: requests to caption at a time; body_timeout: seconds in which a request must have arrived; max_pixels:
    size of one image; answer_timeout: seconds in which the captions must be ready.
    """

    max_bytes: int = 12_000_000
    per_minute: int = 600
    hosts: tuple[str, ...] = ("*",)
    max_active: int = 256
    body_timeout: float = 60.0
    max_pixels: int = 50_000_000
    answer_timeout: float = 60.0

    @property
    def too_large(self) -> str:
        """The sentence that refuses a request of more than `max_bytes`."""
        return f"the image is too large; send one of at most {self.max_bytes / 1e6:g} MB"


class RateLimiter:
    """A token bucket for each address that holds one minute of requests and refills evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.clock = per_minute, clock
        self.buckets: dict[str, tuple[float, float]] = {}
        self.lock = threading.Lock()

    def admit(self, address: str) -> float:
        """Count a request and return 0 if the address may send it now; else return the seconds until it may."""
        now = self.clock()
        with self.lock:
            tokens, updated = self.buckets.pop(address, (float(self.per_minute), now))
            tokens = min(float(self.per_minute), tokens + (now - updated) * self.per_minute / 60)
            allowed = tokens >= 1
            self.buckets[address] = (tokens - 1 if allowed else tokens, now)  # most recent last
            while len(self.buckets) > _MAX_ADDRESSES:
                del self.buckets[next(iter(self.buckets))]
        return 0.0 if allowed else (1 - tokens) * 60 / self.per_minute
