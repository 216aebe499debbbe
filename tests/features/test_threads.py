"""Files that several threads read at once."""

import gc
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from legenda.features.readers import FolderStore
from legenda.images.extractor import ImageRegions


class Cycle:
    """Garbage whose collection lets other threads run, in the midst of what allocates."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def threads_switch_often() -> Iterator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


class Collected(FolderStore):
    """A folder that is read at two depths of the stack, with garbage to collect."""

    def load(self, position: int) -> ImageRegions:
        Cycle()
        load = super().load
        return (lambda: (lambda: load(position))())() if position % 2 else load(position)


@pytest.mark.usefixtures("threads_switch_often")
def test_headers_that_several_threads_parse_at_once_are_read(tmp_path):
    """CPython before 3.11.8 fails now and then where several threads parse at once (its issue 106905)."""
    boxes = np.array([[0, 0, 5, 5]] * 5, float)
    image = {"x": np.ones((8, 5), np.float32), "bbox": boxes, "image_w": np.array(9), "image_h": np.array(9)}
    for number in range(100):
        np.savez(tmp_path / f"{number}.npz", **image)
    store = Collected(tmp_path)
    for _ in range(8):
        assert store.read(range(100)).features.shape == (100, 5, 8)
