"""What the captions of similar photographs lead to expect: the reward of self-critical training.

    python research/photo/consensus.py DATA FOLDER

reads vectors, shares.npz, predictor.safetensors and captions.npz of FOLDER and writes FOLDER/consensus.npz and
consensus.N.npy. For each training photograph, kernel ridge regression from image vectors to the TF-IDF vectors of
captions, cross-fitted in the folds of the word predictor, so that no photograph's own captions are in what is expected
of it. Takes about three minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix
from words import joined_others, load_vectors

from legenda.models.weights import load_tensors

GAMMA, RIDGE, DENSE_WEIGHT = 0.6, 0.6, 0.7
BASE = 1 << 15
"""More than the ids of the vocabulary; an n-gram is a number of n digits."""


def ngram_keys(captions: np.ndarray, n: int) -> np.ndarray:
    """Return the number of the n-gram that begins at each position of captions `(S, T)`; -1 where it has none.

    Ids below 1 (end, padding) end a caption.
    """
    length = np.cumprod(captions > 0, axis=1).sum(1)
    count = captions.shape[1] - n + 1
    keys = np.zeros((len(captions), max(count, 0)), np.int64)
    for offset in range(n):
        keys = keys * BASE + captions[:, offset : offset + keys.shape[1]]
    return np.where(np.arange(keys.shape[1]) + n <= length[:, None], keys, -1)


class Consensus:
    """CIDEr of captions against what is expected of their photographs.

    The mean over n = 1..4 of the product of the caption's normalized TF-IDF vector and the expected one, times 10, with
    CIDEr-D's penalty of lengths that differ from the expected one (Vedantam et al., CVPR 2015).
    """

    def __init__(self, folder: Path) -> None:
        stored = np.load(folder / "consensus.npz")
        self.keys = [stored[f"keys.{n}"] for n in range(1, 5)]
        self.idf = [stored[f"idf.{n}"] for n in range(1, 5)]
        self.most, self.lengths = float(stored["most"]), stored["lengths"]
        self.expected = [np.load(folder / f"consensus.{n}.npy", mmap_mode="r") for n in range(1, 5)]
        self.slot = {int(photograph): row for row, photograph in enumerate(stored["photographs"])}

    def __call__(self, photographs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the reward of captions `(B, K, T)` of photographs, `(B, K)`."""
        B, K, T = tokens.shape
        captions = tokens.reshape(B * K, T)
        rows = np.repeat([self.slot[int(photograph)] for photograph in photographs], K)
        total = np.zeros(B * K)
        for n in range(1, 5):
            caption, number, count, weight, norm = self._vectors(captions, n)
            known = number >= 0
            values = np.zeros(len(number))
            values[known] = self.expected[n - 1][rows[caption[known]], number[known]]
            total += np.bincount(caption, values * count * weight / norm[caption], minlength=B * K)
        length = np.cumprod(captions > 0, axis=1).sum(1)
        return (2.5 * total * np.exp(-((length - self.lengths[rows]) ** 2) / 72)).reshape(B, K)

    def _vectors(self, captions: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
        """Return caption, number (-1: unknown), count, weight of each distinct n-gram, and the norm of each caption."""
        keys = ngram_keys(captions, n)
        caption, _ = np.nonzero(keys >= 0)
        pairs, count = np.unique(np.stack([caption, keys[keys >= 0]]), axis=1, return_counts=True)
        caption, key = pairs.astype(np.int64)
        slot = np.searchsorted(self.keys[n - 1], key).clip(max=len(self.keys[n - 1]) - 1)
        number = np.where(self.keys[n - 1][slot] == key, slot, -1)
        weight = np.where(number >= 0, self.idf[n - 1][slot], self.most)
        norm = np.sqrt(np.bincount(caption, (count * weight) ** 2, minlength=len(captions))) + 1e-9
        return caption, number, count, weight, norm


def main() -> None:
    """Write the files."""
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    stored, captions = np.load(folder / "shares.npz"), np.load(folder / "captions.npz")
    train = np.flatnonzero(stored["split"] == 0)
    rows = np.concatenate([captions["photo_coco"], captions["photo_flickr"]])[train].astype(np.int64)
    weights = kernel_weights(data, folder, stored, train)
    count = len(train)
    flat = rows.reshape(-1, rows.shape[2])
    has_words = (flat > 0).any(1).reshape(count, 5)
    lengths = np.cumprod(flat > 0, axis=1).sum(1).reshape(count, 5).sum(1) / has_words.sum(1)
    parts = {"most": np.log(count), "photographs": train, "lengths": weights @ lengths.astype(np.float32)}
    for n in range(1, 5):
        keys = ngram_keys(flat, n)
        caption, _ = np.nonzero(keys >= 0)
        pairs, times = np.unique(np.stack([caption, keys[keys >= 0]]), axis=1, return_counts=True)
        caption, key = pairs
        image = caption // 5
        documents = np.unique(np.stack([image, key]), axis=1)[1]
        known, frequency = np.unique(documents, return_counts=True)
        known, frequency = known[frequency > 1], frequency[frequency > 1]
        idf = np.log(count / frequency)
        slot = np.searchsorted(known, key).clip(max=len(known) - 1)
        is_known = known[slot] == key
        weight = times * np.where(is_known, idf[slot], np.log(count))
        norm = np.sqrt(np.bincount(caption, weight**2, minlength=len(flat))) + 1e-9
        value = (weight / norm[caption] / has_words.sum(1)[image]).astype(np.float32)
        matrix = csr_matrix((value[is_known], (slot[is_known], image[is_known])), (len(known), count))
        expected = np.zeros((count, len(known)), np.float16)
        for first in range(0, count, 500):
            expected[first : first + 500] = (matrix @ weights[first : first + 500].T).T
        np.save(folder / f"consensus.{n}.npy", expected)
        parts |= {f"keys.{n}": known, f"idf.{n}": idf}
        print(f"{n}: {len(known)} n-grams", flush=True)
    np.savez(folder / "consensus.npz", **parts)


def kernel_weights(data: Path, folder: Path, stored: dict[str, np.ndarray], train: np.ndarray) -> np.ndarray:
    """Return the weight of each training photograph's captions for each of them, `(B, B)`; rows sum to 1."""
    vectors = [load_vectors(folder, name) for name in ("coco", "flickr")]
    x = np.concatenate(
        [np.concatenate([v["whole"].astype(np.float32), joined_others(v, data)], axis=1) for v in vectors]
    )[train]
    tensors = load_tensors(folder / "predictor.safetensors", "run words.py")
    x = (x - tensors["mean"].numpy()) * tensors["scale"].numpy()
    root = np.sqrt(stored["shares"][train].astype(np.float32))
    z = np.concatenate([_unit(x), DENSE_WEIGHT * _unit(root)], axis=1)
    del x, root
    norms = (z**2).sum(1)
    similar = np.exp(-GAMMA * (norms[:, None] + norms - 2 * z @ z.T).clip(0))
    weights = np.zeros_like(similar)
    folds = stored["folds"]
    for fold in np.unique(folds):
        inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        gram = similar[np.ix_(outside, outside)] + RIDGE * np.eye(len(outside), dtype=np.float32)
        solved = cho_solve(cho_factor(gram, overwrite_a=True), similar[np.ix_(outside, inside)]).T
        weights[np.ix_(inside, outside)] = solved + (1 - solved.sum(1, keepdims=True)) / len(outside)
    return weights


def _unit(x: np.ndarray) -> np.ndarray:
    """Return x less its mean, with rows of length 1 in the root mean square."""
    x = x - x.mean(0)
    return x / np.sqrt((x**2).sum(1).mean())


if __name__ == "__main__":
    main()
