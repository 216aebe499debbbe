"""Captioning as a task: its model, its objectives, its validation, and cross-entropy on people's captions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from legenda.datasets.captions import CaptionDataset, DataModule, EncodedCaptions
from legenda.models import Captioner, create_model
from legenda.models.model import VOCABULARY
from legenda.tasks.base import Batch, Loss, Objective, Prepared, Task, check_boxes, parts_of, regions_of
from legenda.tasks.config import ObjectiveConfig
from legenda.tasks.objectives import PADDING, cross_entropy
from legenda.tasks.predict import describe_images, score_captions
from legenda.tasks.rewards import Reward, Rewards
from legenda.tasks.scheduled_sampling import mix_inputs
from legenda.text import Vocabulary


class Captioning(Task):
    """Pictures into sentences."""

    name = "captioning"
    objectives = ("cross_entropy", "self_critical")

    def __init__(self, data: DataModule) -> None:
        self.data = data
        self.train, self.validation = data.train, data.validation
        self.extractor = data.train.extractor

    def create(self, model: str, options: Mapping[str, Any], start: Path | None = None) -> Captioner:
        """A captioner that never says the unknown word."""
        data = self.data
        words = data.vocabulary if start is None else Vocabulary.load(start / VOCABULARY)
        created = create_model(model, **options, vocab_size=len(words), feature_dim=data.feature_dim)
        check_boxes(created, data.has_boxes, data.train.source)
        created.vocabulary = words
        unknown = words.unk_token_id
        created.decoding = replace(
            created.decoding,
            begin_id=words.bos_token_id,
            end_id=words.eos_token_id,
            banned_ids=() if unknown is None else (unknown,),  # no caption is better for an unknown word
        )
        return created

    def objective(
        self, model: Captioner, training: ObjectiveConfig, rewards: Mapping[str, Reward] | None = None
    ) -> CaptionObjective:
        """The one that the settings name."""
        if training.objective == "cross_entropy":
            return CrossEntropy(model, training, self.data.train)
        from legenda.tasks.self_critical import SelfCriticalObjective

        assert model.vocabulary is not None
        judged = Rewards.of(training.self_critical, self.data.train, model.vocabulary, rewards)
        return SelfCriticalObjective(model, training, self.data.train, judged)

    def measured(self) -> Collection[str]:
        """Found out by scoring one image's own reference."""
        split = self.data.validation
        one = replace(split, ids=split.ids[:1], references=split.references[:1])
        return score_captions({one.ids[0]: one.references[0][0]}, one).keys()

    @staticmethod
    def predict(model: Captioner, split: CaptionDataset, positions: np.ndarray, *, beam_size: int) -> dict[str, str]:
        """The best captions."""
        return describe_images(model, split, beam_size=beam_size, positions=positions)

    @staticmethod
    def score(predictions: Mapping[str, Any], split: CaptionDataset) -> dict[str, float | None]:
        """The caption metrics that need no Java, and what the split measures besides."""
        return score_captions(dict(predictions), split)


class CaptionObjective(Objective):
    """What all objectives of captioning read: regions, and some captions of each image."""

    model: Captioner

    def __init__(self, model: Captioner, training: ObjectiveConfig, split: CaptionDataset) -> None:
        super().__init__(model)
        self.training_settings = training
        self.split = split

    @cached_property
    def captions(self) -> EncodedCaptions:
        """The captions of the split in the model's words."""
        assert self.model.vocabulary is not None
        return EncodedCaptions.of(self.split, self.model.vocabulary, self.training_settings.max_words)

    def draw(self, positions: np.ndarray, generator: torch.Generator) -> Batch:
        """Captions `(B, K, T)`, padded with -1."""
        return {"captions": self.captions.rows(positions, self.training_settings.rows, generator)}

    def read(self, positions: np.ndarray) -> Batch:
        """The regions by the names of their parts."""
        return parts_of(self.split.read(positions))


class CrossEntropy(CaptionObjective):
    """Cross-entropy of the images' own captions, all positions of all rows at once."""

    @torch.no_grad()
    def prepare(self, positions: np.ndarray, batch: Batch, epoch: int) -> Prepared:  # noqa: ARG002
        """Input words and target words; some inputs are the model's own where sampling is scheduled."""
        inputs, targets = shifted(batch["captions"], self.model.decoding.end_id)
        share = self.training_settings.scheduled_sampling.at(epoch)
        if share:
            inputs = mix_inputs(self.model, self.model.encode(regions_of(batch)), inputs, share)
        return Prepared((inputs, targets), (float((targets != PADDING).sum()),), lambda total: Loss((total,)))

    def forward(self, batch: Batch, *prepared: Tensor | None) -> Float[Tensor, ""]:
        """The sum over all words."""
        inputs, targets = prepared
        assert inputs is not None
        assert targets is not None
        logits = self.model(regions_of(batch), inputs)
        training = self.training_settings
        return cross_entropy(logits, targets, training.label_smoothing, training.smoothing, reduction="sum")


def shifted(captions: Int[Tensor, "B K T"], end_id: int) -> tuple[Int[Tensor, "B K t"], Int[Tensor, "B K t"]]:
    """Inputs and targets of captions that begin with the begin id and are padded with -1."""
    inputs = captions[..., :-1]
    return inputs.masked_fill(inputs == PADDING, end_id), captions[..., 1:]
