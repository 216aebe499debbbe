"""Write the annotations and the features of the study of research/results/flickr8k.md.

    python research/benchmarks/flickr8k_features.py DATA WORK

writes WORK/flickr8k.json and WORK/flickr8k.safetensors, whose regions are those of `photo` but for the predicted
words. Those are predicted by networks that learn from captions of Flickr8k's training photographs alone: for each
training photograph one that has not seen it, of five, for the others one that has seen all of them.

The splits, fixed before the first run: of the 1,000 validation photographs every second one, from the first in the
order of Karpathy's file, is `val` and chooses the epoch of each training; the others are `test`, are scored and choose
nothing. The 1,000 photographs whose captions are not public are `withheld`.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from legenda.features.packed import write_store
from legenda.io import write_json
from legenda.photo.regions import RegionMaker
from legenda.photo.vision import Vision
from legenda.run_folder import ASSETS
from legenda.text import ptb_tokenize

sys.path.append(str(Path(__file__).parents[1] / "photo"))
from sources import caption_shares
from words import FOLDS, predict, train_predictor


def open_image(folder: Path, entry: dict[str, Any]) -> Image.Image:
    """Return a photograph, which is stored squashed, in its own aspect, 320 pixels along the longer side."""
    width, height = entry["orig_width"], entry["orig_height"]
    scale = 320 / max(width, height)
    image = Image.open(folder / entry["filename"]).convert("RGB")
    return image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)


def main() -> None:
    """Write both files."""
    torch.set_num_threads(1)
    data, work = Path(sys.argv[1]), Path(sys.argv[2])
    with gzip.open(data / "flickr8k" / "dataset_flickr8k.json.gz") as file:
        entries = json.load(file)["images"]
    splits = np.array([entry["split"] for entry in entries], object)
    splits[splits == "test"] = "withheld"
    splits[np.flatnonzero(splits == "val")[1::2]] = "test"
    for entry, split in zip(entries, splits.tolist(), strict=True):
        entry["split"] = split
    write_json(work / "flickr8k.json", {"images": entries})

    vision, maker = Vision.load(ASSETS / "photo"), RegionMaker.load(ASSETS / "photo")
    vectors = [vision(open_image(data / "flickr8k" / "images", entry)) for entry in entries]
    index = {name: number for number, name in enumerate(maker.table.names)}
    captions = [[ptb_tokenize(sentence["raw"]) for sentence in entry["sentences"]] for entry in entries]
    shares = np.stack([caption_shares(image, index) for image in captions])
    joined = np.stack([np.concatenate([image.whole, image.others]) for image in vectors])
    x = torch.from_numpy(((joined - maker.tensors["mean"]) * maker.tensors["scale"]).astype(np.float32))
    start = nn.Sequential(nn.Linear(x.shape[1], 512), nn.GELU(), nn.Dropout(0.5), nn.Linear(512, len(index)))
    train = np.flatnonzero(splits == "train")
    predicted = predict(train_predictor(start, x[train], shares[train], seed=0), x)
    folds = np.random.default_rng(0).permutation(len(train)) % FOLDS
    for fold in range(FOLDS):
        inside, outside = train[folds == fold], train[folds != fold]
        predicted[inside] = predict(train_predictor(start, x[outside], shares[outside], seed=fold + 1), x[inside])
    for split in ("train", "val", "test"):
        rows = np.flatnonzero(splits == split)
        rest = ((shares[rows] - predicted[rows]) ** 2).sum() / ((shares[rows] - shares[train].mean(0)) ** 2).sum()
        print(f"{split}: {len(rows)} photographs, explained variance of {len(index)} shares {1 - rest:.3f}")
    regions = (
        (Path(entry["filename"]).stem, *maker.regions(vectors[row], predicted[row]))
        for row, entry in enumerate(entries)
    )
    write_store(work / "flickr8k.safetensors", regions, extractor="photo with words of Flickr8k")


if __name__ == "__main__":
    main()
