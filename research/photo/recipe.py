"""The recipe `photo.boxes`: the library's training on COCO's captions and boxes, damaged as the detector damages them.

    legenda train photo.boxes --plugin research/photo/recipe.py data.folder=WORK --out runs/boxes

reads captions.npz, vocabulary.txt and noise.npz of WORK (coco.py, noise.py). boxes.py is the same training with
less computed for padding, and begins with vectors of the words.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from sources import BoxedImages

import legenda
from legenda.config import Config
from legenda.data.captions import CaptionDataset, DataModule, TokenizedCaptions
from legenda.errors import DataError
from legenda.papers import get_recipe
from legenda.photo.regions import WIDTH
from legenda.text import Vocabulary
from legenda.training.schedules import Cosine


@legenda.register_dataset("damaged_boxes")
class DamagedBoxesData(Config):
    """Images of COCO as what the detector might see of them; every reading of a training image is damaged anew."""

    kind: Literal["damaged_boxes"] = "damaged_boxes"
    folder: Path = Path("photo")
    """Where captions.npz, vocabulary.txt and noise.npz are."""
    validation: int = 1000
    """Images that validate, the last ones in random order."""

    def open(self, progress: Callable[[str], None]) -> DataModule:
        """Read the files."""
        progress(f"reading the captions and boxes of {self.folder}")
        images, vocabulary = BoxedImages(self.folder), Vocabulary.load(self.folder / "vocabulary.txt")
        if not 0 < self.validation < len(images):
            raise DataError(f"validation must lie between 1 and {len(images) - 1}, not {self.validation}")
        order = np.random.default_rng(0).permutation(len(images))
        train, validation = order[: -self.validation], order[-self.validation :]
        return DataModule(
            self._dataset(images, vocabulary, train, None),
            self._dataset(images, vocabulary, validation, 1),
            vocabulary,
            WIDTH,
            has_boxes=True,
        )

    def split(self, name: str) -> CaptionDataset:
        """Return train or val."""
        if name not in ("train", "val"):
            raise DataError(f"damaged boxes have the splits train and val, not {name!r}")
        data = self.open(lambda _: None)
        return data.train if name == "train" else data.validation

    def _dataset(
        self, images: BoxedImages, vocabulary: Vocabulary, chosen: np.ndarray, seed: int | None
    ) -> CaptionDataset:
        """Return a part of the images; seed: of the damage at each reading, None draws anew."""
        generator = np.random.default_rng(0)
        tokens = [
            [vocabulary.words(caption) for caption in image if caption[0] > 0]
            for image in images.captions[chosen].clip(min=0).tolist()
        ]
        return CaptionDataset(
            ids=tuple(map(str, images.ids[chosen].tolist())),
            references=tuple(tuple(" ".join(words) for words in image) for image in tokens),
            read=lambda rows: images.regions(
                chosen[rows], generator if seed is None else np.random.default_rng([seed, *rows.tolist()])
            ),
            source=str(self.folder),
            extractor="photo",
            tokenize=lambda: TokenizedCaptions.of(tokens, tuple),
        )


_photo = get_recipe("photo")
legenda.register_recipe(
    _photo.replace(
        name="photo.boxes",
        summary="damaged boxes and captions of COCO, before photographs",
        data=DamagedBoxesData(),
        model_overrides={**_photo.model_overrides, "dropout": 0.05, "drop_region": 0.0},
        stages=(
            _photo.stages[0].replace(
                epochs=1,
                batch_size=16,
                max_caption_length=17,
                schedule=Cosine(learning_rate=1.5e-3, min_learning_rate=1e-4, total_steps=6800, warmup_steps=250),
            ),
        ),
    )
)
