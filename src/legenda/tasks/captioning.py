"""Image captioning as a task: model, objectives, validation, and cross-entropy training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from legenda.compute import SearchOptions
from legenda.data.captions import CaptionDataset, DataModule
from legenda.models import Captioner, create_model
from legenda.regions import Regions
from legenda.run_folder import VOCABULARY
from legenda.tasks.base import Objective, Task, check_boxes, set_vocabulary
from legenda.tasks.caption_objectives import CrossEntropy
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.predict import generate_captions, score_captions
from legenda.tasks.rewards import Rewards
from legenda.tasks.self_critical import SelfCriticalObjective
from legenda.text import Vocabulary


class Captioning(Task):
    """Image and video captioning."""

    name = "captioning"
    objectives = ("cross_entropy", "self_critical")
    objective_class = CrossEntropy
    data: DataModule

    def create(self, model: str, options: Mapping[str, Any], init_from: Path | None = None) -> Captioner:
        """Return a captioner that never generates the unknown token."""
        data = self.data
        vocabulary = data.vocabulary if init_from is None else Vocabulary.load(init_from / VOCABULARY)
        captioner = create_model(model, **options, vocab_size=len(vocabulary), feature_dim=data.feature_dim)
        unboxed = Regions(data.train.read(np.arange(1)).features)
        is_grid = captioner.encoder.with_default_boxes(unboxed).boxes is not None
        check_boxes(captioner, data.has_boxes or is_grid, data.train.source)
        set_vocabulary(captioner, vocabulary)
        return captioner

    def objective(self, model: Captioner, config: ObjectiveConfig) -> Objective:
        """Return the configured objective."""
        if config.objective == "cross_entropy":
            return super().objective(model, config)
        assert model.vocabulary is not None
        weighted = Rewards.from_config(config.self_critical, self.data.train, model.vocabulary)
        return SelfCriticalObjective(model, config, self.data.train, weighted)

    def metric_names(self) -> Collection[str]:
        """Return the names of the scores, found by scoring one image's own reference."""
        split = self.data.validation
        one = replace(split, ids=split.ids[:1], references=split.references[:1])
        return score_captions({one.ids[0]: one.references[0][0]}, one).keys()

    @staticmethod
    def predict(model: Captioner, split: CaptionDataset, indices: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """Return the best caption of each image by its id."""
        return generate_captions(model, split, options=SearchOptions(beam_size=beam_size), indices=indices)

    @staticmethod
    def score(predictions: Mapping[str, Any], split: CaptionDataset) -> dict[str, float | None]:
        """Return the caption metrics that need no Java, and the split's own scores."""
        return score_captions(dict(predictions), split)
