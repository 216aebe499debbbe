"""The data settings of referring expressions: RefCOCO and its like, Flickr30k Entities or the embedded scenes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from legenda.config import Config
from legenda.data.expressions import ExpressionDataModule, ExpressionDataset, stored_expressions
from legenda.data.features.concat import ConcatFeatureStore
from legenda.data.refcoco import Box, Expression, read_entities, read_refs
from legenda.data.scenes import FEATURE_DIM, SceneSplit
from legenda.data.scenes.dataset import SceneCounts
from legenda.data.scenes.expressions import MOST_WORDS, PER_SCENE, refer
from legenda.data.scenes.pixels import SIDE
from legenda.data.scenes.reader import scene_reader
from legenda.data.splits import choose_split
from legenda.data.vqa import read_word_vectors
from legenda.text.vocabulary import QuestionVocabulary


class ExpressionData(Config):
    """Expressions in files, and feature stores of their images with boxes."""

    features: tuple[Path, ...]
    """Stores of regions, whose extractor was not trained on these images, such as MCAN's folders of .npz; or an .npz of
    detections."""
    vectors: Path | None = None
    """Initial word vectors, a text file in GloVe's layout; random if None."""
    max_text_length: int = 14
    """Words of an expression that are read."""

    def open(self, progress: Callable[[str], None]) -> ExpressionDataModule:
        """Read the expressions and open the features; the words are those of train."""
        path, read = self.source()
        progress(f"reading {path}")
        parts, store = read(), ConcatFeatureStore.open(self.features)
        train, validation = (stored_expressions(choose_split(parts, name, path), store) for name in ("train", "val"))
        vocabulary = _words(train.expressions)
        vectors = None if self.vectors is None else read_word_vectors(self.vectors, vocabulary.tokens)
        return ExpressionDataModule(train, validation, vocabulary, store.feature_dim, self.max_text_length, vectors)

    def split(self, name: str) -> ExpressionDataset:
        """Return a split of the file: train, val and others."""
        path, read = self.source()
        return stored_expressions(choose_split(read(), name, path), ConcatFeatureStore.open(self.features))

    def source(self) -> tuple[Path, Callable[[], Mapping[str, Sequence[Expression]]]]:
        """Return the file of the expressions and its reader."""
        raise NotImplementedError


class RefsData(ExpressionData):
    """RefCOCO, RefCOCO+ or RefCOCOg and feature stores of COCO's images with boxes; with testA and testB, or test."""

    kind: Literal["refs"] = "refs"
    refs: Path
    """refs(unc).p of RefCOCO or RefCOCO+, refs(umd).p of RefCOCOg."""
    instances: Path
    """The instances.json of the same folder."""

    def source(self) -> tuple[Path, Callable[[], Mapping[str, Sequence[Expression]]]]:
        """Return the file of the expressions and its reader."""
        return self.refs, lambda: read_refs(self.refs, self.instances)


class EntitiesData(ExpressionData):
    """Flickr30k Entities' phrases and feature stores of regions under the images' file names without suffix."""

    kind: Literal["entities"] = "entities"
    phrases: Path
    """The phrases and boxes of each image, in the layout of flickr30k_entities.json; perhaps .gz."""
    annotations: Path
    """Captions with the splits of the images, such as dataset_flickr8k.json."""
    max_text_length: int = 10
    """Words of a phrase that are read."""

    def source(self) -> tuple[Path, Callable[[], Mapping[str, Sequence[Expression]]]]:
        """Return the file of the phrases and its reader."""
        return self.phrases, lambda: read_entities(self.phrases, self.annotations)


class SceneExpressionsData(SceneCounts):
    """Expressions about the embedded scenes: three of each, some of which need boxes.

    See `legenda.data.scenes.expressions`; `score` also returns the accuracy of each kind.
    """

    kind: Literal["scene_expressions"] = "scene_expressions"
    examples_each: ClassVar[int] = PER_SCENE

    def open(self, progress: Callable[[str], None]) -> ExpressionDataModule:
        """Draw the scenes, find their regions in the pixels and refer to their things."""
        progress(f"drawing {self.train} scenes for training and {self.validation} for validation")
        train, validation = self.split("train"), self.split("val")
        return ExpressionDataModule(train, validation, _words(train.expressions), FEATURE_DIM, MOST_WORDS)

    def split(self, name: str) -> ExpressionDataset:
        """Return the expressions about the scenes of a split."""
        return scene_expressions(self.generate(name))


def scene_expressions(scene_split: SceneSplit) -> ExpressionDataset:
    """Scenes as a set of expressions; the true boxes are those of the things, in pixels of the drawn image."""
    expressions, scenes = [], []
    for index, scene in enumerate(scene_split.scenes):
        for number, found in enumerate(refer(scene)):
            x1, y1, x2, y2 = (edge * SIDE for edge in found.thing.box)
            box: Box = (x1, y1, x2, y2)
            name, tokens = f"{scene.id}-{number}", tuple(found.text.split())
            expressions.append(Expression(name, scene.id, tokens, (box,), (SIDE, SIDE), found.kind))
            scenes.append(index)
    return ExpressionDataset(tuple(expressions), scene_reader(scene_split, scenes), "scenes", "scenes")


def _words(expressions: Sequence[Expression]) -> QuestionVocabulary:
    return QuestionVocabulary.build(expression.tokens for expression in expressions)
