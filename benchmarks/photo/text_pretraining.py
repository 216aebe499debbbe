"""Captions without images that train a decoder first, and the recipe photo.text.

It reads the files that prepare.py writes to the folder `photo`.

legenda train photo.text --plugin benchmarks/photo/text_pretraining.py --data.captions coco_captions --out runs/text

The recipes flickr8k.MODEL.text train the models of docs/results/flickr8k.md on COCO's captions before the photographs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import legenda
from legenda.data.annotations import read_annotations
from legenda.data.captions import CaptionDataset, DataModule
from legenda.data.features.predicted_words import WIDTH, WordTable, caption_shares
from legenda.errors import DataError
from legenda.io import verified
from legenda.recipes import Recipe, all_recipes, get_recipe
from legenda.regions import Regions
from legenda.text import Vocabulary, ptb_tokenize
from legenda.training.schedules import Cosine

_GIVEN = 2
"""Captions of an image whose words are given; the others are learned."""


@legenda.register_dataset("predicted_words")
@dataclass(frozen=True, kw_only=True)
class PredictedWordsData:
    """Captions of any images, for training a decoder on text before it sees images.

    Two captions of an image give its words, mapped to look like predicted ones: by the ridge regression from the words
    of two captions to the predictions of `shares`, plus the residuals of a random image there. The model learns the
    image's other captions. Images are those whose captions are most like `annotations` (Moore and Lewis, 2010).
    """

    captions: Path
    """Captions of the images without features: COCO's captions_*.json, or a folder of them, or another annotation."""
    annotations: Path
    """The annotated images whose words `shares` predicts."""
    shares: Path
    """Predicted words of those images, as prepare.py writes them."""
    words: Path
    """The folder of words.txt and words.safetensors, which the same command writes."""
    images: int = 60_500
    """How many images."""
    validation: int = 500
    """How many of them are kept for validation."""
    min_count: int = 4
    """Words that are less frequent in the training captions of `annotations`, and in `captions` than `other_count`,
    become <unk>."""
    other_count: int = 300

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Read the captions, choose the images and fit the regression."""
        progress(f"reading {self.captions} and {self.annotations}")
        known = {
            image.id: _tokens(image.captions) for image in read_annotations(self.annotations) if image.split == "train"
        }
        others = [(image.captions, _tokens(image.captions)) for image in read_annotations(self.captions)]
        others = [(captions, tokens) for captions, tokens in others if len(captions) > _GIVEN]
        counts = Counter(word for tokens in known.values() for caption in tokens for word in caption)
        other_counts = Counter(word for _, tokens in others for caption in tokens for word in caption)
        frequent = {word: count for word, count in other_counts.items() if count >= self.other_count}
        words = {word: count for word, count in counts.items() if count >= self.min_count}
        vocabulary = Vocabulary.from_counts(Counter(words) + Counter(frequent), min_count=1)
        chosen = [others[index] for index in _most_similar([t for _, t in others], counts, other_counts, self.images)]
        table = WordTable.load(self.words)
        progress(f"fitting the predictions of {self.shares}")
        simulate = _Simulation.fit(table, known, self.shares)
        order = np.random.default_rng(0).permutation(len(chosen))
        held_out, train = (
            _dataset([chosen[index] for index in part], table, simulate, random)
            for part, random in ((order[: self.validation], False), (order[self.validation :], True))
        )
        return DataModule(train, held_out, vocabulary, WIDTH, True)

    def split(self, name: str) -> CaptionDataset:
        """Return train or val."""
        data = self.open(lambda _: None)
        if name not in ("train", "val"):
            raise DataError(f"predicted words have the splits train and val, not {name!r}")
        return data.train if name == "train" else data.validation


def _tokens(captions: Sequence[str]) -> list[list[str]]:
    return [ptb_tokenize(caption) for caption in captions]


def _most_similar(
    images: Sequence[Sequence[Sequence[str]]], counts: Mapping[str, int], other_counts: Mapping[str, int], number: int
) -> np.ndarray:
    """Return the images with the largest mean log-ratio of word frequencies between the two sets, in their order."""
    total, other_total = sum(counts.values()), sum(other_counts.values())
    ratio = {
        word: np.log((counts.get(word, 0) + 1) / total) - np.log((count + 1) / other_total)
        for word, count in other_counts.items()
    }
    scores = [np.mean([ratio[word] for caption in tokens for word in caption] or [-9.0]) for tokens in images]
    return np.sort(np.argsort(-np.array(scores), kind="stable")[:number])


@dataclass(frozen=True, eq=False)
class _Simulation:
    """The regression from the words of two captions to predictions, on the scale of `WordTable.standardize`."""

    table: WordTable
    index: Mapping[str, int]
    matrix: np.ndarray
    residuals: np.ndarray

    @staticmethod
    def fit(table: WordTable, captions: Mapping[str, Sequence[Sequence[str]]], path: Path) -> _Simulation:
        stored = verified(lambda: np.load(path, allow_pickle=False), path, "run benchmarks/photo/prepare.py")
        names, shares = stored["ids"].tolist(), stored["shares"]
        index = {name: number for number, name in enumerate(table.names)}
        rows = [row for row, name in enumerate(names) if name in captions]
        given = np.stack([caption_shares(captions[names[row]][:_GIVEN], index) for row in rows])
        x, y = table.standardize(given), table.standardize(shares[rows].astype(np.float32))
        gram = x.T @ x + 30 * np.eye(x.shape[1], dtype=np.float32)
        matrix = np.linalg.solve(gram, x.T @ y).astype(np.float32)
        return _Simulation(table, index, matrix, y - x @ matrix)

    def __call__(self, captions: Sequence[Sequence[Sequence[str]]], residuals: np.ndarray) -> np.ndarray:
        """Return predictions `(B, W)` for the given captions of each image, with the residuals of some others."""
        given = np.stack([caption_shares(tokens[:_GIVEN], dict(self.index)) for tokens in captions])
        standardized = self.table.standardize(given) @ self.matrix + self.residuals[residuals]
        return (standardized + np.sqrt(self.table.prior)).clip(0) ** 2


def _dataset(
    images: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]],
    table: WordTable,
    simulate: _Simulation,
    random: bool,
) -> CaptionDataset:
    generator = np.random.default_rng(1)

    def read(positions: np.ndarray) -> Regions:
        drawn = generator.integers(len(simulate.residuals), size=len(positions)) if random else positions
        shares = simulate([images[position][1] for position in positions], drawn % len(simulate.residuals))
        features = table.regions(shares)
        whole = np.array([0.0, 0.0, 1.0, 1.0], np.float32)  # as the extractor gives for words
        return Regions.from_numpy(features, np.broadcast_to(whole, (*features.shape[:2], 4)).copy())

    references = tuple(tuple(captions[_GIVEN:]) for captions, _ in images)
    ids = tuple(str(number) for number in range(len(images)))
    return CaptionDataset(ids, references, read, "predicted words", "photo")


_photo = get_recipe("photo")
_folder = Path("photo")
_text = PredictedWordsData(
    captions=Path("coco_captions"),
    annotations=_folder / "halves.json",
    shares=_folder / "shares.npz",
    words=_folder,
)


def _text_recipe(recipe: Recipe, data: PredictedWordsData, **stage: Any) -> Recipe:
    """Return the recipe that trains the model of another one on captions of other images first."""
    return Recipe(
        name=f"{recipe.name}.text",
        summary=f"captions of COCO from simulated predicted words, before {recipe.name}",
        model=recipe.model,
        model_overrides=recipe.model_overrides,
        data=data,
        stages=(replace(recipe.stages[0], epochs=1, captions_per_image=3, **stage),),
    )


_schedule = Cosine(learning_rate=1e-3, min_learning_rate=1e-4, total_steps=2500, warmup_steps=200)
legenda.register_recipe(_text_recipe(_photo, _text, schedule=_schedule, ema_decay=0.99))
for _name, _recipe in all_recipes().items():
    if _name.startswith("flickr8k."):
        _short = replace(_schedule, total_steps=1000, warmup_steps=100)
        _images = replace(_text, images=24_300, validation=300)
        legenda.register_recipe(_text_recipe(_recipe, _images, schedule=_short, batch_size=24))
