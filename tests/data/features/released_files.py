"""Writers of small feature files in the released formats."""

import base64
import json
from pathlib import Path

import h5py
import numpy as np

from legenda.data.features import write_store

WIDTH, HEIGHT = 640, 480


PIXELS = np.array([[64, 48, 320, 240], [0, 0, 640, 480], [32, 0, 64, 480]], np.float32)
"""Boxes of an image of 640 x 480."""

SHARES = PIXELS / np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])

IDS = ("9", "25", "30")


def features_of(image: str, count: int = 3, width: int = 8) -> np.ndarray:
    return np.random.default_rng(int(image)).standard_normal((count, width)).astype(np.float32)


def write_hdf5(path: Path, *, size: bool = True, boxes: bool = True) -> Path:
    with h5py.File(path, "w") as file:
        for image in IDS:
            file[f"{image}_features"] = features_of(image)
            if boxes:
                file[f"{image}_boxes"] = PIXELS
            if size:
                file[f"{image}_size"] = np.array([HEIGHT, WIDTH])
    return path


def tsv_line(image: str, features: np.ndarray, boxes: np.ndarray = PIXELS) -> str:
    packed = [base64.b64encode(np.ascontiguousarray(part, "<f4")).decode() for part in (boxes, features)]
    return "\t".join([image, str(WIDTH), str(HEIGHT), str(len(boxes)), *packed])


def write_tsv(path: Path) -> Path:
    path.write_text("".join(tsv_line(image, features_of(image)) + "\n" for image in IDS))
    return path


def write_mcan(path: Path) -> Path:
    path.mkdir()
    for image in IDS:
        arrays = {"x": features_of(image).T, "bbox": PIXELS, "image_w": WIDTH, "image_h": HEIGHT, "num_bbox": 3}
        np.savez(path / f"{image}.jpg.npz", **arrays)
    return path


def write_sizes(folder: Path) -> Path:
    images = [{"id": int(image), "file_name": f"COCO_{image}.jpg", "width": WIDTH, "height": HEIGHT} for image in IDS]
    (folder / "captions.json").write_text(json.dumps({"images": images}))
    return folder / "captions.json"


def write_cocobu(folder: Path) -> Path:
    for name in ("cocobu_att", "cocobu_box"):
        (folder / name).mkdir()
    for image in IDS:
        np.savez(folder / "cocobu_att" / f"{image}.npz", feat=features_of(image))
        np.save(folder / "cocobu_box" / f"{image}.npy", PIXELS)
    return folder / "cocobu_att"


def write_native(path: Path) -> Path:
    write_store(path, [(i, features_of(i), SHARES) for i in IDS], extractor="ours-1", dtype="float32")
    return path


BOXED = {
    "native": lambda folder: (write_native(folder / "f.safetensors"), None),
    "hdf5": lambda folder: (write_hdf5(folder / "f.hdf5"), None),
    "hdf5 without sizes": lambda folder: (write_hdf5(folder / "f.h5", size=False), write_sizes(folder)),
    "tsv": lambda folder: (write_tsv(folder / "f.tsv"), None),
    "tsv in parts": lambda folder: (write_tsv(folder / "f.tsv.0"), None),
    "mcan": lambda folder: (write_mcan(folder / "mcan"), None),
    "cocobu": lambda folder: (write_cocobu(folder), write_sizes(folder)),
}
