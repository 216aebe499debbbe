"""Data sets of Hugging Face's hub, folders of images and parquet files, through the library `datasets`; streamed."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Literal, Self

import numpy as np
from PIL import Image
from pydantic import Field, PrivateAttr, model_validator

from legenda.config import NonNegativeInt
from legenda.data.hub_source import HubSource, explain, open_source
from legenda.data.image_files import BackboneData, ImageReader
from legenda.errors import ConfigError, DataError, LegendaError, did_you_mean
from legenda.features.base import ConcatFeatureStore, FeatureStore
from legenda.features.extraction import FeatureTask, extract_file
from legenda.features.extractors import load_extractor
from legenda.images.extractor import identify
from legenda.images.files import ImageFile, read_image
from legenda.images.shards import process_here
from legenda.text.annotations import CaptionedImage, check_once

__all__ = ["HubData"]

_LOG = logging.getLogger(__name__)
_GRAY = (127, 127, 127)
_SPLITS = ("train", "val", "test", "restval")


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
    """A column of train, val or test (or their names in data.splits), which precedes the data set's splits."""
    image_column: str = "image"
    """Encoded images, or paths of files in the folder of the data set."""
    caption_column: str = "caption"
    """A caption or a list of them; a.b is the field b of the column a."""
    id_column: str | None = None
    """Names of the images; by default split and row."""
    streaming: bool = True
    """Read images from where they are, in order, whenever they are needed; False copies the data set to the disk."""
    window: NonNegativeInt = 1000
    """Images of a stream are shuffled within windows of so many, which are in memory, encoded."""
    _allow_urls: bool = PrivateAttr(False)  # no file of a run or a recipe may set it

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

    def with_urls(self) -> Self:
        """Return the same data, whose images are fetched where the column holds addresses of http and https."""
        data = self.replace()
        data._allow_urls = True
        return data

    @property
    def source(self) -> str:
        """The name or the files."""
        return str(self.name or self.files)

    @property
    def feature_path(self) -> Path:
        """The store of a frozen backbone, by default in the current folder, with a digest of the data in its name."""
        name = re.sub(r"[^\w.-]+", "-", f"{Path(self.source).name}.{self.backbone}").strip("-.")
        return self.features or Path(f"{name}.{self._digest()}.safetensors")

    def open_store(self) -> FeatureStore:
        """Return the features, extracted where they have no store; raise DataError for those of other data."""
        store = super().open_store()
        if store.data not in ("", self._digest()):
            raise DataError(
                f"{store.path} holds features of other images than {self.source}, or of those before they changed; "
                "delete it, or name another store with data.features"
            )
        return store

    def read_images(self) -> list[CaptionedImage]:
        """Return the images with their captions; without those that a frozen backbone could not read."""
        images = self._read_rows()
        if self.train_backbone:
            return images
        store = ConcatFeatureStore((self.open_store(),))
        known = [image for image in images if store.find(image.id, image.file) is not None]
        if missing := len(images) - len(known):
            _LOG.warning("%d of %d images of %s have no features and are left out", missing, len(images), self.source)
        return known

    def _read_rows(self) -> list[CaptionedImage]:
        """Read the captions of all rows, and no image; raise DataError for a column that is not there."""
        images: list[CaptionedImage] = []
        source, ours = self._open(), {theirs: name for name, theirs in self.splits.items()}
        fields = [self.caption_column, *(name for name in (self.id_column, self.split_column) if name)]
        columns = list(dict.fromkeys(field.split(".")[0] for field in fields))
        for part in source.parts:
            if self.split_column is None and part not in ours:
                continue
            source.check_column(part, self.image_column)
            labels = source.labels(part, self.split_column) or ()
            for row, values in enumerate(source.rows(part, columns)):
                where = f"row {row} of {part} of {source.name}"
                captions = _field(values, self.caption_column, where)
                captions = [captions] if isinstance(captions, str) else [] if captions is None else captions
                if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
                    raise DataError(f"{where} has no text in {self.caption_column}; name a column of captions")
                image = name = f"{part.replace('.', '-')}-{row:09d}"
                if self.id_column is not None:
                    image = _id(_field(values, self.id_column, where), self.id_column, where)
                split = ours.get(part, part)
                if self.split_column is not None:
                    value = _field(values, self.split_column, where)
                    is_class = isinstance(value, int) and 0 <= value < len(labels)  # -1 is none
                    split = self._split(labels[value] if is_class else value, where)
                images.append(CaptionedImage(image, f"{part}/{name}", tuple(captions), split))
        if not images:
            raise DataError(f"{self.source} has the splits {', '.join(source.parts)}; name them in data.splits")
        check_once(Path(self.source), images, "id")
        files = {Path(image.file).name: image for image in images}
        for image in images:
            if files.get(image.id, image) is not image:
                raise DataError(
                    f"{image.file} of {source.name} has the id {image.id}, the name of another row; leave out "
                    "data.id_column"
                )
        return images

    def _split(self, value: object, where: str) -> str:
        """Return our name of the split in a row; raise DataError for none, and for another."""
        ours = {**{name: name for name in _SPLITS}, **{theirs: name for name, theirs in self.splits.items()}}
        if not isinstance(value, str) or value not in ours:
            raise DataError(
                f"{where} has the split {value!r} in {self.split_column}, which is none of {', '.join(ours)}; name "
                "them in data.splits"
            )
        return ours[value]

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

    def digest_images(self, images: Sequence[CaptionedImage]) -> str:
        """Return a digest of the data set, of which the images are a part."""
        return f"{len(images)} images of {self._digest()}"

    def extract(self) -> None:
        """Extract the features of all images; a stopped call is continued, from the start of the stream."""
        fetchers: dict[str, Callable[[np.ndarray], list[object]]] = {}
        places: dict[str, tuple[CaptionedImage, int]] = {}
        for part, group in groupby(self._read_rows(), _part):
            members = list(group)
            fetchers[part] = self._fetcher(members)
            places |= {Path(image.file).name: (image, position) for position, image in enumerate(members)}

        def decode(name: str) -> ImageFile:
            image, position = places[name]
            file = self._decode(image, *fetchers[_part(image)](np.array([position])))
            return replace(file, name=name)

        def read(names: Sequence[str], batch_size: int, folder: Path) -> Iterator[list[ImageFile]]:  # noqa: ARG001
            for start in range(0, len(names), batch_size):
                yield [decode(name) for name in names[start : start + batch_size]]

        extractor = load_extractor(self.backbone)
        task = FeatureTask(extractor, identify(extractor), read=read)
        report = extract_file(
            list(places), task.identity, self.feature_path, partial(process_here, task=task), data=self._digest()
        )
        for _, error in report.skipped:
            _LOG.warning("%s; it is left out", error)

    def _open(self) -> HubSource:
        return open_source(self.name, self.subset, self.files, streaming=self.streaming)

    def _digest(self) -> str:
        """Return a digest of the images by which the store of their features is known."""
        parts = sorted(self._open().parts if self.split_column else self.splits.values())
        text = repr((self._open().digest, self.image_column, parts))
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()

    def _fetcher(self, images: Sequence[CaptionedImage]) -> Callable[[np.ndarray], list[object]]:
        """Return a function from positions in images of one part to the encoded images."""
        rows = [int(image.file.rpartition("-")[2]) for image in images]
        column, source = self.image_column, self._open()
        encoded = source.images(_part(images[0]), column)

        def open_at(row: int) -> Iterator[object]:
            return (values[column] for values in encoded.skip(row))

        if not self.streaming:
            return lambda positions: [encoded[rows[position]][column] for position in positions.tolist()]
        return _Stream(open_at, rows, self.window, source, column).fetch

    def _decode(self, image: CaptionedImage, value: object) -> ImageFile:
        """Return an encoded image, decoded, or the error."""
        file, name = ImageFile(image.id), f"{image.id} of {self.source}"
        try:
            content = self._open().read(value, allow_urls=self._allow_urls)
            file.image = read_image(BytesIO(content), name)
        except LegendaError as error:
            file.fail(error if name in str(error) else DataError(f"{name}: {error}"))
        except Exception as error:  # the systems of fsspec have no common base class of errors
            file.fail(DataError(f"{name} cannot be read ({explain(error)})"))
        return file


class _Stream:
    """The values of rows, from an iterator that goes forward; for an earlier row it is opened again.

    In memory are those of two windows at most.
    """

    def __init__(
        self, open: Callable[[int], Iterator[object]], rows: Sequence[int], window: int, source: HubSource, column: str
    ) -> None:
        self._open, self._rows, self._window, self._source, self._column = open, rows, window, source, column
        self._values: dict[int, object] = {}
        self._iterator: Iterator[object] = iter(())
        self._next = -1
        self._lock = threading.Lock()

    def fetch(self, positions: np.ndarray) -> list[object]:
        """Return the values at positions; raise DataError where the stream breaks or ends."""
        with self._lock:
            first, last = self._rows[positions.min() // self._window * self._window], self._rows[positions.max()]
            wanted = [self._rows[position] for position in positions.tolist()]
            lost = any(row not in self._values and row < self._next for row in wanted)
            try:
                if lost or self._next < 0 or first > self._next + self._window:
                    self._iterator, self._next, self._values = self._open(first), first, {}
                self._values = {row: value for row, value in self._values.items() if row >= first}
                while self._next <= last:
                    self._values[self._next] = next(self._iterator)
                    self._next += 1
            except Exception as error:  # the library raises exceptions of any type for what it cannot read
                self._next = -1
                if isinstance(error, StopIteration):
                    raise DataError(f"{self._source.name} ended at row {last}; call the same command again") from error
                self._source.fail(error, [self._column])
            return [self._values[row] for row in wanted]


def _part(image: CaptionedImage) -> str:
    return image.file.partition("/")[0]


def _field(values: object, column: str, where: str) -> object:
    """Return a field of a row by its name; a.b is the field b of the column a, which may hold a list of fields.

    A column that is empty in the row gives None. Raise DataError, naming the closest, for a field that is not there.
    """
    for name in column.split("."):
        if values is None:
            return None
        fields = []
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, Mapping) or name not in value:
                known = f"; {did_you_mean(name, map(str, value))}" if isinstance(value, Mapping) else ""
                raise DataError(f"{where} has no field {name!r} of {column!r}{known}")
            fields.append(value[name])
        values = fields if isinstance(values, list) else fields[0]
    return values


def _id(value: object, column: str, where: str) -> str:
    """Return an id as text; raise DataError for one that is missing, or is no text, number or date."""
    if value is None or value == "" or value != value:
        raise DataError(f"{where} has no id in {column}; leave out data.id_column, or the row")
    if isinstance(value, Mapping | list | bytes):
        raise DataError(f"{where} has a {type(value).__name__} in {column}; name a column of text or numbers with ids")
    return str(value)
