"""Stores of released features, read by the libraries of their formats, and the opening of stores of every format."""

from __future__ import annotations

import base64
import io
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from legenda.config import Id, Number, get_field
from legenda.errors import DataError, import_extra
from legenda.features.base import ConcatFeatureStore, FeatureStore
from legenda.features.packed import MANIFEST, PackedFeatureStore, ShardedStore
from legenda.images.extractor import UNNAMED, ExtractorIdentity, ImageRegions, grid_boxes, require_real
from legenda.io import check_regular, read_json, verified
from legenda.registry import Registry

__all__ = ["DetectionStore", "FolderStore", "Hdf5Store", "LmdbStore", "TsvStore"]

STORES: Registry[Callable[[Path, Path | None], FeatureStore]] = Registry("feature store", {})
"""Functions of users that open a feature store, by the suffix of its path; see `open_features` for their arguments."""

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def open_features(path: str | Path, *, sizes: Path | None = None) -> FeatureStore:
    """Open a feature store: packed safetensors or shards, HDF5, LMDB, Bottom-Up TSV, a folder of files, or detections.

    An HDF5 file that holds grids and regions is chosen from by `file.hdf5:grids` or `file.hdf5:features`.
    sizes: COCO's annotations or a folder of them, with the sizes of images where boxes are in pixels and the
    store has no sizes; without them such boxes are left out.
    Raises DataError, naming the file, when it is missing, damaged or none of these.
    """
    path = Path(path)
    file_path, kind = split_kind(path)
    check_regular(file_path)
    require_store(file_path)
    opener = find_opener(file_path)
    if kind is not None and opener is not Hdf5Store:
        raise DataError(f"{file_path} is not an HDF5 file, so it has no kinds to choose from; leave out ':{kind}'")
    return PackedFeatureStore(path) if opener is None else opener(path, sizes)


def require_store(path: Path) -> None:
    """Raise DataError for features that do not exist."""
    file_path, _ = split_kind(path)
    if not file_path.exists() and file_path.suffix not in STORES:
        raise DataError(
            f"{file_path} does not exist; name features that `legenda extract` or `legenda convert` has written, or "
            "released ones"
        )


def open_stores(paths: Sequence[Path]) -> ConcatFeatureStore:
    """Open stores as one; raise DataError where there is none, or the features of two do not fit each other."""
    if not paths:
        raise DataError("no features are named; name stores written by `legenda extract` or `legenda convert`")
    first, *others = stores = [open_features(path) for path in paths]
    for store in others:
        same_layout = (store.feature_dim, store.has_boxes) == (first.feature_dim, first.has_boxes)
        if not same_layout or first.extractor.find_difference(store.extractor) is not None:
            a, b = (
                f"{s.path} has features of width {s.feature_dim} {'with' if s.has_boxes else 'without'} boxes by "
                f"{s.extractor}"
                for s in (store, first)
            )
            raise DataError(f"{a}, but {b}; name stores of one extractor")
    return ConcatFeatureStore(tuple(stores))


def find_opener(file_path: Path) -> Callable[[Path, Path | None], FeatureStore] | None:
    """Return the class that reads a file or folder of such a name; None for the packed format."""
    if file_path.suffix in STORES:
        return STORES.get(file_path.suffix)
    if (file_path / "data.mdb").is_file() or (file_path.suffix == ".lmdb" and file_path.is_file()):
        return LmdbStore
    if file_path.is_dir():
        return ShardedStore if (file_path / MANIFEST).is_file() else FolderStore
    if file_path.suffix in (".h5", ".hdf5", ".he5") or _is_hdf5(file_path):
        return Hdf5Store
    if re.fullmatch(r".*\.tsv(\.\d+)?", file_path.name):  # Bottom-Up's are in parts, x.tsv.0 and x.tsv.1
        return TsvStore
    return DetectionStore if file_path.suffix == ".npz" else None


def _is_hdf5(file_path: Path) -> bool:
    with suppress(OSError), file_path.open("rb") as file:
        return file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC
    return False


class ReleasedStore(FeatureStore):
    """A store of released features, with boxes in pixels or without any.

    sizes_file: annotations with the sizes of the images, for boxes in pixels in files that do not hold the sizes.
    """

    wanted: ClassVar[str]
    """End of the message about a path that holds no store of this kind: the remedy."""

    def __init__(
        self,
        path: Path,
        ids: Iterable[str],
        sizes_file: Path | None,
        extractor: ExtractorIdentity | Mapping[str, object] | str = UNNAMED,
    ) -> None:
        super().__init__(path, ids, extractor)
        self._sizes_file = sizes_file
        if not self.ids:
            raise DataError(f"{path} holds no features of any image; {self.wanted}")
        features, boxes = self.read_valid(0)
        self.feature_dim, self.has_boxes = features.shape[1], boxes is not None

    @cached_property
    def sizes(self) -> Mapping[str, tuple[float, float]]:
        """Width and height of images in the annotations, in pixels, by id and by file name."""
        return {} if self._sizes_file is None else _read_sizes(self._sizes_file)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self._sizes_file)


def _scale_boxes(boxes: np.ndarray, width: float, height: float) -> np.ndarray:
    """Return boxes (n, 4) in pixels as x1 y1 x2 y2 in 0..1; up to one pixel outside, as rounding leaves it, is cut."""
    if not (width > 0 and height > 0):
        raise ValueError(f"an image of {width:g} x {height:g} pixels has no boxes")
    size = np.array([width, height, width, height], np.float64)
    require_real(boxes)
    with np.errstate(invalid="ignore", over="ignore"):  # `check_regions` names what is NaN or infinite
        pixels = np.asarray(boxes, np.float64)
        near = (pixels >= -1) & (pixels <= size + 1)
        return np.where(near, pixels.clip(0, size), pixels) / size


@dataclass(slots=True)
class _SizedImage:
    id: Id
    file_name: str
    width: Number
    height: Number


def _read_sizes(path: Path) -> dict[str, tuple[float, float]]:
    """Return width and height of each image in COCO's annotations or a folder of them, by id and by file name."""
    hint = "name COCO's annotations, whose images have id, width and height"
    if path.is_dir():
        files = sorted(path.glob("captions_*.json*"))
        if not files:
            raise DataError(f"{path} holds no captions_*.json; {hint}")
        return {name: size for file in files for name, size in _read_sizes(file).items()}
    sizes = {}
    for image in get_field(read_json(path, hint), "images", list[_SizedImage], path, hint):
        sizes[image.id] = sizes[Path(image.file_name).stem] = image.width, image.height
    return sizes


_KINDS = ("grids", "features")
WRITTEN_BY_LEGENDA = "legenda"
"""The attribute of HDF5 files that `legenda convert` wrote, in which features without boxes have none."""
_SAMPLE = 8
"""Images whose shapes are compared to distinguish a grid of 49 cells from 49 regions."""
_MOST_REGIONS = 1 << 16
"""Regions or cells of one image in HDF5; other layouts have one array of all images, which fills the memory."""


class Hdf5Store(ReleasedStore):
    """An HDF5 file with data sets named after images, as the grid and region files of M2, RSTNet, DLCT and MD-SAN.

    <id>_grids      (H, W, D), or (H * W, D) of a square grid     features of a grid, in row-major order
    <id>_features   (n, D)     features of regions; of a 7 x 7 grid where all images have 49 and none has boxes
    <id>_boxes      (n, 4)     x1 y1 x2 y2 in pixels, or in 0..1
    <id>_size       (2,)       height and width of the image in pixels

    Where it holds both kinds, `file.hdf5:grids` or `file.hdf5:features` chooses.
    """

    wanted = "name an HDF5 file with data sets such as 42_features or 42_grids"

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        h5py = import_extra("h5py", "formats")
        file_path, kind = split_kind(path)
        self._file: Any = verified(lambda: h5py.File(file_path, "r", rdcc_nbytes=0), file_path, self.wanted)
        self._open, self._everything = h5py.h5d.open, h5py.h5s.ALL
        names: list[bytes] = []
        verified(lambda: self._file.id.links.iterate(names.append), file_path, self.wanted)
        ids = {ending: list[str]() for ending in (*_KINDS, "boxes", "size")}
        for name in names:
            image, underscore, ending = name.decode("utf-8", "surrogateescape").rpartition("_")
            if underscore and ending in ids:
                ids[ending].append(image)
        if kind is None:
            held = [kind for kind in _KINDS if ids[kind]]
            if len(held) == 2:
                raise DataError(f"{path} holds both grids and features; choose with {path}:grids or {path}:features")
            kind = held[0] if held else "features"
        self._kind, self._boxed, self._sized = kind, frozenset(ids["boxes"]), frozenset(ids["size"])
        extractor = verified(lambda: self._file.attrs.get("extractor", UNNAMED.name), file_path, self.wanted)
        if not isinstance(extractor, str):
            raise DataError(f"{file_path} has an 'extractor' that is not text; give it the name of the extractor")
        super().__init__(path, ids[kind], sizes_file, extractor)

    def load(self, position: int) -> ImageRegions:
        """Return the features of regions or of a grid, and their boxes."""
        image = self.ids[position]
        features = self._array(image, self._kind)
        if features.ndim == 3 and features.shape[0] == 1 and self._kind == "features":
            features = features[0]
        if features.ndim == 3:
            return _flatten(features)
        if self._kind == "grids" or self._hidden_grid:
            side = math.isqrt(len(features))
            if side * side != len(features):
                raise ValueError(f"{len(features)} cells are not a square grid")
            return features, grid_boxes(side, side)
        return features, self._boxes(image)

    def _boxes(self, image: str) -> np.ndarray | None:
        if image not in self._boxed:
            return None
        if not self._boxes_in_pixels:
            size = 1.0, 1.0
        elif image in self._sized:
            height, width = self._array(image, "size").reshape(-1)[:2].tolist()
            size = width, height
        else:
            size = self.sizes.get(image)
        return None if size is None else _scale_boxes(self._array(image, "boxes"), *size)

    @cached_property
    def _boxes_in_pixels(self) -> bool:
        first = next(image for image in self.ids if image in self._boxed)
        return bool(self._array(first, "boxes").max(initial=0) > 2)

    @cached_property
    def _hidden_grid(self) -> bool:
        if self._boxed or WRITTEN_BY_LEGENDA in self._file.attrs:
            return False
        return all(self._array(image, "features").shape[:-1] == (49,) for image in self.ids[:_SAMPLE])

    def _array(self, image: str, kind: str) -> np.ndarray:
        """Return one data set, read with the low-level API, since h5py's objects take longer than the reading."""
        data = self._open(self._file.id, dataset_name(image, kind))
        if math.prod(data.shape[:-1]) > _MOST_REGIONS:
            raise ValueError(f"its {kind} have the shape {data.shape}, which is that of many images")
        values = np.empty(data.shape, data.dtype)
        data.read(self._everything, self._everything, values)
        return values


def dataset_name(image: str, kind: str) -> bytes:
    """Return the name of the data set of an image; bytes that are not UTF-8 stay, as in names of files."""
    return f"{image}_{kind}".encode("utf-8", "surrogateescape")


def split_kind(path: Path) -> tuple[Path, str | None]:
    """Return the file and the kind in `file.hdf5:grids`; None where no kind is named."""
    name, _, kind = path.name.rpartition(":")
    return (path.with_name(name), kind) if name and kind in _KINDS else (path, None)


_COLUMNS = 6
_TSV = "name a file with the columns image_id, image_w, image_h, num_boxes, boxes, features"


class TsvStore(ReleasedStore):
    """A tab-separated file of Bottom-Up attention: image_id, image_w, image_h, num_boxes, boxes, features in a line.

    Boxes (x1 y1 x2 y2 in pixels) and features are float32 in base64. Its lines are located when it is opened;
    `legenda convert` writes faster formats.
    """

    wanted = _TSV

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._lines = verified(lambda: _find_lines(path), path, _TSV)
        super().__init__(path, [image for image, _, _ in self._lines], sizes_file)

    def load(self, position: int) -> ImageRegions:
        """Return the features and boxes of a line."""
        _, start, length = self._lines[position]
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
        return features, _scale_boxes(boxes, width, height)


def _find_lines(path: Path) -> list[tuple[str, int, int]]:
    """Return image, start and length in bytes of every line, without a heading."""
    lines = []
    with path.open("rb") as file:
        start = 0
        for number, line in enumerate(file, start=1):
            image, tab, _ = line.partition(b"\t")
            if not tab:
                if line.strip():
                    raise DataError(f"{path}: line {number} has no tabs; {_TSV}")
            elif image != b"image_id":
                lines.append((image.decode(), start, len(line)))
            start += len(line)
    return lines


NOTE = "legenda.json"
"""The file with the name of the extractor in folders that `legenda convert` writes."""
_ENDINGS = (".npz", ".npy", ".pth")
_WIDTH = 2048
"""Channels of Bottom-Up features, which distinguishes the two orientations."""
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class FolderStore(ReleasedStore):
    """A folder with one file per image, of AoANet (cocobu_att, cocobu_box), X-LAN, MCAN and `legenda convert`.

    <id>.npy                                       features (n, D) or of a grid (H, W, D)
    <id>.npz with feat                             the same; with boxes in 0..1 where `legenda convert` wrote it
    <id>.npz with x, bbox, image_w, image_h        MCAN's: features (D, n), boxes in pixels
    <id>.npz with x, boxes                         Rosita's: features (n, 2048), boxes in pixels
    <id>.pth                                       grid-feats-vqa's: a grid (1, D, H, W), averaged to 7 x 7 (RSTNet)

    Next to a folder *_att, the boxes of a folder *_box in pixels are read where the sizes of images are known. Where
    all lie in one folder, as <id>_att.npz, <id>_box.npy and <id>_fc.npy, the latter, of whole images, are left out.
    """

    threads = 4
    wanted = "name a folder with one .npz, .npy or .pth file per image"

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._names, self._box_names = verified(lambda: _split_parts(dict(_find_files(path))), path, self.wanted)
        folder = Path(os.path.normpath(path.absolute()))  # "." has no name
        box_folder = folder.parent / f"{folder.name.removesuffix('_att')}_box"
        usable = folder.name.endswith("_att") and sizes_file is not None and box_folder.is_dir()
        self._box_folder = box_folder if usable else None
        extractor = UNNAMED
        if (path / NOTE).is_file():
            hint = "give it the name of the extractor as text"
            extractor = get_field(read_json(path / NOTE), "extractor", str | dict, path / NOTE, hint)
        super().__init__(path, self._names, sizes_file, extractor)

    def load(self, position: int) -> ImageRegions:
        """Return the features and boxes of a file."""
        image = self.ids[position]
        with (self.path / self._names[image]).open("rb") as file:
            if self._names[image].endswith(".pth"):
                return _read_grid(file)
            features, boxes = _read_arrays(file, image, self.sizes)
        if boxes is None and image in self._box_names:
            pixels = np.asarray(_load_arrays(self.path / self._box_names[image]))
            if pixels.size and pixels.max() <= 1 + _BOX_MARGIN:
                return features, pixels
            boxes = _scale_boxes(pixels, *self.sizes[image]) if image in self.sizes else None
        if boxes is None and self._box_folder is not None:
            if image not in self.sizes:
                raise DataError(f"{self._sizes_file} has no size for image '{image}'; name annotations that have it")
            boxes = _scale_boxes(np.asarray(_load_arrays(self._box_folder / f"{image}.npy")), *self.sizes[image])
        return features, boxes


def _find_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield image and file name of every file, in the order of the names; a leading dot marks other programs' files."""
    seen: dict[str, str] = {}
    for name in sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(_ENDINGS)):
        if name.startswith("."):
            continue
        image = name[:-4]
        if image.lower().endswith(_IMAGE_SUFFIXES):
            image = image.rpartition(".")[0]
        if image in seen:
            raise DataError(f"{folder} holds {seen[image]} and {name} for one image; leave one of them out")
        seen[image] = name
        yield image, name


_PARTS = re.compile(r"(?P<image>.+)_(?P<part>att|fc|box)")
_BOX_MARGIN = 0.001
"""How far relative boxes may leave an image."""


def _split_parts(names: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of features and those of boxes by image, of a folder that holds both.

    Names are <id>_att or <id>, with <id>_box and <id>_fc beside them; an <id>_box alone is features.
    """
    parts = {name: match for name in names if (match := _PARTS.fullmatch(name))}
    regions = {match["image"] for match in parts.values() if match["part"] == "att"} | (names.keys() - parts.keys())
    features, boxes = dict[str, str](), dict[str, str]()
    for name, file in names.items():
        match = parts.get(name)
        if match is None or match["image"] not in regions:
            features[name] = file
        elif match["part"] == "att":
            features[match["image"]] = file
        elif match["part"] == "box":
            boxes[match["image"]] = file
    return features, boxes


_PARSING = threading.Lock() if sys.version_info < (3, 11, 8) else nullcontext()
"""Held while headers of arrays are parsed: CPython before 3.11.8 fails now and then where several threads parse at once
(its issue 106905)."""


def _load_arrays(file: BinaryIO | Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of an .npy, or the arrays of an .npz by name."""
    with _PARSING:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return dict(loaded)


def _read_arrays(file: BinaryIO, image: str, sizes: Mapping[str, tuple[float, float]]) -> ImageRegions:
    """Return features and boxes of one .npz or .npy, from an open file."""
    arrays = _load_arrays(file)
    if isinstance(arrays, np.ndarray):
        return _flatten(arrays)
    if "x" in arrays and "feat" not in arrays:
        x = arrays["x"]
        features, pixels = x if x.shape[-1] == _WIDTH else x.T, arrays.get("bbox", arrays.get("boxes"))
        size = sizes.get(image)
        if "image_w" in arrays and "image_h" in arrays:
            size = float(arrays["image_w"]), float(arrays["image_h"])
        return features, None if pixels is None or size is None else _scale_boxes(pixels, *size)
    name = "feat" if "feat" in arrays else next(iter(arrays)) if len(arrays) == 1 else None
    if name is None:
        raise ValueError(f"it holds {', '.join(arrays) or 'nothing'}, and neither feat nor x")
    features, boxes = _flatten(arrays[name])
    return features, arrays.get("boxes", boxes)


def _read_grid(file: BinaryIO) -> ImageRegions:
    """Return features (49, D) and boxes of the 7 x 7 cells to which the grid (1, D, H, W) of a .pth is averaged."""
    import torch

    grid = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(grid, torch.Tensor) or grid.ndim != 4 or len(grid) != 1:
        content = tuple(grid.shape) if isinstance(grid, torch.Tensor) else f"a {type(grid).__name__}"
        raise ValueError(f"it holds {content}, where a grid of shape (1, D, H, W) is needed")
    return _flatten(torch.nn.functional.adaptive_avg_pool2d(grid[0].float(), 7).permute(1, 2, 0).numpy())


def _flatten(features: np.ndarray) -> ImageRegions:
    """Return features (n, D); a grid (H, W, D) becomes its cells in row-major order, with their boxes."""
    if features.ndim == 3:
        height, width, channels = features.shape
        return features.reshape(height * width, channels), grid_boxes(height, width)
    return features, None


_ENVIRONMENTS: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()
"""Open databases by device and inode: liblmdb opens a file once in a process, and a forked one reads on in it."""


class LmdbStore(ReleasedStore):
    """An LMDB database of AoANet and its kin, a folder with data.mdb or a single file.

    The key is the image, the value the content of its .npz or .npy file; keys that begin with "__" are no images.
    """

    threads = 4
    wanted = "name an LMDB database with an .npz or .npy for every image"

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        self._base = verified(lambda: _open_lmdb(path), path, self.wanted)
        self._keys: dict[str, bytes] = {}
        with self._base.begin() as transaction:
            keys = list(transaction.cursor().iternext(values=False))
        for key in keys:
            if key.startswith(b"__"):
                continue
            image = verified(key.decode, path, self.wanted).removesuffix(".npz").removesuffix(".npy")
            if (other := self._keys.setdefault(image, key)) != key:
                raise DataError(f"{path} holds {other.decode()} and {key.decode()} for one image; {self.wanted}")
        super().__init__(path, self._keys, sizes_file)

    def load(self, position: int) -> ImageRegions:
        """Return the features and boxes of a value."""
        image = self.ids[position]
        with self._base.begin() as transaction:
            content = transaction.get(self._keys[image])
        return _read_arrays(io.BytesIO(content), image, self.sizes)


def _open_lmdb(path: Path) -> Any:
    """Return the environment of a database; raise ValueError where its file is shorter than its pages."""
    lmdb = import_extra("lmdb", "formats")
    status = (path / "data.mdb" if path.is_dir() else path).stat()
    base = _ENVIRONMENTS.get((status.st_dev, status.st_ino))
    if base is None:
        base = lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False)
        if (base.info()["last_pgno"] + 1) * base.stat()["psize"] > status.st_size:  # the map would end the process
            raise ValueError("it is truncated")
        _ENVIRONMENTS[status.st_dev, status.st_ino] = base
    return base


_KEYS = ("filenames", "boxes", "classes", "scores", "count")


class DetectionStore(ReleasedStore):
    """Detections of many images in one .npz: boxes as regions, with class and score in place of features.

    The file holds filenames `(P,)`, boxes `(P, N, 4)` as x1 y1 x2 y2 in 0..1, classes `(P, N)`, scores `(P, N)` and
    count `(P,)`, the number of valid detections at the start of each row, at least one. The feature of a region is its
    class as one-hot vector, followed by its score. Raises DataError, naming the file, for arrays that do not fit.
    """

    wanted = "name an .npz with filenames, boxes, classes, scores and count, one row per image"

    def __init__(self, path: Path, sizes_file: Path | None = None) -> None:
        arrays = verified(lambda: _load_arrays(path), path, self.wanted)
        missing = next((key for key in _KEYS if not isinstance(arrays, dict) or key not in arrays), None)
        if missing is not None:
            raise DataError(f"{path} has no array '{missing}'; {self.wanted}")
        names, self._boxes, self._classes, self._scores, self._count = (np.asarray(arrays[key]) for key in _KEYS)
        kinds = "".join(array.dtype.kind for array in (names, self._boxes, self._classes, self._scores, self._count))
        if names.ndim != 1 or not re.fullmatch("Uf[iu]f[iu]", kinds):
            raise DataError(f"{path} holds arrays of the wrong types; {self.wanted}")
        shape = self._classes.shape
        same = self._boxes.shape == (*shape, 4) and self._scores.shape == shape and names.shape == shape[:1]
        if len(shape) != 2 or not same:
            raise DataError(f"{path} holds arrays whose shapes do not fit each other; {self.wanted}")
        if self._count.shape != shape[:1] or not ((self._count >= 1) & (self._count <= shape[1])).all():
            raise DataError(f"{path} has a 'count' outside 1 to {shape[1]}, the detections of a row; {self.wanted}")
        real = self._classes[np.arange(shape[1]) < self._count[:, None]]
        if real.min(initial=0) < 0:
            raise DataError(f"{path} has a class below 0; {self.wanted}")
        self._num_classes = int(real.max(initial=0)) + 1
        ids = (PurePosixPath(name).stem for name in names.tolist())
        super().__init__(path, ids, sizes_file, "detections")

    def load(self, position: int) -> ImageRegions:
        """Return the classes and scores of a row as features, and its boxes."""
        row, real = position, slice(self._count[position])
        is_class = self._classes[row, real, None] == np.arange(self._num_classes)
        return np.column_stack([is_class, self._scores[row, real]]).astype(np.float32), self._boxes[row, real]
