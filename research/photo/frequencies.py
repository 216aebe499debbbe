"""Write the document frequencies of COCO that the package holds, by which CIDEr-D of few photographs has a meaning.

    python research/photo/frequencies.py FOLDER OUT

reads captions.npz of FOLDER, of images whose captions may be used, and writes OUT: in how many of them each n-gram of
one to four words of the vocabulary occurs, for those of at least `LEAST` images. Others count as of one image.
"""

import sys
from pathlib import Path

import numpy as np
import safetensors.numpy

from legenda.io import atomic_write
from legenda.text import Vocabulary

LEAST = 8
"""Images of an n-gram that is stored."""
UNKNOWN = 1


def count_documents(captions: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n-grams `(M, 4)`, padded with -1, in the order of their ids, and how many images have each.

    captions: ids `(images, K, T)` below `size`, with the end, 0, and -1 after it.
    """
    grams, counts = [], []
    images = np.repeat(np.arange(len(captions)), captions.shape[1])
    rows = captions.reshape(len(images), -1).astype(np.int64)
    for order in range(1, 5):
        windows = np.lib.stride_tricks.sliding_window_view(rows, order, axis=1)
        image, start = np.nonzero((windows > UNKNOWN).all(2))
        codes = windows[image, start] @ size ** np.arange(order)[::-1]
        owner = images[image]
        by_code = np.lexsort((owner, codes))
        codes, owner = codes[by_code], owner[by_code]
        first = np.ones(len(codes), bool)
        first[1:] = (np.diff(codes) > 0) | (np.diff(owner) > 0)
        code, count = np.unique(codes[first], return_counts=True)
        code, count = code[count >= LEAST], count[count >= LEAST]
        digits = code[:, np.newaxis] // size ** np.arange(order)[::-1] % size
        grams.append(np.pad(digits, ((0, 0), (0, 4 - order)), constant_values=-1))
        counts.append(count)
    return np.concatenate(grams).astype(np.int16), np.concatenate(counts).astype(np.int32)


def main() -> None:
    """Write the file."""
    folder, out = map(Path, sys.argv[1:3])
    captions = np.load(folder / "captions.npz")["coco"]
    grams, counts = count_documents(captions, len(Vocabulary.load(folder / "vocabulary.txt")))
    arrays = {"ngrams": grams, "counts": counts, "documents": np.array([len(captions)])}
    with atomic_write(out) as partial:
        safetensors.numpy.save_file(arrays, partial)
    print(f"{len(grams)} n-grams of {len(captions)} images, {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
