"""Referring expressions: RefCOCO, Flickr30k Entities and scenes; their files and data sets, and their accuracy.

A box is x1 y1 x2 y2 in pixels. As in Fast R-CNN and its descendants (MCAN's grounding code among them) both edges of a
box are part of it, so its width is x2 - x1 + 1. The papers name no convention, which decides a few boxes on the border.

Some expressions about scenes depend on boxes; the controls depend on the kinds of things only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from legenda.config import Count, Id, Integer, Number, conform, get_field
from legenda.data.registry import choose_split, hold_out
from legenda.data.scenes import FEATURE_DIM, SCENES
from legenda.data.scenes.pixels import SIDE, SceneCounts, scene_reader
from legenda.data.scenes.scene import Scene, Thing
from legenda.errors import DataError
from legenda.extras.vqa.co_attention import (
    CoAttentionDataModule,
    CoAttentionDataset,
    StoredData,
    words_of,
)
from legenda.extras.vqa.text import tokenize_question
from legenda.features.base import ConcatFeatureStore
from legenda.features.readers import open_stores
from legenda.io import read_json, read_pickle
from legenda.terminal import counted
from legenda.text.annotations import read_annotations

HIT = 0.5
"""The IoU from which a box counts as correct."""


def box_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes.

    a, b: boxes `(..., 4)` whose leading axes broadcast, as in `box_iou(boxes, truth[:, None])` of `(B, N, 4)` and
    `(B, 1, 4)`.
    """
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    intersection = (high - low + 1.0).clip(0).prod(-1)
    areas = (a[..., 2:] - a[..., :2] + 1.0).prod(-1) + (b[..., 2:] - b[..., :2] + 1.0).prod(-1)
    union = areas - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def score_targets(iou: np.ndarray) -> np.ndarray:
    """Return the target distribution over boxes `(B, N)`, given their IoU with the ground truth `(B, N)`.

    IoUs of at least 0.5, normalized to sum to 1; all zeros where there are none.
    """
    positive = np.where(iou >= HIT, iou, 0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def grounding_accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the percentage of boxes `(E, 4)` whose IoU with the ground truth `(E, 4)` is at least 0.5.

    This is the rule of MCAN's code; the papers say "more than" 0.5.

    Raise DataError where the shapes differ or are empty.
    """
    if predicted.shape != truth.shape or len(predicted) == 0:
        raise DataError(
            f"predicted boxes {predicted.shape} and true boxes {truth.shape} must have the same shape (expressions, 4) "
            "with at least one expression"
        )
    return 100.0 * float((box_iou(predicted, truth) >= HIT).mean())


ExpressionKind = Literal["near", "size", "plain"]

PER_SCENE = 3
"""Expressions of one scene: two about the pair of its family, except in the family bind, and controls."""
_MOST_WORDS = 7
"""Words of the longest expression."""


@dataclass(frozen=True)
class SceneExpression:
    """Words that mean one thing of a scene."""

    text: str
    thing: Thing
    kind: ExpressionKind


def refer(scene: Scene) -> tuple[SceneExpression, ...]:
    """Return PER_SCENE expressions of things in a scene, always the same for it."""
    rng = random.Random(f"expressions-{scene.id}")
    first, second = scene.first, scene.second
    match scene.family:
        case "near":
            pairs = (first, second), (second, first)
            about = [SceneExpression(f"the thing next to the {a.color} {a.shape}", b, "near") for a, b in pairs]
        case "size":
            sizes = ("larger", first), ("smaller", second)
            about = [SceneExpression(f"the {word} {first.shape}", thing, "size") for word, thing in sizes]
        case "bind":
            about = []
        case _:
            raise DataError(
                f"there are no expressions about scenes of the family {scene.family}; choose near, size or bind"
            )
    controls = rng.sample(scene.things, PER_SCENE - len(about))
    return *about, *(_plain(rng, thing, scene) for thing in controls)


def _plain(rng: random.Random, thing: Thing, scene: Scene) -> SceneExpression:
    """Return an expression for a thing by its color and shape, or by one of the two that no other thing has."""
    phrases = [f"the {thing.color} {thing.shape}"]
    if sum(other.shape == thing.shape for other in scene.things) == 1:
        phrases.append(f"the {thing.shape}")
    if sum(other.color == thing.color for other in scene.things) == 1:
        phrases.append(f"the {thing.color} thing")
    return SceneExpression(rng.choice(phrases), thing, "plain")


Box = tuple[Number, Number, Number, Number]
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


@dataclass(slots=True)
class _Sentence:
    sent_id: Integer
    tokens: list[str]


@dataclass(slots=True)
class _Reference:
    image_id: Integer
    ann_id: Integer
    split: str
    sentences: list[_Sentence]


@dataclass(slots=True)
class _Image:
    id: Integer
    width: Number
    height: Number


@dataclass(slots=True)
class _Thing:
    id: Integer
    bbox: tuple[Number, Number, Number, Number]


@dataclass(slots=True)
class _Caption:
    text: str
    phrases: list[tuple[Id, Annotated[list[str], Field(min_length=1)], Integer, Integer]]


@dataclass(slots=True)
class _Phrases:
    width: Number
    height: Number
    boxes: dict[str, list[Box]]
    captions: list[_Caption] | None = None


def read_refs(path: Path, instances: Path) -> dict[str, list[Expression]]:
    """Read referring expressions, one for every sentence, by split: train, val, and testA and testB or test.

    path: the pickle refs(unc).p, refs(umd).p or refs(google).p, which is read without running code in it.
    instances: the images' sizes and the boxes of things, in COCO's layout.
    Raises DataError, naming the file and the key, for what is missing, and for a pickle of more than plain data.
    """
    sizes, boxes = _read_instances(instances)
    splits: dict[str, list[Expression]] = {}
    seen: set[str] = set()
    for number, entry in enumerate(conform(read_pickle(path, _REFS), list[_Reference], f"{path}: entry", _REFS)):
        where, image, box = f"{path}: entry {number}", entry.image_id, entry.ann_id
        if image not in sizes or box not in boxes:
            raise DataError(f"{where} names the image {image} and the box {box}, one of which {instances} lacks")
        if not (_is_box(boxes[box]) and _is_box((0.0, 0.0, *sizes[image]))):
            raise DataError(f"{where} names a box or an image without finite area in {instances}; {_INSTANCES}")
        split = splits.setdefault(entry.split, [])
        for sentence in entry.sentences:
            name = str(sentence.sent_id)
            if name in seen:
                raise DataError(f"{path} has the sentence {name} twice; leave one of them out")
            seen.add(name)
            split.append(Expression(name, str(image), tuple(sentence.tokens), (boxes[box],), sizes[image]))
    if not splits:
        raise DataError(f"{path} holds no expressions; {_REFS}")
    return {split: expressions for split, expressions in splits.items() if expressions}


def _read_instances(path: Path) -> tuple[dict[int, tuple[float, float]], dict[int, Box]]:
    """Return the sizes of images and the boxes of things, by their numbers."""
    content = read_json(path, _INSTANCES)
    images = get_field(content, "images", list[_Image], path, _INSTANCES)
    corners = ((thing.id, *thing.bbox) for thing in get_field(content, "annotations", list[_Thing], path, _INSTANCES))
    boxes = {number: (x, y, x + width, y + height) for number, x, y, width, height in corners}
    return {image.id: (image.width, image.height) for image in images}, boxes


def read_entities(path: Path, annotations: Path) -> dict[str, list[Expression]]:
    """Read the phrases of captions that mean something with a box, by split.

    path: for each file name the image's width and height, `boxes` by chain, and `captions` with their text and
    `phrases`: chain, types, first word and number of words. An image without captions is passed over, for a test set
    may withhold them, and so is a phrase without a box or without a letter.
    annotations: any that `legenda.text.annotations` reads, for the splits. A phrase's kind is its first type.
    Raises DataError, naming the file and the image, for what is missing.
    """
    content = conform(read_json(path, _ENTITIES), dict[str, _Phrases], f"{path}: image", _ENTITIES)
    splits = {PurePosixPath(image.file).name: image.split for image in read_annotations(annotations)}
    by_split: dict[str, list[Expression]] = {}
    for file, entry in content.items():
        if file not in splits:
            raise DataError(
                f"{annotations} lacks '{file}', whose phrases are in {path}; name those of the same data set"
            )
        if entry.captions is None:
            continue
        for box in ((0.0, 0.0, entry.width, entry.height), *chain.from_iterable(entry.boxes.values())):
            if not _is_box(box):
                raise DataError(f"{path}: the box {box} of '{file}' is empty or not finite; {_ENTITIES}")
        by_split.setdefault(splits[file], []).extend(_phrases(PurePosixPath(file).stem, entry, entry.captions))
    if not any(by_split.values()):
        raise DataError(f"{path} holds no phrases with boxes; {_ENTITIES}")
    return {split: expressions for split, expressions in by_split.items() if expressions}


def _phrases(image: str, entry: _Phrases, captions: Sequence[_Caption]) -> Iterator[Expression]:
    for number, caption in enumerate(captions):
        words = caption.text.split()
        for index, (thing, types, first, count) in enumerate(caption.phrases):
            tokens = tuple(tokenize_question(" ".join(words[first : first + count])))
            if tokens and (boxes := entry.boxes.get(thing)):
                name = f"{image}-{number}-{index}"  # two phrases may start at the same word
                yield Expression(name, image, tokens, tuple(boxes), (entry.width, entry.height), types[0])


def _is_box(box: Box) -> bool:
    """Return whether a box has a finite area above 0."""
    x1, y1, x2, y2 = box
    return x1 < x2 and y1 < y2 and math.isfinite((x2 - x1) * (y2 - y1))


@dataclass(frozen=True, eq=False)
class ExpressionDataset(CoAttentionDataset[Expression, Sequence[float]]):
    """One split of `Expression`s about images whose regions have boxes."""

    @classmethod
    def stored(cls, examples: Sequence[Expression], store: ConcatFeatureStore) -> Self:
        """Return expressions about images whose regions are in stores; raise DataError where these have no boxes."""
        if not store.has_boxes:
            raise DataError(f"{store.source} has no boxes, among which expressions choose; name features of regions")
        return super().stored(examples, store)

    @cached_property
    def boxes(self) -> np.ndarray:
        """Return the true boxes `(E, 4)` float32, x1 y1 x2 y2 in pixels."""
        return np.array([expression.box for expression in self.examples], np.float32)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Width and height of the images `(E, 2)` float32, in pixels."""
        return np.array([expression.size for expression in self.examples], np.float32)

    def score(self, predictions: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
        """Return the percentage of boxes, x1 y1 x2 y2 in pixels, with IoU of at least 0.5: overall, then by kind.

        Raises DataError, naming the expression, for one without a box.
        """
        for name in self.ids:
            if len(predictions.get(name, ())) != 4:
                raise DataError(f"the expression {name} has no predicted box x1 y1 x2 y2; predict one for each")
        predicted = np.array([predictions[name] for name in self.ids], np.float32)
        kinds = np.array([expression.kind for expression in self.examples])
        scores: dict[str, float | None] = {"accuracy": grounding_accuracy(predicted, self.boxes)}
        for kind in dict.fromkeys(kinds.tolist()):
            if kind:
                scores[kind] = grounding_accuracy(predicted[kinds == kind], self.boxes[kinds == kind])
        return scores


class ExpressionData(StoredData[ExpressionDataset]):
    """Expressions in files, and feature stores of their images with boxes."""

    features: tuple[Path, ...]
    """Stores of regions, whose extractor was not trained on these images, such as MCAN's folders of .npz; or an .npz of
    detections."""
    validation: Literal["held_out", "val"] = "val"
    """What selects the best model: every 50th image of train, whose expressions are then not trained on; or val."""

    dataset = ExpressionDataset

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Read the expressions and open the features; the words are those of train."""
        progress("reading the expressions")
        path, parts = self.read()
        train = choose_split(parts, "train", path)
        if self.validation == "held_out":
            held_out, train = hold_out(train)
        else:
            held_out = choose_split(parts, "val", path)
        return self.load(train, held_out, words_of(train))

    def split(self, name: str) -> ExpressionDataset:
        """Return a split of the file: train, val and others."""
        path, parts = self.read()
        return ExpressionDataset.stored(choose_split(parts, name, path), open_stores(self.features))

    def read(self) -> tuple[Path, Mapping[str, Sequence[Expression]]]:
        """Return the file of the expressions, and these by split."""
        raise NotImplementedError


class RefsData(ExpressionData):
    """RefCOCO, RefCOCO+ or RefCOCOg and feature stores of COCO's images with boxes; with testA and testB, or test."""

    kind: Literal["refs"] = "refs"
    refs: Path
    """refs(unc).p of RefCOCO or RefCOCO+, refs(umd).p of RefCOCOg."""
    instances: Path
    """The instances.json of the same folder."""
    validation: Literal["held_out", "val"] = "held_out"
    """What selects the best model: every 50th image of train, whose expressions are then not trained on; or val, which
    tables score, as in the releases."""

    def read(self) -> tuple[Path, Mapping[str, Sequence[Expression]]]:
        """Return the file of the expressions, and these by split."""
        return self.refs, read_refs(self.refs, self.instances)


class EntitiesData(ExpressionData):
    """Flickr30k Entities' phrases and feature stores of regions under the images' file names without suffix."""

    kind: Literal["entities"] = "entities"
    phrases: Path
    """The phrases and boxes of each image, in the layout of flickr30k_entities.json; perhaps .gz."""
    annotations: Path
    """Captions with the splits of the images, such as dataset_flickr8k.json."""
    max_text_length: Count = 10
    """Words of a phrase that are read."""

    def read(self) -> tuple[Path, Mapping[str, Sequence[Expression]]]:
        """Return the file of the phrases, and these by split."""
        return self.phrases, read_entities(self.phrases, self.annotations)


class SceneExpressionsData(SceneCounts[ExpressionDataset]):
    """Expressions about the embedded scenes: three of each, some of which need boxes.

    See `refer`; `score` also returns the accuracy of each kind.
    """

    kind: Literal["scene_expressions"] = "scene_expressions"
    examples_each: ClassVar[int] = PER_SCENE

    def open(self, progress: Callable[[str], None]) -> CoAttentionDataModule:
        """Draw the scenes, find their regions in the pixels and refer to their things."""
        progress(f"drawing {counted(self.train, 'scenes')} for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        return CoAttentionDataModule(train, validation, words_of(train.examples), FEATURE_DIM, _MOST_WORDS)

    def split(self, name: str) -> ExpressionDataset:
        """Return the expressions about the scenes of a split; boxes are in pixels of the drawn image."""
        drawn, expressions, scenes = self.generate(name), [], []
        for index, scene in enumerate(drawn.scenes):
            for number, expression in enumerate(refer(scene)):
                x1, y1, x2, y2 = (edge * SIDE for edge in expression.thing.box)
                tokens, boxes = tuple(expression.text.split()), ((x1, y1, x2, y2),)
                expressions.append(
                    Expression(f"{scene.id}-{number}", scene.id, tokens, boxes, (SIDE, SIDE), expression.kind)
                )
                scenes.append(index)
        return ExpressionDataset(tuple(expressions), scene_reader(drawn, scenes), "scenes", SCENES)
