"""Tab-separated files of Bottom-Up attention: image_id, image_w, image_h, num_boxes, boxes, features, one image a line.

Boxes (x1 y1 x2 y2 in pixels) and features are float32 in base64. Opening reads the file once to find its lines.
"""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

from legenda.data.features.per_image import PerImageStore, scale_boxes
from legenda.errors import DataError
from legenda.io import verified

_COLUMNS = 6
_WANTED = "name a file with the columns image_id, image_w, image_h, num_boxes, boxes, features"


class TsvStore(PerImageStore):
    """A tab-separated file, whose lines are located when it is opened; `legenda convert` writes faster formats."""

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._lines = verified(lambda: _find_lines(path), path, _WANTED)
        super().__init__(path, [image for image, _, _ in self._lines], sizes_file=sizes_file, wanted=_WANTED)

    def _load(self, image: str) -> tuple[np.ndarray, np.ndarray | None]:
        _, start, length = self._lines[self.index(image)]
        with self.path.open("rb") as file:
            file.seek(start)
            line = file.read(length)
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) != _COLUMNS:
            raise ValueError(f"its line has {len(columns)} columns, not {_COLUMNS}; it may be truncated")
        width, height, count = (int(float(value)) for value in columns[1:4])
        if count < 1 or width < 1 or height < 1:
            raise ValueError(f"{count} boxes in an image of {width} x {height}")
        boxes = np.frombuffer(base64.b64decode(columns[4], validate=True), "<f4").reshape(count, 4)
        features = np.frombuffer(base64.b64decode(columns[5], validate=True), "<f4").reshape(count, -1)
        return features, scale_boxes(boxes, width, height)


def _find_lines(path: Path) -> list[tuple[str, int, int]]:
    """Image, start and length of every line; a heading is left out."""
    lines = []
    with path.open("rb") as file:
        start = 0
        for number, line in enumerate(file, start=1):
            image, tab, _ = line.partition(b"\t")
            if not tab:
                if line.strip():
                    raise DataError(f"{path}: line {number} has no tabs; {_WANTED}")
            elif image != b"image_id":
                lines.append((image.decode(), start, len(line)))
            start += len(line)
    return lines
