"""The training loop: epochs of cross-entropy, validation, the best model kept, and exact resumption."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from legenda.data.caption_sets import CaptionSet, EncodedCaptions, OpenedData
from legenda.errors import UserError, nearest
from legenda.models import Captioner, create_model
from legenda.models.storage import describe as describe_model
from legenda.models.storage import save_weights
from legenda.regions import Regions
from legenda.training.folder import claim_folder
from legenda.training.history import add_record, begin_history
from legenda.training.objectives import PADDING, cross_entropy
from legenda.training.progress import TrainingProgress
from legenda.training.settings import Training
from legenda.training.state import STATE, Progress, load_state, save_state
from legenda.training.validation import describe_images, score_captions

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_LOG_STEPS = 20
"""Steps over which the loss is averaged for the history."""


@dataclass(frozen=True)
class Trained:
    """What a run came to: its folder, the best validation score and its epoch, and seconds of training in all."""

    folder: Path
    best: float
    best_epoch: int
    seconds: float


def train(
    model_name: str,
    options: Mapping[str, Any],
    data: OpenedData,
    training: Training,
    folder: str | Path,
    *,
    sections: Mapping[str, Any],
) -> Trained:
    """Trains a named model on opened data into a run folder, or goes on where an earlier call was stopped.

    The folder gets config.json (with `sections`), vocabulary.txt, metrics.jsonl, model.safetensors (the best by
    `training.best_by`) and the training state. A run that was killed and called again ends with the same weights,
    bit for bit on the CPU, as one that was not. Raises UserError when the folder holds a run with other settings,
    or the loss is no longer a number.
    """
    from lightning_fabric import Fabric  # late: it takes seconds, and only training needs it

    folder = Path(folder)
    fabric = Fabric(accelerator="auto", devices=1, precision=training.precision)
    torch.manual_seed(training.seed)
    model = create_model(model_name, **options, vocab_size=len(data.vocabulary), feature_dim=data.feature_dim)
    if model.needs_boxes and not data.has_boxes:
        raise UserError(
            f"{data.train.source} holds no boxes, which {model_name} needs for its geometry; extract it again with "
            "boxes or train a model without geometry, such as transformer"
        )
    model.vocabulary = data.vocabulary
    unknown = data.vocabulary.unknown_id
    model.decoding = replace(
        model.decoding,
        begin_id=data.vocabulary.begin_id,
        end_id=data.vocabulary.end_id,
        banned_ids=() if unknown is None else (unknown,),  # no caption is better for an unknown word
    )
    _check_metric(training.best_by, data.validation)
    captions = EncodedCaptions.of(data.train, data.vocabulary, training.max_words)
    extractor = data.train.extractor
    config = {"model": describe_model(model), **sections, "training": asdict(training), "extractor": extractor}
    claim_folder(folder, config, data.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=training.schedule.rate, betas=training.betas, fused=True)
    run = _Run(fabric, model, optimizer, data, captions, training, folder)
    return run.to_the_end(model_name)


def _check_metric(name: str, split: CaptionSet) -> None:
    """UserError unless validation measures `name`, found out by scoring one image's own reference."""
    one = replace(split, identities=split.identities[:1], references=split.references[:1])
    measured = score_captions({one.identities[0]: one.references[0][0]}, one)
    if name not in measured:
        raise UserError(f"training.best_by={name!r} is not measured; {nearest(name, measured)}")


class _Task(nn.Module):
    """What is set up for the device: regions and captions in, the loss out; tensors only, as wrappers need them."""

    def __init__(self, model: Captioner, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, features: Tensor, boxes: Tensor | None, mask: Tensor, tokens: Tensor) -> Tensor:
        inputs = tokens[..., :-1].masked_fill(tokens[..., :-1] == PADDING, self.model.decoding.end_id)
        logits = self.model(Regions(features, boxes, mask), inputs)
        return cross_entropy(logits, tokens[..., 1:], self.label_smoothing)


class _Run:
    """One run in progress."""

    def __init__(
        self,
        fabric: Fabric,
        model: Captioner,
        optimizer: torch.optim.Optimizer,
        data: OpenedData,
        captions: EncodedCaptions,
        training: Training,
        folder: Path,
    ) -> None:
        self.fabric, self.data, self.training, self.folder = fabric, data, training, folder
        self.model = model
        self.task, self.optimizer = fabric.setup(_Task(model, training.label_smoothing), optimizer)
        self.captions = captions
        self.steps_per_epoch = math.ceil(len(data.train) / training.batch_size)
        if (folder / STATE).exists():
            self.progress = load_state(folder, model, optimizer)
        else:
            self.progress = Progress()
        begin_history(folder, self.progress.step)

    def to_the_end(self, title: str) -> Trained:
        """Trains the epochs that are left."""
        total = self.steps_per_epoch * self.training.epochs
        with TrainingProgress(title, total, self.progress.step) as shown:
            while self.progress.epoch < self.training.epochs:
                self._epoch(shown)
        progress = self.progress
        assert progress.best is not None
        return Trained(self.folder, progress.best, progress.best_epoch, progress.seconds)

    def _epoch(self, shown: TrainingProgress) -> None:
        progress, training = self.progress, self.training
        began, before = time.monotonic(), progress.seconds
        for images, tokens in self._batches():
            self.model.train()
            loss = self._step(images, tokens)
            progress.step += 1
            progress.step_in_epoch += 1
            progress.loss_sum += loss
            progress.loss_steps += 1
            shown.step(progress.epoch + 1, progress.loss_sum / progress.loss_steps)
            progress.seconds = before + time.monotonic() - began
            if progress.step % _LOG_STEPS == 0:
                self._log_loss()
            ended = progress.step_in_epoch == self.steps_per_epoch  # then the state is saved after validation
            if training.save_every and progress.step % training.save_every == 0 and not ended:
                save_state(self.folder, progress, self.model, self.optimizer)
        progress.epoch += 1
        progress.step_in_epoch = 0
        if progress.epoch % training.validate_every == 0 or progress.epoch == training.epochs:
            self._validate(shown)
        save_state(self.folder, progress, self.model, self.optimizer)

    def _batches(self) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """The rest of this epoch's batches: positions of images, and their captions (B, K, T) padded with -1.

        Each batch has a generator of its own, seeded by its number, so resuming needs no replay.
        """
        training = self.training
        order = np.random.default_rng((training.seed, self.progress.epoch)).permutation(len(self.data.train))
        for number in range(self.progress.step_in_epoch, self.steps_per_epoch):
            images = order[number * training.batch_size : (number + 1) * training.batch_size]
            seed = np.random.SeedSequence((training.seed, self.progress.epoch, number)).generate_state(1)[0]
            generator = torch.Generator().manual_seed(int(seed))
            yield images, self.captions.rows(images, training.rows, generator)

    def _step(self, images: np.ndarray, tokens: torch.Tensor) -> float:
        rate = self.training.schedule.at(self.progress.step, self.progress.epoch + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        regions = self.data.train.read(images).to(self.fabric.device)
        loss = self.task(regions.features, regions.boxes, regions.valid, tokens.to(self.fabric.device))
        self.optimizer.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        value = loss.item()
        if self.training.clip_norm:
            limit = self.training.clip_norm
            norm = self.fabric.clip_gradients(self.task, self.optimizer, max_norm=limit, error_if_nonfinite=False)
            value = value if norm is None or math.isfinite(norm) else math.nan
        if not math.isfinite(value):
            raise UserError(
                f"the loss or its gradient is no longer a number at step {self.progress.step + 1}; train into another "
                "folder (--out) with a lower training.schedule.rate"
            )
        self.optimizer.step()
        return value

    def _log_loss(self) -> None:
        progress = self.progress
        record = {
            "step": progress.step,
            "epoch": progress.epoch + 1,
            "loss": progress.loss_sum / progress.loss_steps,
            "learning_rate": self.training.schedule.at(progress.step - 1, progress.epoch + 1),
            "seconds": round(progress.seconds, 2),
        }
        progress.loss_sum, progress.loss_steps = 0.0, 0
        add_record(self.folder, record)

    def _validate(self, shown: TrainingProgress) -> None:
        progress, training = self.progress, self.training
        captions = describe_images(self.model, self.data.validation, beam_size=training.validation_beam)
        scores = score_captions(captions, self.data.validation)
        add_record(self.folder, {"step": progress.step, "epoch": progress.epoch, "validation": scores})
        score = scores[training.best_by] or 0.0
        if progress.best is None or score > progress.best:
            progress.best, progress.best_epoch = score, progress.epoch
            save_weights(self.model, self.folder)
        told = "  ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None)
        first = self.data.validation.identities[0]
        shown.note(f"epoch {progress.epoch} validated: {told}\n  {first}: {captions[first]}")
