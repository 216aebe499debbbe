"""A run from its first step to its last: stages, epochs, validation, the best model kept, and exact resumption."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from legenda.models.checkpoint import WEIGHTS, load_weights, save_weights
from legenda.models.model import Model
from legenda.models.registry import build_model
from legenda.tasks.base import Task
from legenda.tasks.rewards import Reward
from legenda.training.checkpoint import STATE, Progress, load_state, random_state, read_progress, save_state, state_of
from legenda.training.config import Training
from legenda.training.distributed import gathered, whole_weights
from legenda.training.evaluation_loop import validate
from legenda.training.history import add_record, begin_history
from legenda.training.loggers import Logger, open_loggers
from legenda.training.progress import TrainingProgress
from legenda.training.stage import Stage
from legenda.training.weight_averaging import AverageWeights

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_LOG_STEPS = 20
"""Steps over which the loss is averaged for the history."""

BAD_BATCH = "bad_batch.safetensors"
"""Where a batch is kept that made the loss no number."""


class Run:
    """One run in progress: a model that goes through its stages, one after the other."""

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        model: Model,
        stages: Sequence[Training],
        folder: Path,
        own_rewards: Mapping[str, Reward] | None = None,
    ) -> None:
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy  # late, as all of Fabric

        self.fabric, self.task, self.stages, self.folder = fabric, task, tuple(stages), folder
        self.created = self.model = model
        self.sharded = isinstance(fabric.strategy, ModelParallelStrategy)
        self.own_rewards = own_rewards
        resumed = (folder / STATE).exists()
        self.progress = read_progress(folder) if resumed else Progress()
        self._set_up()
        if resumed:
            self._load()
        self.loggers: list[Logger] = []
        if fabric.is_global_zero:
            begin_history(folder, self.progress.step)
            if not self.progress.finished:
                self.loggers = open_loggers(folder, self.progress.step)

    @property
    def training(self) -> Training:
        """The settings of the stage."""
        return self.stages[self.progress.stage]

    def to_the_end(self, title: str) -> Progress:
        """Trains what is left of all stages."""
        while not self.progress.finished:
            total = self.progress.stage_step + self.steps_per_epoch * self.training.epochs
            with TrainingProgress(title, total, self.progress.step, shown=self.fabric.is_global_zero) as shown:
                while not self._stage_ended():
                    self._epoch(shown)
            if self._last_stage:
                self.progress.finished = True
            else:
                self._next_stage()
        return self.progress

    @property
    def _last_stage(self) -> bool:
        return self.progress.stage + 1 == len(self.stages)

    def _set_up(self) -> None:
        """What belongs to the stage."""
        training = self.training
        self.model = self._model_of_stage()
        self.stage = Stage(self.fabric, self.task, self.model, training, self.own_rewards)
        self.average = AverageWeights(self.model, training)
        self.steps_per_epoch = math.ceil(len(self.task.train) / training.batch_size)

    def _model_of_stage(self) -> Model:
        """The model that was created, or its like with the stage's rates of dropout, or for weights in shares."""
        rates = self.training.dropout
        if not rates and not self.sharded:
            return self.created
        with torch.random.fork_rng(devices=[]):
            model = build_model(self.created.name, {**vars(self.created.config), **rates})
        model.load_state_dict(self.created.state_dict())
        model.load_words(self.folder)
        model.decoding = self.created.decoding
        return model

    def _stage_ended(self) -> bool:
        progress, training = self.progress, self.training
        if progress.epoch - progress.stage_epoch >= training.epochs:
            return True
        scores = progress.scores
        return bool(training.patience and scores and len(scores) - scores.index(max(scores)) > training.patience)

    def _next_stage(self) -> None:
        """The next stage begins with the best model so far; a stage that keeps another score begins it anew."""
        progress, before = self.progress, self.training
        progress.stage += 1
        progress.stage_epoch, progress.stage_step, progress.scores = progress.epoch, progress.step, []
        progress.sums, progress.sum_steps = {}, 0
        if self.training.best_by != before.best_by:
            progress.best = None
        self.fabric.barrier()
        load_weights(self.created, self.folder / WEIGHTS)
        self._set_up()
        self._save()

    def _epoch(self, shown: TrainingProgress) -> None:
        progress, training = self.progress, self.training
        began, before = time.monotonic(), progress.seconds
        for positions, generator, following in self._batches():
            told = self.stage.step(
                positions,
                generator,
                self._rate(),
                self._epoch_of_stage,
                self.folder / BAD_BATCH,
                step=progress.step + 1,
                following=following,
            )
            self.average.after_step(self._epoch_of_stage)
            progress.step += 1
            progress.step_in_epoch += 1
            progress.sums = {name: progress.sums.get(name, 0.0) + value for name, value in told.items()}
            progress.sum_steps += 1
            shown.step(progress.epoch + 1, {name: value / progress.sum_steps for name, value in progress.sums.items()})
            progress.seconds = before + time.monotonic() - began
            if progress.step % _LOG_STEPS == 0:
                self._log()
            ended = progress.step_in_epoch == self.steps_per_epoch  # then the state is saved after validation
            if training.save_every and progress.step % training.save_every == 0 and not ended:
                self._save()
        self.average.after_epoch(self._epoch_of_stage)
        progress.epoch += 1
        progress.step_in_epoch = 0
        done = progress.epoch - progress.stage_epoch
        if done % training.validate_every == 0 or done == training.epochs:
            self._validate(shown)
        progress.finished = self._last_stage and self._stage_ended()
        self._save()

    @property
    def _epoch_of_stage(self) -> int:
        """The epoch in progress, counted from 1 in its stage."""
        return self.progress.epoch - self.progress.stage_epoch + 1

    def _rate(self, behind: int = 0) -> float:
        """The learning rate of the next step, or of so many steps before."""
        progress = self.progress
        step = progress.step - progress.stage_step - behind
        return self.training.schedule.at(step, self._epoch_of_stage, progress.scores)

    def _batches(self) -> Iterator[tuple[np.ndarray, torch.Generator, np.ndarray | None]]:
        """The rest of this epoch's batches: positions of examples, a generator for what is drawn for them, and the
        positions of the next batch where there is one.

        Each batch has a generator of its own, seeded by its number, so resuming needs no replay.
        """
        training, epoch = self.training, self.progress.epoch
        order = np.random.default_rng((training.seed, epoch)).permutation(len(self.task.train))
        firsts = [number * training.batch_size for number in range(self.steps_per_epoch)]
        batches = [order[first : first + training.batch_size] for first in firsts]
        for number in range(self.progress.step_in_epoch, self.steps_per_epoch):
            seed = np.random.SeedSequence((training.seed, epoch, number)).generate_state(1)[0]
            following = batches[number + 1] if number + 1 < len(batches) else None
            yield batches[number], torch.Generator().manual_seed(int(seed)), following

    def _log(self) -> None:
        progress = self.progress
        means = {name: value / progress.sum_steps for name, value in progress.sums.items()}
        record = {
            "step": progress.step,
            "epoch": progress.epoch + 1,
            **means,
            "learning_rate": self._rate(behind=1),
            "seconds": round(progress.seconds, 2),
        }
        if self.stage.rewards is not None:
            record["seconds_waiting_for_rewards"] = round(self.stage.rewards.waited, 3)  # since this process began
        progress.sums, progress.sum_steps = {}, 0
        self._record(record)

    def _record(self, record: dict[str, Any]) -> None:
        if self.fabric.is_global_zero:
            add_record(self.folder, record)
            for tell in self.loggers:
                tell(record)

    def _validate(self, shown: TrainingProgress) -> None:
        progress, training = self.progress, self.training
        with self.average.in_place():
            with whole_weights(self.stage.objective):
                predictions, scores = validate(self.fabric, self.task, self.model, beam_size=training.validation_beam)
            self._record({"step": progress.step, "epoch": progress.epoch, "validation": scores})
            score = scores[training.best_by] or 0.0
            progress.scores.append(score)
            if progress.best is None or score > progress.best:
                progress.best, progress.best_epoch = score, progress.epoch
                weights = gathered(self.model.state_dict())
                if self.fabric.is_global_zero:
                    save_weights(weights, self.folder)
        told = "  ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None)
        first = self.task.validation.ids[0]
        shown.note(f"epoch {progress.epoch} validated: {told}\n  {first}: {predictions[first]}")

    def _save(self) -> None:
        """The state of all processes, written by the first."""
        randoms = self._gathered(random_state())
        self.progress.averaged = self.average.entered
        self.progress.scaler = self.fabric.strategy.precision.state_dict()
        tensors = state_of(self.model, self.stage.optimizer, randoms=randoms, average=self.average.values)
        if self.fabric.is_global_zero:
            save_state(self.folder, self.progress, tensors)

    def _gathered(self, state: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        if self.fabric.world_size == 1:
            return [state]
        gathered: list[dict[str, torch.Tensor]] = [{} for _ in range(self.fabric.world_size)]
        torch.distributed.all_gather_object(gathered, state)
        return gathered

    def _load(self) -> None:
        self.progress = load_state(
            self.folder,
            self.model,
            self.stage.optimizer,
            rank=self.fabric.global_rank,
            average=self.average.values,
        )
        self.average.entered = self.progress.averaged
        if self.progress.scaler:
            self.fabric.strategy.precision.load_state_dict(self.progress.scaler)
