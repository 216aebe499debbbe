"""What keeps a server from being overrun: how often one address may ask, and how much it may send."""

import threading
import time
from collections.abc import Callable

_MOST_ADDRESSES = 10_000


class Rate:
    """A bucket for each address that holds a minute's requests and fills up evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.clock = per_minute, clock
        self.buckets: dict[str, tuple[float, float]] = {}
        self.lock = threading.Lock()

    def admit(self, address: str) -> float:
        """0 where the address may ask now, and counts it; else the seconds until it may."""
        now = self.clock()
        with self.lock:
            left, then = self.buckets.pop(address, (float(self.per_minute), now))
            left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
            allowed = left >= 1
            self.buckets[address] = (left - 1 if allowed else left, now)  # the latest stand last
            while len(self.buckets) > _MOST_ADDRESSES:
                del self.buckets[next(iter(self.buckets))]
        return 0.0 if allowed else (1 - left) * 60 / self.per_minute
