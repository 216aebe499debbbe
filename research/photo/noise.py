"""How the detector damages true boxes: measured on photographs, drawn anew for images of which only boxes are known.

    python research/photo/noise.py DATA OUT

reads OUT/plain.npz (of vectors.py) and DATA/coco_boxes.npz, prints what the detector misses and invents, and writes
OUT/noise.npz. Only training photographs are measured, without the 346 that are cropped or squashed against COCO's size.

Each true object of a photograph has a record: the detections that belong to it. The best one of its class that overlaps
it by half is its own; others, of any class, belong to the object that they overlap most, by a tenth of their
area at least. An object of another image draws a record of its class and size, or where fewer than `MIN_POOL` exist, of
its size. Detections that belong to no object are drawn from photographs with the same main class.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from coco import TRAIN

CLASSES = 80
SIZES = np.array([0.05, 0.1, 0.2, 0.4])
"""Roots of areas, as shares of the image, that separate sizes."""
MIN_SCORE = 0.25
MIN_POOL = 15
SAME = 255
"""Stands for the class of the object itself."""


@dataclass(frozen=True, eq=False)
class DetectorNoise:
    """Records of objects, and free detections of photographs.

    pools, pool_starts: the records of class c and size s begin at pool_starts[5 * c + s]; those of each size for all
    classes follow. record_starts: where the detections of each record begin in boxes (relative to the object's corner,
    in its widths and heights), scores and classes. free_*: the detections of each photograph that belong to no object;
    donors, donor_starts: photographs of each main class, then all.
    """

    pools: np.ndarray
    pool_starts: np.ndarray
    record_starts: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    free_starts: np.ndarray
    free_boxes: np.ndarray
    free_scores: np.ndarray
    free_classes: np.ndarray
    donors: np.ndarray
    donor_starts: np.ndarray

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the noise of a file that this script wrote."""
        stored = np.load(path)
        return cls(*(stored[name] for name in cls.__dataclass_fields__))

    def draw(
        self, boxes: np.ndarray, classes: np.ndarray, starts: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return what the detector might see of B images: boxes, scores, classes, and the image of each detection.

        boxes: true ones in 0..1, `(objects, 4)`, with their classes; starts: where each image's objects begin, `(B +
        1,)`.
        """
        owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        extent = (boxes[:, 2:] - boxes[:, :2]).clip(1e-3)
        size = np.searchsorted(SIZES, np.sqrt(extent.prod(1)))
        key = len(SIZES) * classes.astype(int) + classes + size
        few = self.pool_starts[key + 1] - self.pool_starts[key] < MIN_POOL
        key = np.where(few, (len(SIZES) + 1) * CLASSES + size, key)
        record = self.pools[_choose(self.pool_starts, key, generator)]
        objects, detection = _ranges(self.record_starts, record)
        label = self.classes[detection]
        kept = (label == SAME) | ~few[objects]
        objects, detection, label = objects[kept], detection[kept], label[kept]
        label = np.where(label == SAME, classes[objects], label)
        scale = np.tile(extent[objects], 2)
        seen = np.tile(boxes[objects, :2], 2) + self.boxes[detection] * scale
        main = np.zeros(len(starts) - 1, int)
        for image in range(len(main)):  # the class that covers most
            part = slice(starts[image], starts[image + 1])
            main[image] = np.bincount(classes[part], extent[part].prod(1), minlength=1).argmax()
        few_donors = self.donor_starts[main + 1] - self.donor_starts[main] < MIN_POOL
        donor = self.donors[_choose(self.donor_starts, np.where(few_donors, CLASSES, main), generator)]
        image, free = _ranges(self.free_starts, donor)
        return (
            np.concatenate([seen, self.free_boxes[free]]).clip(0, 1).astype(np.float32),
            np.concatenate([self.scores[detection], self.free_scores[free]]),
            np.concatenate([label, self.free_classes[free]]),
            np.concatenate([owner[objects], image]),
        )


def _choose(starts: np.ndarray, key: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a random position between starts[key] and starts[key + 1]."""
    return starts[key] + (generator.random(len(key)) * (starts[key + 1] - starts[key])).astype(int)


def _ranges(starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return owner and element of all elements starts[c] .. starts[c + 1] of the chosen c."""
    sizes = starts[chosen + 1] - starts[chosen]
    owner = np.repeat(np.arange(len(chosen)), sizes)
    offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owner, starts[chosen][owner] + offset


def overlaps(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intersection over union, and over the area of the first, of all pairs `(first, second)`."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = (high - low).clip(0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (first, second)]
    return common / (areas[0][:, None] + areas[1] - common + 1e-9), common / (areas[0][:, None] + 1e-9)


def main() -> None:
    """Measure, print and write."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    vectors, truth, photographs = (
        dict(np.load(path)) for path in (out / "plain.npz", data / "coco_boxes.npz", out / "captions.npz")
    )
    cropped = json.loads((data / "coco_photos_more" / "cropped_in_coco_photos.json").read_text())
    measured = (photographs["photo_split"] == TRAIN) & ~np.isin(photographs["photo_ids"], cropped)
    starts = np.concatenate([[0], np.cumsum(truth["count"], dtype=np.int64)])
    slot = {int(number): position for position, number in enumerate(truth["image_id"])}
    records: list[list[tuple[np.ndarray, float, int]]] = []
    keys, free, mains, hit = [], [], [], []
    for row, photograph in enumerate(vectors["rows"]):
        number = int(photographs["photo_ids"][photograph])
        if not measured[photograph] or number not in slot:
            continue
        s = slot[number]
        boxes = truth["boxes"][starts[s] : starts[s + 1]] / 4095
        classes = truth["category"][starts[s] : starts[s + 1]].astype(int)
        seen = np.flatnonzero(vectors["scores"][row] >= MIN_SCORE)
        found, score, label = (vectors[name][row][seen] for name in ("boxes", "scores", "classes"))
        union, inside = overlaps(found, boxes)
        own: list[list[tuple[np.ndarray, float, int]]] = [[] for _ in boxes]
        taken = np.zeros(len(boxes), bool)
        loose = []
        extent = (boxes[:, 2:] - boxes[:, :2]).clip(1e-3)
        for d in np.argsort(-score):
            match = union[d] * (classes == label[d]) * ~taken
            if match.max() >= 0.5:
                taken[match.argmax()] = True
                target, name = match.argmax(), SAME
            elif inside[d].max() >= 0.1:
                target = (union[d] + 1e-3 * inside[d]).argmax()
                name = SAME if label[d] == classes[target] else int(label[d])
            else:
                loose.append((found[d], score[d], label[d]))
                continue
            relative = (found[d] - np.tile(boxes[target, :2], 2)) / np.tile(extent[target], 2)
            own[target].append((relative, score[d], name))
        area = extent.prod(1)
        size = np.searchsorted(SIZES, np.sqrt(area))
        records += own
        keys += (5 * classes + size).tolist()
        hit += taken.tolist()
        free.append(loose)
        mains.append(np.bincount(classes, area, minlength=1).argmax())
    key, hits, main_class = np.array(keys), np.array(hit), np.array(mains)
    pools = [np.flatnonzero(key == k) for k in range(5 * CLASSES)] + [np.flatnonzero(key % 5 == s) for s in range(5)]
    donors = [np.flatnonzero(main_class == c) for c in range(CLASSES)] + [np.arange(len(main_class))]
    flat, loose = [d for record in records for d in record], [d for image in free for d in image]
    np.savez(
        out / "noise.npz",
        pools=np.concatenate(pools),
        pool_starts=np.cumsum([0, *map(len, pools)]),
        record_starts=np.cumsum([0, *map(len, records)]),
        boxes=np.array([d[0] for d in flat], np.float32),
        scores=np.array([d[1] for d in flat], np.float32),
        classes=np.array([d[2] for d in flat], np.uint8),
        free_starts=np.cumsum([0, *map(len, free)]),
        free_boxes=np.array([d[0] for d in loose], np.float32),
        free_scores=np.array([d[1] for d in loose], np.float32),
        free_classes=np.array([d[2] for d in loose], np.uint8),
        donors=np.concatenate(donors),
        donor_starts=np.cumsum([0, *map(len, donors)]),
    )
    print(f"{len(free)} photographs, {len(records)} objects, {len(flat)} detections of them, {len(loose)} of nothing")
    for s in range(5):
        of_size = key % 5 == s
        print(f"size {s}: {of_size.sum()} objects, recall {hits[of_size].mean():.3f}")
    labels = (data / "weights" / "coco_labels_80.txt").read_text().split("\n")
    recall = sorted((hits[key // 5 == c].mean(), labels[c], (key // 5 == c).sum()) for c in set(key // 5))
    print("lowest", [f"{n} {r:.2f} of {k}" for r, n, k in recall[:10]])
    print("highest", [f"{n} {r:.2f} of {k}" for r, n, k in recall[-10:]])


if __name__ == "__main__":
    main()
