"""The loop over stages, epochs and steps: history, validation, checkpoints, early stopping, and signals that end it."""

from __future__ import annotations

import copy
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import BaseModel
from rich.progress import TextColumn

from legenda.errors import ConfigError, did_you_mean
from legenda.io import atomic_write
from legenda.metrics import METRICS
from legenda.models.base import Model, eval_mode
from legenda.models.checkpoint import build_on_meta
from legenda.models.registry import build_model
from legenda.models.weights import load_weights, save_weights
from legenda.run_folder import STAGE_WEIGHTS, STATE, TRACE, WEIGHTS, stage_name
from legenda.tasks.base import Objective, Task, predict_split
from legenda.tasks.captioning import collapse_repeats
from legenda.tasks.self_critical import CURVES, describe_collapse
from legenda.terminal import create_bar
from legenda.training.checkpoint import (
    Logger,
    Progress,
    add_record,
    collect_state,
    load_state,
    open_history,
    open_loggers,
    read_progress,
    rng_state,
    save_state,
)
from legenda.training.config import PATIENCES, TrainingConfig
from legenda.training.distributed import all_gather, all_reduce_sum, full_tensors, unsharded_params
from legenda.training.stage import AverageWeights, Stage

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_BATCH_SIZE = 50


def check_monitor(name: str, task: Task, stage: str) -> None:
    """Raise ConfigError, naming the stage, unless validation computes the score `name`, higher for better models."""
    known = task.metric_names()
    if name not in known:
        raise ConfigError(f"{stage}.monitor={name!r} is not a validation score; {did_you_mean(name, known)}")
    if name in METRICS and METRICS.get(name).lower_is_better:
        raise ConfigError(f"{stage}.monitor={name!r} is lower for better models; choose one that is higher")


def validate(
    fabric: Fabric, task: Task, model: Model, config: TrainingConfig
) -> tuple[Mapping[str, object], dict[str, float | None]]:
    """Return predictions and scores of the validation split, on every device."""
    split = task.validation
    local = np.arange(fabric.global_rank, len(split), fabric.world_size)
    predictions = predict_split(task, model, split, local, {"beam_size": config.eval_beam_size})
    if config.eval_collapse_repeats:
        predictions = collapse_repeats(predictions)
    if fabric.world_size == 1:
        return predictions, task.score(predictions, split)
    merged = {id_: prediction for part in all_gather(predictions) for id_, prediction in part.items()}
    predictions = {id_: merged[id_] for id_ in split.ids}
    scores = task.score(predictions, split) if fabric.is_global_zero else {}
    return predictions, fabric.broadcast(scores)


@torch.no_grad()
def _validation_loss(fabric: Fabric, objective: Objective) -> float:
    """Return the loss of the validation split, without dropout and scheduled sampling, on every device.

    Self-critical stages have the cross-entropy of the reference captions. It draws no numbers of the global generators.
    """
    starts = range(0, len(objective.split), _BATCH_SIZE)
    totals = torch.zeros(2, len(objective.loss_weights), dtype=torch.float64)
    with eval_mode(objective.model), fabric.autocast():
        for start in starts:
            indices = np.arange(start, min(start + _BATCH_SIZE, len(objective.split)))
            targets = objective.sample_targets(indices, torch.Generator().manual_seed(start))  # the same on all devices
            local = slice(fabric.global_rank, None, fabric.world_size)
            if not len(indices[local]):
                continue
            batch = {**objective.read(indices[local]), **{name: tensor[local] for name, tensor in targets.items()}}
            batch = {name: tensor.to(fabric.device) for name, tensor in batch.items()}
            prepared = objective.prepare(indices[local], batch, 1)
            loss = prepared.finish(objective(batch, *prepared.inputs))
            totals += torch.tensor([[value.item() for value in loss.sums], prepared.normalizers], dtype=torch.float64)
    totals = all_reduce_sum(fabric, totals)
    means = totals[0] / totals[1].clamp(min=1e-9)
    return float((torch.tensor(objective.loss_weights, dtype=torch.float64) * means).sum())


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C, the end of a job, and the warning that clusters send before it."""


class TrainingInterrupted(KeyboardInterrupt):
    """A signal has ended training; its state is saved. `signum`: the number of the signal."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


class SignalFlag:
    """Remembers the first of SIGNALS that arrives; a second signal has its usual effect at once.

    signum: the number of the signal, None before it arrives.
    """

    def __init__(self) -> None:
        self.signum: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Record the signals while the context lasts; in other threads than the main one nothing is recorded."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}

        def record(number: int, _: FrameType | None) -> None:
            self.signum = number
            _restore(before)

        try:
            for number in SIGNALS:
                signal.signal(number, record)
            yield
        finally:
            _restore(before)


def _restore(handlers: Mapping[signal.Signals, signal.Handlers | int | Callable | None]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def stage_is_over(config: TrainingConfig, progress: Progress, steps_per_epoch: int) -> bool:
    """Return whether the current stage is over, at the end of an epoch of that many steps."""
    epochs, scores = progress.epoch - progress.stage_epoch, progress.scores
    if epochs >= config.epochs or _is_over(config.early_stopping_patience, scores):
        return True
    # all of the last evaluations that count were at the last rate, from the epoch after the one before them
    epoch = (len(scores) - config.last_rate_patience) * config.eval_every
    if _is_over(config.last_rate_patience, scores) and config.schedule.has_ended(epoch * steps_per_epoch, epoch + 1):
        return True
    return epochs % config.eval_every == 0 and _has_no_rate(config, progress)  # the last weights are evaluated


def _has_no_rate(config: TrainingConfig, progress: Progress) -> bool:
    """Return whether the schedule has ended with a learning rate of 0."""
    step, epoch = progress.step - progress.stage_step, progress.epoch - progress.stage_epoch + 1
    return config.schedule.has_ended(step, epoch) and config.schedule.at(step, epoch, progress.scores) == 0


def _is_over(patience: int, scores: Sequence[float]) -> bool:
    """Return whether `patience` scores, or more, came after the best one; never for a patience of 0."""
    return bool(patience and scores and len(scores) - scores.index(max(scores)) > patience)


_LOG = logging.getLogger(__name__)

_SCORED_BY = ("monitor", "eval_beam_size", "eval_collapse_repeats")
"""The settings that two scores must share to be compared."""

_LOG_INTERVAL_S = 10.0
"""Seconds between two lines of steps in the log."""


class _TrainingProgress:
    """Shows the steps, loss, speed and remaining time of a stage: in a bar, or without a terminal in the log."""

    def __init__(self, title: str, total: int, done: int, *, enabled: bool = True) -> None:
        """enabled: whether to show and log anything; one of several processes is enough."""
        self.enabled = enabled
        self.title, self.total, self.done = title, total, done
        self.initial, self.started_at = done, time.monotonic()
        self.last_line_at = self.started_at
        self.bar = create_bar(TextColumn("{task.fields[state]}"))
        self.bar.disable |= not enabled
        self.task = self.bar.add_task(title, total=total, completed=done, state="")

    def step(self, epoch: int, means: Mapping[str, float]) -> None:
        """Count one step; `means` are recent averages, such as that of the loss."""
        self.done += 1
        now = time.monotonic()
        speed = (self.done - self.initial) / max(now - self.started_at, 1e-9)
        values = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        state = f"epoch {epoch}  step {self.done}/{self.total}  {values}  {speed:.1f} steps/s"
        self.bar.update(self.task, completed=self.done, state=state)
        if self.bar.disable and (now - self.last_line_at >= _LOG_INTERVAL_S or self.done == self.total):
            self.last_line_at = now
            self.log(f"{state}  {(self.total - self.done) / max(speed, 1e-9):.0f} s left")

    def log(self, text: str) -> None:
        """Log a line, such as the scores of a validation."""
        if self.enabled:
            _LOG.info("%s  %s", self.title, text)


_LOG_EVERY_N_STEPS = 20
_SIGNALS_EVERY_N_STEPS = 10
"""How often several processes compare the signals that they have received."""


Callback = Callable[[Mapping[str, object]], bool | None]
"""A function that training calls with every record of its history; it stops where the function returns True."""

_UNPROFILED_STEPS = 2


@contextmanager
def _profiled(path: Path, steps: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step; the trace of so many steps, after the first two, is written to a file.

    Nothing is traced for 0 steps.
    """
    if not steps:
        yield lambda: None
        return

    def write(profiler: torch.profiler.profile) -> None:
        with atomic_write(path) as partial:
            profiler.export_chrome_trace(str(partial))
        _LOG.info("wrote %s, which https://ui.perfetto.dev and chrome://tracing open", path)

    schedule = torch.profiler.schedule(wait=0, warmup=_UNPROFILED_STEPS, active=steps, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=write) as profiler:
        yield profiler.step


class TrainingLoop:
    """A model trained through its stages, one after the other."""

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        model: Model,
        stages: Sequence[TrainingConfig],
        folder: Path,
        *,
        is_trained: bool = False,
        callback: Callback | None = None,
        profile_steps: int = 0,
    ) -> None:
        """is_trained: whether the model has weights of another run, which are then scored first and kept while best.

        callback, profile_steps: as in `legenda.training.train`.
        """
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy  # late, as all of Fabric

        self.fabric, self.task, self.stages, self.folder = fabric, task, tuple(stages), folder
        self.initial_model = model
        self.is_trained, self.callback, self.profile_steps = is_trained, callback, profile_steps
        self.stopped = False  # by the callback
        self.options = dict(vars(model.config))
        self.sharded = isinstance(fabric.strategy, ModelParallelStrategy)
        resumed = (folder / STATE).exists()
        self.progress = read_progress(folder) if resumed else Progress()
        self._set_up_stage()
        if resumed:
            self._load()
            self.progress.finished &= self._stage_is_finished()  # false where more epochs are asked for than before
        self.signals = SignalFlag()
        self.loggers: list[Logger] = []
        if fabric.is_global_zero:
            open_history(folder, self.progress)
            if not self.progress.finished:
                self.loggers = open_loggers(folder, self.progress.step)

    @property
    def config(self) -> TrainingConfig:
        """The settings of the current stage."""
        return self.stages[self.progress.stage]

    def fit(self, title: str) -> Progress:
        """Train to the end of the last stage."""
        try:
            steps = self.profile_steps if self.fabric.is_global_zero else 0
            with self.signals.listen(), _profiled(self.folder / TRACE, steps) as self.end_step:
                return self._fit(title)
        finally:
            self.stage.close()

    def describe_early_end(self) -> str | None:
        """Return why a finished run has trained fewer epochs than are asked for, and what continues it; else None."""
        config, progress = self.config, self.progress
        epochs = progress.epoch - progress.stage_epoch
        if not progress.finished or epochs >= config.epochs:
            return None
        name = stage_name(progress.stage)
        values = {patience: getattr(config, patience) for patience in PATIENCES}
        over = [patience for patience, value in values.items() if _is_over(value, progress.scores)]
        if over and not _has_no_rate(config, progress):
            return (
                f"stopped early after epoch {progress.epoch}, whose scores were no better for {values[over[0]]} "
                f"validations; it trains on with {name}.{over[0]}=0, or with a larger number"
            )
        return (
            f"ended after epoch {progress.epoch}, as its schedule's learning rate has come to its end; train with a "
            f"longer {name}.schedule into another folder, perhaps with --init-from"
        )

    def _fit(self, title: str) -> Progress:
        while not (self.progress.finished or self.stopped):
            total = self.progress.stage_step + self.steps_per_epoch * self.config.epochs
            progress_bar = _TrainingProgress(title, total, self.progress.step, enabled=self.fabric.is_global_zero)
            with progress_bar.bar:
                if self.is_trained and self.progress.step == 0 and self.progress.best is None:
                    self._validate(progress_bar)
                    self.progress.scores = []  # those after epochs
                    self._save()
                while not (self._stage_is_finished() or self.stopped):
                    self._train_epoch(progress_bar)
            if self.stopped:
                _LOG.info("the callback stopped training after step %d; the same call continues", self.progress.step)
            elif self._is_last_stage:
                self.progress.finished = True
            else:
                self._next_stage()
        return self.progress

    @property
    def _is_last_stage(self) -> bool:
        return self.progress.stage + 1 == len(self.stages)

    def _set_up_stage(self) -> None:
        config = self.config
        # sharding moves the parameters of a copy
        self.model = copy.deepcopy(self.initial_model) if self.sharded else self.initial_model
        set_dropout(self.model, {**self.options, **config.dropout})
        self.stage = Stage(self.fabric, self.task, self.model, config, self.folder)
        self.validation_objective = self.task.objective_class(self.model, config, self.task.validation)
        self.average = AverageWeights(self.model, config)
        self.has_warned = False
        self.steps_per_epoch = config.count_steps(len(self.task.train))

    def _stage_is_finished(self) -> bool:
        return not self.progress.step_in_epoch and stage_is_over(self.config, self.progress, self.steps_per_epoch)

    def _next_stage(self) -> None:
        """Start the next stage from the best model so far, which is kept as that of the stage that ended.

        Where the next stage monitors another score, or searches otherwise for its captions, the best is reset.
        """
        progress, previous = self.progress, self.config
        progress.stage += 1
        progress.stage_epoch, progress.stage_step, progress.scores = progress.epoch, progress.step, []
        progress.sums, progress.sum_steps = {}, 0
        if any(getattr(self.config, name) != getattr(previous, name) for name in _SCORED_BY):
            progress.best = None
        self.fabric.barrier()
        if self.fabric.is_global_zero:
            with atomic_write(self.folder / STAGE_WEIGHTS.format(progress.stage)) as partial:
                shutil.copyfile(self.folder / WEIGHTS, partial)
        load_weights(self.initial_model, self.folder / WEIGHTS)
        self.stage.close()
        self._set_up_stage()
        self._save()

    def _train_epoch(self, progress_bar: _TrainingProgress) -> None:
        progress, config = self.progress, self.config
        started, seconds_before = time.monotonic(), progress.seconds
        for indices, generator, next_indices in self._batches():
            metrics = self.stage.step(
                indices, generator, self._learning_rate(), self._stage_epoch, progress.step + 1, next_indices
            )
            self.average.after_step(self._stage_epoch)
            progress.step += 1
            progress.step_in_epoch += 1
            progress.sums = {name: progress.sums.get(name, 0.0) + value for name, value in metrics.items()}
            progress.sum_steps += 1
            means = {name: total / progress.sum_steps for name, total in progress.sums.items() if name not in CURVES}
            progress_bar.step(progress.epoch + 1, means)
            progress.seconds = seconds_before + time.monotonic() - started
            self.end_step()
            if progress.step % _LOG_EVERY_N_STEPS == 0:
                self._log()
            if progress.step_in_epoch < self.steps_per_epoch:  # the end of an epoch has states of its own
                if config.checkpoint_every and progress.step % config.checkpoint_every == 0:
                    self._save()
                self._stop_on_signal(saved=False)
                if self.stopped:
                    if progress.best is None:
                        self._validate(progress_bar)
                        progress.scores = []  # those after epochs
                    return self._save()
        is_evaluated = self._stage_epoch % config.eval_every == 0 or self._stage_epoch == config.epochs
        if is_evaluated:  # may take longer than a cluster waits from its signal to its kill
            self._save()
            self._stop_on_signal(saved=True)
        self.average.after_epoch(self._stage_epoch)
        progress.epoch += 1
        progress.step_in_epoch = 0
        if is_evaluated:
            self._validate(progress_bar)
        elif self.stopped and progress.best is None:
            self._validate(progress_bar)
            progress.scores = []  # those after `eval_every` epochs
        progress.finished = self._is_last_stage and self._stage_is_finished()
        self._save()
        self._stop_on_signal(saved=True)

    def _stop_on_signal(self, *, saved: bool) -> None:
        """Save the state, unless it is, and raise TrainingInterrupted where any process has received a signal."""
        signum = self.signals.signum or 0
        if self.fabric.world_size > 1:
            if not saved and self.progress.step % _SIGNALS_EVERY_N_STEPS:
                return
            signum = max(all_gather(signum))
        if signum:
            if not saved:
                self._save()
            name, step = signal.Signals(signum).name, self.progress.step
            message = f"{name} stopped training after step {step}; its state is saved, and the same command continues"
            raise TrainingInterrupted(signum, message)

    @property
    def _stage_epoch(self) -> int:
        """The current epoch, counted from 1 in its stage."""
        return self.progress.epoch - self.progress.stage_epoch + 1

    def _learning_rate(self, steps_ago: int = 0) -> float:
        """Return the learning rate of the next step, or of the step `steps_ago` steps before it."""
        progress = self.progress
        step = progress.step - progress.stage_step - steps_ago
        return self.config.schedule.at(step, self._stage_epoch, progress.scores)

    def _batches(self) -> Iterator[tuple[np.ndarray, torch.Generator, np.ndarray | None]]:
        """Yield the remaining batches of the epoch: indices, a generator, and the indices of the next batch, if any.

        Each batch has its own generator, seeded by its number, so resuming needs no replay.
        """
        config, epoch, examples = self.config, self.progress.epoch, len(self.task.train)
        steps = range(epoch * self.steps_per_epoch, (epoch + 1) * self.steps_per_epoch)
        steps_per_pass = math.ceil(examples / config.batch_size)
        passes = range(steps[0] // steps_per_pass, steps[-1] // steps_per_pass + 1)
        orders = {number: self._order(number) for number in passes}
        starts = [(step // steps_per_pass, step % steps_per_pass * config.batch_size) for step in steps]
        batches = [orders[number][start : start + config.batch_size] for number, start in starts]
        for number in range(self.progress.step_in_epoch, self.steps_per_epoch):
            seed = np.random.SeedSequence((config.seed, epoch, number)).generate_state(1)[0]
            next_indices = batches[number + 1] if number + 1 < len(batches) else None
            yield batches[number], torch.Generator().manual_seed(int(seed)), next_indices

    def _order(self, number: int) -> np.ndarray:
        """Return the order of the examples in a pass over all of them."""
        order = np.random.default_rng((self.config.seed, number)).permutation(len(self.task.train))
        if window := getattr(self.task.train, "window", 0):
            order = order[(order // window).argsort(kind="stable")]
        return order

    def _log(self) -> None:
        progress = self.progress
        means = {name: value / progress.sum_steps for name, value in progress.sums.items()}
        record = {
            "step": progress.step,
            "epoch": progress.epoch + 1,
            **means,
            "learning_rate": self._learning_rate(steps_ago=1),
            "seconds": round(progress.seconds, 2),
        }
        if self.stage.rewards is not None:
            record["seconds_waiting_for_rewards"] = round(self.stage.rewards.wait_seconds, 3)  # of this process
        progress.sums, progress.sum_steps = {}, 0
        self._record(record)
        warning = None if self.has_warned or not self.fabric.is_global_zero else describe_collapse(means)
        if warning is not None:
            _LOG.warning("step %d: %s", progress.step, warning)
            self.has_warned = True

    def _record(self, record: Mapping[str, object]) -> None:
        if self.fabric.is_global_zero:
            add_record(self.folder, record)
            for log in self.loggers:
                log(record)
        if self.callback is not None:
            stop = self.callback(record) is True if self.fabric.is_global_zero else False
            self.stopped |= self.fabric.broadcast(stop)

    def _validate(self, progress_bar: _TrainingProgress) -> None:
        progress, config = self.progress, self.config
        with self.average.swap_in():
            with unsharded_params(self.stage.objective):
                predictions, scores = validate(self.fabric, self.task, self.model, config)
                loss = _validation_loss(self.fabric, self.validation_objective)
            self._record({"step": progress.step, "epoch": progress.epoch, "validation": {**scores, "loss": loss}})
            score = scores[config.monitor] or 0.0
            progress.scores.append(score)
            if progress.best is None or score > progress.best:
                progress.best, progress.best_epoch = score, progress.epoch
                weights = full_tensors(self.model.state_dict())
                if self.fabric.is_global_zero:
                    save_weights(weights, self.folder)
        numbers = {**scores, "loss": loss}
        values = "  ".join(f"{name} {value:.3f}" for name, value in numbers.items() if value is not None)
        first = self.task.validation.ids[0]
        progress_bar.log(f"epoch {progress.epoch} validation: {values}\n  {first}: {predictions[first]}")

    def _save(self) -> None:
        """Gather the state of all processes; the first process writes it."""
        rng_states = all_gather(rng_state())
        self.progress.average_updates = self.average.num_updates
        self.progress.scaler = self.fabric.strategy.precision.state_dict()
        tensors = collect_state(self.model, self.stage.optimizer, rng_states=rng_states, average=self.average.values)
        if self.fabric.is_global_zero:
            save_state(self.folder, self.progress, tensors)

    def _load(self) -> None:
        self.progress = load_state(
            self.folder, self.model, self.stage.optimizer, rank=self.fabric.global_rank, average=self.average.values
        )
        self.average.num_updates = self.progress.average_updates
        if self.progress.scaler:
            self.fabric.strategy.precision.load_state_dict(self.progress.scaler)


def set_dropout(model: Model, options: Mapping[str, object]) -> None:
    """Set the dropout rates of a model to those in `options`, and leave everything else as it is.

    Two models without weights, one of the present configuration and one of `options`, are compared: the attributes of
    modules in which they differ are those that follow from the rates.
    """
    if dict(vars(model.config)) == dict(options):
        return
    with torch.random.fork_rng(devices=[]):
        pair = (vars(model.config), options)
        present, wanted = (build_on_meta(model.name, config) or build_model(model.name, config) for config in pair)
    for module, old, new in zip(model.modules(), present.modules(), wanted.modules(), strict=True):
        for name, value in vars(new).items():
            if isinstance(value, float | BaseModel) and value != vars(old)[name]:
                vars(module)[name] = value
