"""Learn what CIDEr to expect of a caption of a photograph, by which the extractor `photo` chooses among beams.

    python research/photo/consensus.py FOLDER

reads photographs.npz and captions.npz of FOLDER and writes FOLDER/consensus.safetensors. Ridge regression from the
features of the whole image predicts the mean of the normalized TF-IDF vectors of its captions, for n-grams of 1 to 4
words, and logistic regression the classes of things that it shows. Only training photographs are learned. Takes about
half a minute on one core.
"""

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from coco import TRAIN
from nouns import name_classes
from selfcritical import with_named
from sources import Photographs
from torch.nn import functional as F
from words import write_tensors

from legenda.photo.consensus import INPUTS, normalized
from legenda.photo.regions import START_DENSE, START_GLOBAL, START_VISUAL, labels
from legenda.text import Vocabulary
from legenda.text.ngrams import ngrams

MIN_COUNT = 30
"""Training photographs and mirror images that have an n-gram which is expected."""
RIDGE = 3.0
STEPS, DECAY = 150, 3e-4
"""Steps of the logistic regression, and the weight of its squared weights."""
PENALTY = 0.15
"""What a unit of the improbability of named things takes from the expected CIDEr."""
CONFIDENCE = [2.786, -0.249, 0.253, -2.055]
"""Coefficients of one, mean log-probability, expected CIDEr and improbability; confidence.py fits them."""
BLOCKS = (0, START_VISUAL, START_GLOBAL, START_DENSE, INPUTS)
"""Where blocks of channels begin; each is divided by the root of its mean square length."""


def predict_classes(x: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weight `(classes, INPUTS)` and bias of a logistic regression from x to what is present, `(N, classes)`."""
    torch.manual_seed(0)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(present.astype(np.float32))
    weight = torch.zeros(targets.shape[1], x.shape[1], requires_grad=True)
    bias = torch.logit(targets.mean(0).clamp(1e-3, 1 - 1e-3)).requires_grad_(True)
    optimizer = torch.optim.Adam([weight, bias], lr=0.03)
    for _ in range(STEPS):
        loss = F.binary_cross_entropy_with_logits(inputs @ weight.T + bias, targets, reduction="sum") / len(x)
        loss = loss + DECAY * weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weight.detach().numpy(), bias.detach().numpy()


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
    names = name_classes(Vocabulary.load(folder / "vocabulary.txt"), labels())
    present = with_named(photographs.classes[train], photographs.captions[train].astype(np.int64), names)
    shown_weight, shown_bias = predict_classes(x, present)
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
            "shown.weight": torch.from_numpy(shown_weight),
            "shown.bias": torch.from_numpy(shown_bias),
            "penalty": torch.tensor([PENALTY]),
            "confidence": torch.tensor(CONFIDENCE),
        },
        whole={"ngrams": torch.from_numpy(table), "names": torch.from_numpy(names.astype(np.int16))},
    )
    print(f"{len(kept)} n-grams")


if __name__ == "__main__":
    main()
