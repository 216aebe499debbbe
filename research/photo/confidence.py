"""Fit how sure a caption is: the probability that it names no thing that its photograph does not show.

    python research/photo/confidence.py FOLDER CHECKPOINT

captions the validation photographs with the packaged choice among beams, fits a logistic regression on the 400 that
choose, prints its coefficients, which `CONFIDENCE` of consensus.py takes, and how well it is calibrated on these and on
the 456 that only measure. A thing is shown where its class has a true box or one of the human captions names it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from coco import MEASURED, VALIDATION
from nouns import name_classes
from score import CONSENSUS_WEIGHT, generate, load_checkpoint
from selfcritical import count_absent, with_named
from sources import Photographs
from torch.nn import functional as F

from legenda.photo.consensus import Consensus
from legenda.photo.regions import labels

DECAY = 1e-3
BINS = 5


def fit(terms: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the coefficients of a logistic regression from terms `(N, 4)` to whether captions are right, `(N,)`."""
    x, y = torch.from_numpy(terms).double(), torch.from_numpy(right).double()
    weights = torch.zeros(terms.shape[1], dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(x @ weights, y) + DECAY * weights[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach().numpy()


def main() -> None:
    """Print the coefficients and the calibration."""
    torch.set_num_threads(1)
    folder, path = map(Path, sys.argv[1:3])
    photographs, model = Photographs(folder), load_checkpoint(folder, path)
    consensus = Consensus.load(folder, CONSENSUS_WEIGHT)
    names = name_classes(model.vocabulary, labels())
    coefficients = None
    for name, split in (("validation", VALIDATION), ("measured", MEASURED)):
        samples = photographs.rows(split)
        captions, means = generate(model, photographs, samples, consensus)
        tokens = [[list(model.vocabulary.encode(caption.split()))] for caption in captions]
        whole = photographs.features[photographs.starts[samples]].astype(np.float32)
        terms = consensus.confidence_terms(whole, tokens, np.array(means)[:, np.newaxis])[:, 0]
        padded = np.zeros((len(tokens), 1, 20), np.int64)
        for row, ((words,),) in enumerate(zip(tokens, strict=True)):
            padded[row, 0, : len(words)] = words
        shown = with_named(photographs.classes[samples], photographs.captions[samples].astype(np.int64), names)
        right = count_absent(padded, shown, names)[:, 0] == 0
        if coefficients is None:
            coefficients = fit(terms, right)
            print("coefficients", [round(float(value), 3) for value in coefficients])
        sure = 1 / (1 + np.exp(-(terms @ coefficients)))
        print(f"{name}: {right.mean():.3f} right, mean confidence {sure.mean():.3f}")
        for part in np.array_split(np.argsort(sure), BINS):
            print(f"  confidence {sure[part].min():.2f} to {sure[part].max():.2f}: {right[part].mean():.2f} right")


if __name__ == "__main__":
    main()
