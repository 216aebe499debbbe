"""Learn what CIDEr to expect of a caption of a photograph, by which the extractor `photo` chooses among beams.

    python research/photo/consensus.py FOLDER

reads photographs.npz and captions.npz of FOLDER and writes FOLDER/consensus.safetensors. Ridge regression from the
features of the whole image to the mean of the normalized TF-IDF vectors of its captions, for n-grams of 1 to 4 words;
only training photographs are learned. Takes about half a minute on one core.
"""

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from coco import TRAIN
from sources import Photographs
from words import write_tensors

from legenda.photo.consensus import INPUTS, ngrams, normalized
from legenda.photo.layout import START_DENSE, START_GLOBAL, START_VISUAL

MIN_COUNT = 15
"""Training photographs that have an n-gram which is expected."""
RIDGE = 3.0
BLOCKS = (0, START_VISUAL, START_GLOBAL, START_DENSE, INPUTS)
"""Where blocks of channels begin; each is divided by the root of its mean square length."""


def main() -> None:
    """Write the file."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    photographs = Photographs(folder)
    train = np.flatnonzero(photographs.split == TRAIN)  # mirror images too
    x = photographs.features[photographs.starts[train], :INPUTS].astype(np.float32)
    mean, scale = x.mean(0), np.ones(INPUTS, np.float32)
    x -= mean
    for first, last in pairwise(BLOCKS):
        scale[first:last] = 1 / np.sqrt((x[:, first:last] ** 2).sum(1).mean())
    x *= scale
    captions = [
        [[token for token in caption if token > 0] for caption in image if caption[0] > 0]
        for image in photographs.captions[train].tolist()
    ]
    counts = Counter(gram for image in captions for gram in {g for caption in image for g in ngrams(caption)})
    idf = {gram: float(np.log(len(train) / count)) for gram, count in counts.items()}
    kept = {gram: slot for slot, gram in enumerate(sorted(gram for gram, c in counts.items() if c >= MIN_COUNT))}
    target = np.zeros((len(train), len(kept)), np.float32)
    for row, image in zip(target, captions, strict=True):
        for caption in image:
            for gram, value in normalized(caption, idf, 0.0).items():
                if gram in kept:
                    row[kept[gram]] += value / len(image)
    bias = target.mean(0)
    gram_matrix = x.T @ x + RIDGE * np.eye(INPUTS, dtype=np.float32)
    weight = np.linalg.solve(gram_matrix, x.T @ (target - bias)).T
    table = np.full((len(kept), 4), -1, np.int16)
    for gram, slot in kept.items():
        table[slot, : len(gram)] = gram
    rare = np.log(len(train) / np.mean([count for count in counts.values() if count < MIN_COUNT]))
    write_tensors(
        folder / "consensus.safetensors",
        {
            "mean": torch.from_numpy(mean),
            "scale": torch.from_numpy(scale),
            "weight": torch.from_numpy(np.ascontiguousarray(weight)),
            "bias": torch.from_numpy(bias),
            "idf": torch.tensor([idf[gram] for gram in kept]),
            "rare": torch.tensor([rare]),
        },
        whole={"ngrams": torch.from_numpy(table)},
    )
    print(f"{len(kept)} n-grams")


if __name__ == "__main__":
    main()
