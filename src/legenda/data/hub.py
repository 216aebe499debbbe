"""Data sets of Hugging Face's hub, folders of images and parquet files, through the library `datasets`; streamed."""

from __future__ import annotations

import glob
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from legenda.config import NonNegativeInt
from legenda.data.image_files import BackboneData, ImageReader
from legenda.errors import ConfigError, DataError, LegendaError, did_you_mean, import_extra
from legenda.extractors.base import load_extractor
from legenda.images.files import ImageFile, image_id, read_image
from legenda.jobs.engine import run_job
from legenda.jobs.work import FeatureTask, extract_file, sampled_identity
from legenda.registry import reason_of
from legenda.text.annotations import CaptionedImage

_LOG = logging.getLogger(__name__)
_GRAY = (127, 127, 127)


class HubData(BackboneData):
    """A data set with a column of images and one of captions.

    An image that does not decode is left out of a store, and gray where the backbone is trained; a warning names it.
    """

    kind: Literal["hf"] = "hf"
    name: str | None = None
    """USER/DATASET of Hugging Face's hub; it is read without running code of its own."""
    subset: str | None = None
    """The configuration of the data set, where it has several."""
    files: Path | None = None
    """A folder, a .parquet file or a pattern of such files, instead of a name."""
    splits: Mapping[str, str] = Field(default_factory=lambda: {"train": "train", "val": "validation", "test": "test"})
    """The data set's names of our splits."""
    split_column: str | None = None
    """A column of train, val or test, which precedes the data set's splits."""
    image_column: str = "image"
    """Encoded images, or their paths."""
    caption_column: str = "caption"
    """A caption or a list of them; a.b is the field b of the column a."""
    id_column: str | None = None
    """Names of the images; by default split and row."""
    streaming: bool = True
    """Read images from where they are, in order, whenever they are needed; False copies the data set to the disk."""
    window: NonNegativeInt = 1000
    """Images of a stream are shuffled within windows of so many, which are in memory, encoded."""

    @model_validator(mode="after")
    def _check_hub(self) -> Self:
        if (self.name is None) == (self.files is None):
            raise ConfigError(
                "data of the kind hf take a name or files, as in data.name=USER/DATASET; give one of them"
            )
        if self.streaming != (self.window > 0):
            raise ConfigError(
                "data.window is for a stream, which needs one of at least 1; without streaming set it to 0"
            )
        return self

    @property
    def source(self) -> str:
        """The name or the files."""
        return str(self.name or self.files)

    @property
    def feature_path(self) -> Path:
        """The store of a frozen backbone, by default in the current folder."""
        name = re.sub(r"[^\w.-]+", "-", f"{Path(self.source).name}.{self.backbone}").strip("-")
        return self.features or Path(f"{name}.safetensors")

    def read_images(self) -> list[CaptionedImage]:
        """Return the images with their captions; without those that a frozen backbone could not read."""
        images = self._read_rows()
        if self.train_backbone:
            return images
        store = self.open_store()
        return [image for image in images if image.id in store]

    def _read_rows(self) -> list[CaptionedImage]:
        """Read the captions of all rows, and no image; raise DataError for a column that is not there."""
        images: list[CaptionedImage] = []
        parts, ours = self._load(), {theirs: name for name, theirs in self.splits.items()}
        columns = [self.caption_column, *(name for name in (self.id_column, self.split_column) if name)]
        for part, rows in parts.items():
            if self.split_column is None and part not in ours:
                continue
            known = rows.column_names or list(next(iter(rows), {}))
            for column in (self.image_column, *columns):
                if column.split(".")[0] not in known:
                    raise DataError(f"{self.source} has no column {column!r}; {did_you_mean(column, known)}")
            for row, values in enumerate(rows.select_columns(list({column.split(".")[0]: None for column in columns}))):
                captions = _field(values, self.caption_column)
                captions = [captions] if isinstance(captions, str) else captions or []
                if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
                    raise DataError(f"{self.source} has no text in {self.caption_column}; name a column of captions")
                split = ours[part] if self.split_column is None else str(_field(values, self.split_column))
                name = f"{part}-{row:09d}"
                if self.id_column is not None:
                    name = image_id(str(_field(values, self.id_column))).replace(".", "-")
                images.append(CaptionedImage(name, f"{part}/row-{row}", tuple(captions), split))
        if not images:
            raise DataError(f"{self.source} has the splits {', '.join(parts)}; name them in data.splits")
        return images

    def reader(self, images: Sequence[CaptionedImage]) -> ImageReader:
        """Return what reads the images of one split by position; one that does not decode is gray."""
        fetch = self._fetcher(images)

        def read(positions: np.ndarray) -> list[Image.Image]:
            encoded = zip(positions.tolist(), fetch(positions), strict=True)
            files = [self._decode(images[position], value) for position, value in encoded]
            for file in files:
                if file.error is not None:
                    _LOG.warning("%s; it is gray in the training", file.error)
            return [file.image or Image.new("RGB", (self.image_size,) * 2, _GRAY) for file in files]

        return read

    def extract(self) -> None:
        """Extract the features of all images; a stopped call is continued, from the start of the stream."""
        fetchers: dict[str, Callable[[np.ndarray], list[Any]]] = {}
        places: dict[str, tuple[CaptionedImage, int]] = {}
        for part, group in groupby(self._read_rows(), _part):
            members = list(group)
            fetchers[part] = self._fetcher(members)
            places |= {image.id: (image, position) for position, image in enumerate(members)}

        def decode(name: str) -> ImageFile:
            image, position = places[name]
            return self._decode(image, *fetchers[_part(image)](np.array([position])))

        def read(names: Sequence[str], batch_size: int, folder: Path) -> Iterator[list[ImageFile]]:  # noqa: ARG001
            for start in range(0, len(names), batch_size):
                yield [decode(name) for name in names[start : start + batch_size]]

        extractor = load_extractor(self.backbone)
        task = FeatureTask(extractor, sampled_identity(extractor), read=read)
        report = extract_file(list(places), task.identity, self.feature_path, partial(run_job, load=lambda _: task))
        for _, error in report.skipped:
            _LOG.warning("%s; it is left out", error)

    def _load(self) -> Mapping[str, Any]:
        return _load(self.name, self.subset, self.files, self.streaming)

    def _fetcher(self, images: Sequence[CaptionedImage]) -> Callable[[np.ndarray], list[Any]]:
        """Return a function from positions in images of one part to the encoded images."""
        rows = [int(image.file.rpartition("-")[2]) for image in images]
        column, datasets = self.image_column, import_extra("datasets", "hub")
        encoded = self._load()[_part(images[0])].select_columns([column])
        encoded = encoded.cast_column(column, datasets.Image(decode=False))
        if not self.streaming:
            return lambda positions: [encoded[rows[position]][column] for position in positions.tolist()]
        return _Stream(lambda row: (x[column] for x in encoded.skip(row)), rows, self.window, self.source).fetch

    def _decode(self, image: CaptionedImage, value: Any) -> ImageFile:
        """Return an encoded image, decoded, or the error."""
        file, name = ImageFile(image.id), f"{image.id} of {self.source}"
        value = value.get("bytes") or value.get("path") if isinstance(value, Mapping) else value
        try:
            if isinstance(value, str):
                value = import_extra("fsspec", "hub").open(value, "rb").open().read()
            file.image = read_image(BytesIO(value or b""), name)
        except LegendaError as error:
            file.fail(error)
        except Exception as error:  # the systems of fsspec have no common base class of errors
            file.fail(DataError(f"{name} cannot be read ({reason_of(error)})"))
        return file


class _Stream:
    """The values of rows, from an iterator that goes forward; for an earlier row it is opened again.

    In memory are those of two windows at most.
    """

    def __init__(self, open: Callable[[int], Iterator[Any]], rows: Sequence[int], window: int, source: str) -> None:
        self._open, self._rows, self._window, self._source = open, rows, window, source
        self._values: dict[int, Any] = {}
        self._iterator: Iterator[Any] = iter(())
        self._next = -1
        self._lock = threading.Lock()

    def fetch(self, positions: np.ndarray) -> list[Any]:
        """Return the values at positions; raise DataError where the stream breaks or ends."""
        with self._lock:
            first, last = self._rows[positions.min() // self._window * self._window], self._rows[positions.max()]
            wanted = [self._rows[position] for position in positions.tolist()]
            lost = any(row not in self._values and row < self._next for row in wanted)
            try:
                if lost or not self._next >= 0 or first > self._next + self._window:
                    self._iterator, self._next, self._values = self._open(first), first, {}
                self._values = {row: value for row, value in self._values.items() if row >= first}
                while self._next <= last:
                    self._values[self._next] = next(self._iterator)
                    self._next += 1
            except Exception as error:  # the library raises exceptions of any type for what it cannot read
                self._next = -1
                reason = "it ended" if isinstance(error, StopIteration) else reason_of(error)
                raise DataError(
                    f"{self._source} broke off at row {last} ({reason}); call the same command again"
                ) from error
            return [self._values[row] for row in wanted]


def _part(image: CaptionedImage) -> str:
    return image.file.partition("/")[0]


def _field(values: Any, column: str) -> Any:
    """Return a field of a row by its name, a.b for one of a column of fields or of a list of them."""
    for name in column.split("."):
        values = [value[name] for value in values] if isinstance(values, list) else values[name]
    return values


@cache
def _load(name: str | None, subset: str | None, files: Path | None, streaming: bool) -> Mapping[str, Any]:
    """Return the parts of a data set by name; raise DataError where it cannot be opened."""
    datasets: Any = import_extra("datasets", "hub")
    is_parquet = files is not None and (files.suffix == ".parquet" or glob.has_magic(str(files)))
    try:
        if is_parquet:
            return datasets.load_dataset("parquet", data_files=str(files), streaming=streaming)
        return datasets.load_dataset(name or str(files), subset, streaming=streaming)
    except Exception as error:  # the library raises exceptions of any type
        raise DataError(
            f"{name or files} cannot be opened as a data set ({reason_of(error)}); name one of Hugging Face's hub, a "
            "folder or parquet files"
        ) from error
