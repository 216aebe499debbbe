"""Conversion of feature stores of any format to safetensors, HDF5 or a folder of .npz files, and what a store holds."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from legenda.errors import DataError, import_extra
from legenda.features.base import ConcatFeatureStore, FeatureStore, Image
from legenda.features.packed import checked_images, write_store
from legenda.features.readers import NOTE, WRITTEN_BY_LEGENDA, dataset_name, open_features, split_kind
from legenda.images.extractor import UNNAMED, ExtractorIdentity
from legenda.io import atomic_write, check_output, is_file_name, partial_path, write_json
from legenda.terminal import counted
from legenda.text.annotations import read_image_list

Dtype = Literal["float16", "float32"]

_DIGEST = 16
"""Bytes of a checksum."""


@dataclass(frozen=True)
class ConversionReport:
    """A summary of the features written, which were read back and compared.

    checksum: over ids, features and boxes, the same for every kind of store that holds them in that precision.
    """

    images: int
    regions: int
    feature_dim: int
    has_boxes: bool
    extractor: ExtractorIdentity
    checksum: str
    seconds: float


def convert(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    dtype: Dtype = "float32",
    sizes: Path | None = None,
    extractor: str | None = None,
    ids: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionReport:
    """Write the images of all sources, in order, to one store, atomically, and read it back.

    out: `.safetensors`, `.hdf5` (or `.h5`), or a folder of .npz files, by its suffix; a folder has none.
    sizes: COCO's annotations, for boxes in pixels of images whose size is not in the source.
    extractor: the name of what made the features, where the sources have none.
    ids: a list of the images to write, as `read_image_list` takes it; by default all are written.
    progress: called with the number of images written and of all.
    Raises DataError where an image of the list is in no source, where sources were made by different extractors, share
    an image, differ in width or in having boxes, or hold what cannot be read, and where what was written is not what
    was read.
    """
    out, start = Path(out), time.monotonic()
    if not sources:
        raise DataError("name at least one feature store to convert")
    stores = [open_features(source, sizes=sizes) for source in sources]
    name = _common_extractor(stores, extractor)
    check_output(out, [split_kind(store.path)[0] for store in stores])
    digest = _Digest(dtype)
    chosen = _find(ids, stores)
    total = sum(map(len, chosen))

    def images() -> Iterator[Image]:
        for done, image in enumerate(_each(stores, chosen, out), start=1):
            digest.add(*image)
            yield image
            if progress is not None:
                progress(done, total)

    def read_back(partial: Path) -> None:
        """Compare what was written with what was read, before it gets its name."""
        read, store = _Digest(dtype), open_features(partial)
        written = (stores[n].ids[position] for n, positions in enumerate(chosen) for position in positions)
        if lost := next((image for image in written if image not in store), None):
            raise DataError(
                f"{out} would be read without the id '{lost}', which has another meaning there; name an .hdf5 file"
            )
        for image in store.images():
            read.add(*image)
        if read.hexdigest != digest.hexdigest:
            raise DataError(f"{out} is not what was to be written to it; check the disk and convert again")

    _writer(out)(out, images(), extractor=name, dtype=dtype, verify=read_back)
    first, seconds = stores[0], time.monotonic() - start
    return ConversionReport(total, digest.regions, first.feature_dim, first.has_boxes, name, digest.hexdigest, seconds)


class _Digest:
    """A digest of images in one precision: the sum of theirs, so that their order does not matter."""

    def __init__(self, dtype: Dtype) -> None:
        self._dtype, self._sum, self.regions = np.dtype(dtype).newbyteorder("<"), 0, 0

    def add(self, image: str, features: np.ndarray, boxes: np.ndarray | None) -> None:
        head = f"{image}\0{features.shape}\0{boxes is not None}\0".encode("utf-8", "surrogatepass")
        part = hashlib.blake2b(head, digest_size=_DIGEST)
        with np.errstate(over="ignore"):  # the writer names what does not fit into float16
            part.update(np.ascontiguousarray(features, self._dtype).data)
        if boxes is not None:
            part.update(np.ascontiguousarray(boxes, "<f4").data)
        self._sum = (self._sum + int.from_bytes(part.digest(), "little")) % (1 << 8 * _DIGEST)
        self.regions += len(features)

    @property
    def hexdigest(self) -> str:
        return f"{self._sum:0{2 * _DIGEST}x}"


def _common_extractor(stores: Sequence[FeatureStore], name: str | None) -> ExtractorIdentity:
    """Return the extractor of all stores, or the one of that name where they have none; raise DataError otherwise."""
    first = stores[0]
    for store in stores[1:]:
        if first.extractor.find_difference(store.extractor) is not None:
            raise DataError(
                f"{first.path} was made by the extractor {first.extractor}, but {store.path} by {store.extractor}; "
                "features of different extractors do not belong into one store"
            )
    if name is None or name == str(first.extractor):
        return first.extractor
    if first.extractor != UNNAMED:
        raise DataError(f"{first.path} was made by the extractor {first.extractor}; it cannot become {name}")
    return ExtractorIdentity.read(name, "--extractor")


def _find(ids: Path | None, stores: Sequence[FeatureStore]) -> list[Sequence[int]]:
    """Return the positions in each store of the listed images, in the order of the list; of all without a list."""
    if ids is None:
        return [range(len(store)) for store in stores]
    joined, chosen, missing = ConcatFeatureStore(stores), [list[int]() for _ in stores], list[str]()
    for image, file in dict.fromkeys(read_image_list(ids)):
        entry = joined.find(image, file)
        if entry is None:
            missing.append(image)
        else:
            chosen[entry[0]].append(entry[1])
    if missing:
        raise DataError(
            f"{ids} lists {counted(len(missing), 'images')} that no store holds, such as {missing[0]}; extract what "
            "is missing"
        )
    return [*chosen]


def _each(stores: Sequence[FeatureStore], chosen: Sequence[Sequence[int]], out: Path) -> Iterator[Image]:
    """Yield the images at the chosen positions of every store.

    Raise DataError for an image of two stores, and for one that differs from its checksum.
    """
    paths: dict[str, Path] = {}
    for store, positions in zip(stores, chosen, strict=True):
        for position, (image, features, boxes) in zip(positions, store.images(positions), strict=True):
            store.verify(position)
            if paths.setdefault(image, store.path) != store.path:
                raise DataError(f"{out} is not written: image '{image}' is in {paths[image]} and in {store.path}")
            yield image, features, boxes


def _writer(out: Path) -> Callable[..., None]:
    """Return the function that writes a store of that suffix, with the arguments of `write_store`."""
    writers = {".safetensors": write_store, ".hdf5": _write_hdf5, ".h5": _write_hdf5, "": _write_folder}
    if out.suffix not in writers:
        raise DataError(f"{out} ends in {out.suffix}; name a .safetensors or .hdf5 file, or a folder without suffix")
    return writers[out.suffix]


def _write_hdf5(
    out: Path, images: Iterator[Image], *, extractor: ExtractorIdentity, dtype: Dtype, verify: Callable[[Path], None]
) -> None:
    h5py = import_extra("h5py", "formats")

    with atomic_write(out) as partial:
        with partial.open("w+b", buffering=0) as raw:
            target = _CheckedFile(raw)
            with h5py.File(target, "w") as file:
                file.attrs["extractor"], file.attrs[WRITTEN_BY_LEGENDA] = json.dumps(extractor.to_json()), 1
                for image, features, boxes in _cast(out, images, extractor, dtype):
                    file[dataset_name(image, "features")] = features
                    if boxes is not None:
                        file[dataset_name(image, "boxes")] = boxes  # in 0..1, so that no image size is needed
                    if target.error is not None:
                        break
            if target.error is not None:
                raise target.error
        verify(partial)


class _CheckedFile:
    """A file that keeps its first error and ignores later writes: HDF5 crashes where it cannot close its file."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def write(self, data: bytes | memoryview) -> int:
        """Write all of the data, unless an earlier write has failed."""
        data = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(data):
                done += self.file.write(data[done:])
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Change the length of the file, unless an earlier write has failed."""
        try:
            return self.file.truncate(size) if self.error is None else 0
        except OSError as error:
            self.error = error
            return 0


def _write_folder(
    out: Path, images: Iterator[Image], *, extractor: ExtractorIdentity, dtype: Dtype, verify: Callable[[Path], None]
) -> None:
    if out.exists():
        raise DataError(f"{out} exists already; name a new folder or remove it")
    folder = partial_path(out)
    try:
        folder.mkdir(parents=True)
        for image, features, boxes in _cast(out, images, extractor, dtype):
            arrays = {"feat": features} if boxes is None else {"feat": features, "boxes": boxes}
            np.savez(folder / f"{image}.npz", allow_pickle=False, **arrays)
        write_json(folder / NOTE, {"extractor": extractor.to_json()})
        verify(folder)
        folder.rename(out)
    except OSError as error:
        raise DataError(f"{out} could not be written ({error.strerror or error}); free some space") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cast(out: Path, images: Iterator[Image], extractor: ExtractorIdentity, dtype: Dtype) -> Iterator[Image]:
    """Yield the images in the given precision; raise DataError for what no store may hold."""
    for image, features, boxes in checked_images(images, np.dtype(dtype), out, extractor):
        if not is_file_name(image):
            raise DataError(f"{out} is not written: image '{image}' has an id that is not a valid file name")
        yield image, features, boxes


_LAYOUTS = {
    "PackedFeatureStore": "packed safetensors",
    "Hdf5Store": "HDF5",
    "TsvStore": "Bottom-Up TSV",
    "FolderStore": "folder of .npz, .npy or .pth files",
    "LmdbStore": "LMDB",
    "ShardedStore": "shards of packed safetensors",
    "DetectionStore": "detections",
}
_SAMPLE = 100
"""Images that are read without `verify`."""


def inspect_store(
    path: str | Path, *, verify: bool = False, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[dict[str, str], list[str]]:
    """Return facts about a feature store by name, and its broken entries as sentences.

    verify: whether to read all images instead of 100, evenly spaced, and to compare them with their
    checksums. Raise DataError where the store cannot be opened.
    """
    store = open_features(path)
    count = len(store)
    positions = np.arange(count) if verify else np.unique(np.linspace(0, count - 1, _SAMPLE).astype(int))
    stats, problems = _read(store, positions, verify, progress)
    extractor = store.extractor
    file_path = split_kind(Path(path))[0]
    files = [file for file in file_path.rglob("*") if file.is_file()] if file_path.is_dir() else [file_path]
    facts = {
        "layout": _LAYOUTS.get(type(store).__name__, type(store).__name__),
        "size": f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB",
        "images": f"{count:,}, such as {store.ids[0]}",
        "extractor": str(extractor) + (f", version {extractor.version}" if extractor.version else ""),
        "read": f"{counted(len(positions), 'images', ',')}, {len(problems):,} broken",
        **stats,
    }
    return facts, problems


def _read(
    store: FeatureStore, positions: np.ndarray, verify: bool, progress: Callable[[int, int], None]
) -> tuple[dict[str, str], list[str]]:
    """Read images one by one; return what their regions have in common, and the messages of broken entries."""
    read, areas, problems = [], [], []
    for done, position in enumerate(positions.tolist(), start=1):
        try:
            features, boxes = store.read_valid(position)
            if verify:
                store.verify(position)
        except DataError as error:
            problems.append(str(error))
            continue
        finally:
            progress(done, len(positions))
        read.append((len(features), features.min(), features.max(), features.mean(dtype=np.float64), features.dtype))
        if boxes is not None:
            areas.append(float(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).mean()))
    if not read:
        return {}, problems
    counts, lows, highs, means, dtypes = zip(*read, strict=True)
    facts = {
        "regions": f"{min(counts)} to {max(counts)} per image, mean {np.mean(counts):.1f}",
        "dimensions": str(store.feature_dim),
        "dtype": ", ".join(sorted(set(map(str, dtypes)))),
        "features": f"{min(lows):.4g} to {max(highs):.4g}, mean {np.mean(means):.4g}",
        "boxes": f"x1 y1 x2 y2 in 0..1, mean area {np.mean(areas):.3f}" if areas else "none",
    }
    return facts, problems
