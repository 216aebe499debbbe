"""Expressions and the boxes they mean, from the files of RefCOCO, RefCOCO+ and RefCOCOg and of Flickr30k Entities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from legenda.data.annotations import read_annotations
from legenda.errors import DataError
from legenda.io import get_field, read_json, read_pickle
from legenda.text.tokenizers import tokenize_question

Box = tuple[float, float, float, float]
"""x1 y1 x2 y2, in pixels here."""

_REFS = "name a refs(...).p of RefCOCO, RefCOCO+ or RefCOCOg"
_INSTANCES = "name the instances.json of the same folder"
_ENTITIES = "name phrases and boxes in the layout of flickr30k_entities.json"


@dataclass(frozen=True)
class Expression:
    """An expression that refers to one thing, or several, in one image.

    id: unique in its data set; image: the image as feature stores name it, or its number in COCO; boxes: those of
    the things, in pixels; size: width and height of the image in pixels; kind: the sort of expression, for which
    the accuracy is reported separately, or empty.
    """

    id: str
    image: str
    tokens: tuple[str, ...]
    boxes: tuple[Box, ...]
    size: tuple[float, float]
    kind: str = ""

    @property
    def box(self) -> Box:
        """Return the smallest box around all of the things, which is what a prediction is compared with."""
        corners = np.array(self.boxes)
        return (*corners[:, :2].min(axis=0).tolist(), *corners[:, 2:].max(axis=0).tolist())


def read_refs(refs: str | Path, instances: str | Path) -> dict[str, list[Expression]]:
    """Read referring expressions, one for every sentence, by split: train, val, and testA and testB or test.

    refs: the pickle refs(unc).p, refs(umd).p or refs(google).p, which is read without running code in it.
    instances: the images' sizes and the boxes of things, in COCO's layout.
    Raises DataError, naming the file and the key, for what is missing, and for a pickle of more than plain data.
    """
    path, sizes_path = Path(refs), Path(instances)
    sizes, boxes = _read_instances(sizes_path)
    entries = read_pickle(path, _REFS)
    if not isinstance(entries, list):
        raise DataError(f"{path} holds no list of expressions; {_REFS}")
    splits: dict[str, list[Expression]] = {}
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        where = f"{path}: entry {number}"
        image, box = (get_field(entry, key, int, where, _REFS) for key in ("image_id", "ann_id"))
        if image not in sizes or box not in boxes:
            raise DataError(f"{where} names the image {image} and the box {box}, one of which {sizes_path} lacks")
        if not (_is_box(boxes[box]) and _is_box((0.0, 0.0, *sizes[image]))):
            raise DataError(f"{where} names a box or an image without finite area in {sizes_path}; {_INSTANCES}")
        split = splits.setdefault(get_field(entry, "split", str, where, _REFS), [])
        for index, sentence in enumerate(get_field(entry, "sentences", list, where, _REFS)):
            inner = f"{where}, sentences[{index}]"
            name = str(get_field(sentence, "sent_id", int, inner, _REFS))
            tokens = get_field(sentence, "tokens", list, inner, _REFS)
            if not all(isinstance(token, str) for token in tokens):
                raise DataError(f"the 'tokens' of {inner} are not all text; {_REFS}")
            if name in seen:
                raise DataError(f"{path} has the sentence {name} twice; leave one of them out")
            seen.add(name)
            split.append(Expression(name, str(image), tuple(tokens), (boxes[box],), sizes[image]))
    if not splits:
        raise DataError(f"{path} holds no expressions; {_REFS}")
    return {split: expressions for split, expressions in splits.items() if expressions}


def _read_instances(path: Path) -> tuple[dict[int, tuple[float, float]], dict[int, Box]]:
    """Return the sizes of images and the boxes of things, by their numbers."""
    content = read_json(path, _INSTANCES)
    sizes: dict[int, tuple[float, float]] = {}
    boxes: dict[int, Box] = {}
    where = "the file"
    try:
        for number, image in enumerate(content["images"]):
            where = f"images[{number}]"
            sizes[image["id"]] = float(image["width"]), float(image["height"])
        where = "the file"
        for number, thing in enumerate(content["annotations"]):
            where = f"annotations[{number}]"
            x, y, width, height = map(float, thing["bbox"])
            boxes[thing["id"]] = x, y, x + width, y + height
    except KeyError as error:
        raise DataError(f"{path}: {where} has no '{error.args[0]}'; {_INSTANCES}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: {where} is not an image or a box ({error}); {_INSTANCES}") from error
    return sizes, boxes


def read_entities(phrases: str | Path, annotations: str | Path) -> dict[str, list[Expression]]:
    """Read the phrases of captions that mean something with a box, by split.

    phrases: for each file name the image's width and height, `boxes` by chain, and `captions` with their text and
    `phrases`: chain, types, first word and number of words. An image without captions is passed over, for a test set
    may withhold them, and so is a phrase without a box or without a letter.
    annotations: any that `legenda.data.annotations` reads, for the splits. A phrase's kind is its first type.
    Raises DataError, naming the file and the image, for what is missing.
    """
    path = Path(phrases)
    content = read_json(path, _ENTITIES)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no object with an image's file name as its key; {_ENTITIES}")
    splits = {PurePosixPath(image.file).name: image.split for image in read_annotations(annotations)}
    by_split: dict[str, list[Expression]] = {}
    for file, entry in content.items():
        if file not in splits:
            raise DataError(
                f"{annotations} lacks '{file}', whose phrases are in {path}; name those of the same data set"
            )
        try:
            if "captions" in entry:
                by_split.setdefault(splits[file], []).extend(_phrases(PurePosixPath(file).stem, entry))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            reason = f"no '{error.args[0]}'" if isinstance(error, KeyError) else f"an invalid value: {error}"
            raise DataError(f"{path}: '{file}' has {reason}; {_ENTITIES}") from error
    if not any(by_split.values()):
        raise DataError(f"{path} holds no phrases with boxes; {_ENTITIES}")
    return {split: expressions for split, expressions in by_split.items() if expressions}


def _phrases(image: str, entry: Mapping[str, Any]) -> list[Expression]:
    size = float(entry["width"]), float(entry["height"])
    if not _is_box((0.0, 0.0, *size)):
        raise ValueError(f"an image of {size[0]:g} x {size[1]:g} pixels")
    boxes = {chain: tuple(map(_box, corners)) for chain, corners in entry["boxes"].items()}
    expressions = []
    for number, caption in enumerate(entry["captions"]):
        words = caption["text"].split()
        for index, (chain, types, first, count) in enumerate(caption["phrases"]):
            tokens = tuple(tokenize_question(" ".join(words[first : first + count])))
            if tokens and boxes.get(str(chain)):
                name = f"{image}-{number}-{index}"  # two phrases may start at the same word
                expressions.append(Expression(name, image, tokens, boxes[str(chain)], size, types[0]))
    return expressions


def _box(values: Any) -> Box:
    x1, y1, x2, y2 = map(float, values)
    if not _is_box((x1, y1, x2, y2)):
        raise ValueError(f"the box {values} is empty or not finite")
    return x1, y1, x2, y2


def _is_box(box: Box) -> bool:
    """Return whether a box has a finite area above 0."""
    x1, y1, x2, y2 = box
    return x1 < x2 and y1 < y2 and math.isfinite((x2 - x1) * (y2 - y1))
