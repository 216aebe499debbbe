"""Prepare the captions and boxes of COCO, and the captions of the photographs: one compact file.

    python research/photo/coco.py DATA OUT

writes OUT/vocabulary.txt, OUT/captions.npz and OUT/embedding.npy, vectors of the words to begin with. COCO's images
of which no caption or box may be used in any stage are left out: those of coco_splits/withheld_photos.txt and
Karpathy's validation and test images; so are all photographs of DATA/coco_photos, which later stages train and
validate on. Takes about a minute.

captions.npz: `ids` of COCO's images; `boxes` (0..4095) and `categories` of all of them, with `box_starts`; `coco`,
`photo_coco` and `photo_flickr`: ids of the captions' words, 5 captions an image, `(images, 5, 18)`, after the words
the end, then -1; `photo_*_split`: 0 train, 1 val, 2 test (without captions).
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from legenda.text import Vocabulary, ptb_tokenize
from legenda.text.annotations import CaptionedImage, read_annotations

MAX_WORDS = 17
"""Words of a caption that are learned."""
MIN_COCO, MIN_FLICKR = 40, 6
"""A word is in the vocabulary where it is so frequent in either set's training captions."""
SPLITS = {"train": 0, "val": 1, "test": 2}
Tokens = list[list[str]]


def withheld_ids(data: Path) -> set[int]:
    """Return the ids whose captions and boxes must not be used."""
    splits = data / "coco_splits"
    ids = {int(line) for line in (splits / "withheld_photos.txt").read_text().split()}
    for name in ("val", "test"):
        lines = (splits / f"karpathy_{name}_images.txt").read_text().splitlines()
        ids |= {int(line.split()[-1]) for line in lines if line.strip()}
    return ids


def coco_images(data: Path) -> list[CaptionedImage]:
    """Return COCO's images, of both years' files, whose captions may be used: all that are not withheld."""
    withheld = withheld_ids(data)
    return [image for image in read_annotations(data / "coco_captions") if int(image.id) not in withheld]


def read_photographs(path: Path) -> tuple[list[int], np.ndarray, list[Tokens]]:
    """Return COCO's ids (0 for others), splits and tokenized captions of a file in Karpathy's layout."""
    with gzip.open(path) as file:
        entries = json.load(file)["images"]
    splits = np.array([SPLITS[entry["split"]] for entry in entries], np.uint8)
    tokens = [[ptb_tokenize(sentence["raw"]) for sentence in entry.get("sentences", [])] for entry in entries]
    return [entry.get("cocoid", 0) for entry in entries], splits, tokens


def encode(images: Sequence[Tokens], vocabulary: Vocabulary) -> np.ndarray:
    """Return the first five captions of each image as ids; missing ones are -1."""
    rows = np.full((len(images), 5, MAX_WORDS + 1), -1, np.int16)
    for row, image in enumerate(images):
        for number, tokens in enumerate(image[:5]):
            ids = [*vocabulary.encode(tokens), vocabulary.eos_token_id][: MAX_WORDS + 1]
            rows[row, number, : len(ids)] = ids
    return rows


def word_vectors(captions: np.ndarray, words: int, channels: int = 256) -> np.ndarray:
    """Return vectors of length 1 of all words from their neighbors, up to two positions away (Levy and Goldberg, 2014).

    captions: ids `(..., T)`, padded with -1.
    """
    rows = captions.reshape(-1, captions.shape[-1]).astype(np.int64)
    matrix = np.zeros((words, 4 * words), np.float32)
    for number, offset in enumerate((-2, -1, 1, 2)):
        first, last = (rows[:, -offset:], rows[:, :offset]) if offset < 0 else (rows[:, :-offset], rows[:, offset:])
        known = (first >= 0) & (last >= 0)
        pairs = np.bincount(first[known] * words + last[known], minlength=words * words)
        matrix[:, number * words : (number + 1) * words] = pairs.reshape(words, words)
    expected = (matrix.sum(1, keepdims=True) + 1) * (matrix.sum(0, keepdims=True) + 50) / matrix.sum()
    positive = np.log(np.maximum(matrix / expected, 1))
    values, basis = np.linalg.eigh(positive @ positive.T)
    vectors = basis[:, ::-1][:, :channels] * values[::-1][:channels].clip(0) ** 0.25
    return (vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9)).astype(np.float32)


def main() -> None:
    """Write the files."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    photo_ids, coco_split, photo_coco = read_photographs(data / "coco_photos" / "dataset_coco_photos.json.gz")
    _, flickr_split, photo_flickr = read_photographs(data / "flickr8k" / "dataset_flickr8k.json.gz")
    photographs = set(photo_ids)
    stored = np.load(data / "coco_boxes.npz")
    starts = np.concatenate([[0], np.cumsum(stored["count"], dtype=np.int64)])
    slot = {int(number): position for position, number in enumerate(stored["image_id"])}
    images = [
        (int(image.id), [ptb_tokenize(caption) for caption in image.captions])
        for image in coco_images(data)
        if int(image.id) in slot and int(image.id) not in photographs
    ]
    ids = np.array([number for number, _ in images])
    coco = [tokens for _, tokens in images]
    in_coco = Counter(token for image in coco for caption in image for token in caption)
    train = [image for image, split in zip(photo_flickr, flickr_split, strict=True) if split == 0]
    in_flickr = Counter(token for image in train for caption in image for token in caption)
    kept = {token: count for token, count in in_coco.items() if count >= MIN_COCO}
    kept |= {token: in_coco[token] + count for token, count in in_flickr.items() if count >= MIN_FLICKR}
    vocabulary = Vocabulary.from_counts(kept, min_count=1)
    vocabulary.save(out / "vocabulary.txt")
    slots = np.array([slot[number] for number in ids.tolist()])
    chosen = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in slots])
    np.savez(
        out / "captions.npz",
        ids=ids,
        boxes=stored["boxes"][chosen],
        categories=stored["category"][chosen],
        box_starts=np.concatenate([[0], np.cumsum(stored["count"][slots], dtype=np.int64)]),
        coco=encode(coco, vocabulary),
        photo_coco=encode(photo_coco, vocabulary),
        photo_flickr=encode(photo_flickr, vocabulary),
        photo_coco_split=coco_split,
        photo_flickr_split=flickr_split,
    )
    rows = [encode(coco, vocabulary), encode(train, vocabulary)]
    np.save(out / "embedding.npy", word_vectors(np.concatenate(rows), len(vocabulary)))
    print(f"{len(ids)} images of COCO, {len(vocabulary)} tokens")


if __name__ == "__main__":
    main()
