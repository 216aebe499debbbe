"""One optimization step of a training stage on any number of devices: optimizer, clipping, weight averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from legenda.errors import DataError
from legenda.io import atomic_write
from legenda.models.backbone import find_backbone
from legenda.models.base import Model
from legenda.tasks.base import Batch, PreparedBatch, Task
from legenda.tasks.self_critical import Rewards
from legenda.training.config import TrainingConfig
from legenda.training.distributed import all_reduce_sum, check_gradients, full_tensor, unsharded_params

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_FAILED_BATCH = "failed_batch.safetensors"
"""The file of a batch whose loss was not finite."""
_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam, "sgd": torch.optim.SGD}


def _create_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return the configured optimizer of a model's parameters; every step sets the learning rate."""
    backbone = find_backbone(model)
    own = [] if backbone is None else list(backbone.parameters())
    ids = set(map(id, own))
    parameters = [{"params": [p for p in model.parameters() if id(p) not in ids], "share": 1.0}]
    if own:
        parameters.append({"params": own, "share": config.backbone_rate})
    options: dict[str, Any] = {"betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        options = {"momentum": config.betas[0], "weight_decay": config.weight_decay}
    if config.optimizer != "radam" and config.precision != "fp16":
        options["fused"] = True  # radam has no fused kernel; those of the others unscale gradients after clipping
    return _OPTIMIZERS[config.optimizer](parameters, lr=1.0, **options)


def _clip_gradients(
    fabric: Fabric, module: nn.Module, optimizer: torch.optim.Optimizer, config: TrainingConfig
) -> Tensor | None:
    """Clip gradients by value, then by norm, in place; return their norm before both, None without gradients."""
    max_norm = float("inf") if config.max_grad_value or not config.max_grad_norm else config.max_grad_norm
    norm = fabric.clip_gradients(module, optimizer, max_norm=max_norm, error_if_nonfinite=False)
    norm = None if norm is None else full_tensor(norm)
    if config.max_grad_value:
        nn.utils.clip_grad_value_(module.parameters(), config.max_grad_value)
        if config.max_grad_norm:
            nn.utils.clip_grad_norm_(module.parameters(), config.max_grad_norm)
    return norm


class AverageWeights:
    """The average of a model's floating-point weights; other tensors are those of the model.

    values: the average by name, empty before the first update.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self.model, self.config = model, config
        self.values: dict[str, Tensor] = {}
        self.num_updates = 0

    def after_step(self, epoch: int) -> None:
        """Update the exponential moving average after a step of an epoch, counted from 1."""
        if self.config.weight_averaging == "ema" and epoch >= self.config.averaging_start_epoch:
            # The decay is smaller in the beginning, so that the initial weights are forgotten quickly.
            decay = min(self.config.ema_decay, (1 + self.num_updates) / (10 + self.num_updates))
            self._update(1 - decay)

    def after_epoch(self, epoch: int) -> None:
        """Update the mean over epochs at the end of an epoch, counted from 1."""
        if self.config.weight_averaging == "swa" and epoch >= self.config.averaging_start_epoch:
            self._update(1 / (1 + self.num_updates))

    @torch.no_grad()
    def _update(self, weight: float) -> None:
        for name, tensor in self.model.state_dict().items():
            if tensor.is_floating_point():
                if name in self.values:
                    self.values[name].lerp_(tensor.to(self.values[name].dtype), weight)
                else:
                    self.values[name] = tensor.detach().clone()
        self.num_updates += 1

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, and its current ones again afterwards."""
        if not self.values:
            yield
            return
        current = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.values, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(current)


@dataclass(frozen=True, eq=False)
class _Chunk:
    """The examples of one gradient accumulation step on this device.

    is_dummy: they stand in where this device has no example, and do not count.
    """

    batch: Batch
    prepared: PreparedBatch
    num_examples: int
    is_dummy: bool


class Stage:
    """A model on its device with the objective and the optimizer of one training stage."""

    def __init__(self, fabric: Fabric, task: Task, model: Model, config: TrainingConfig, folder: Path) -> None:
        """fabric: with the plugin `stage_precision`; folder: gets the batch of a loss that is not finite."""
        self.fabric, self.task, self.model, self.config, self.folder = fabric, task, model, config, folder
        precision: Any = fabric.strategy.precision
        precision.use(config.precision)
        self.objective = task.objective(model, config)
        if (backbone := find_backbone(model)) is not None:
            backbone.set_trainable(config.backbone_rate > 0)
        if config.compile:
            self.objective.compile()
        self.wrapped = fabric.setup_module(self.objective)
        self.prefetcher = Prefetcher(self.objective.read, fabric.device)
        self.optimizer = _create_optimizer(model, config)  # after the setup, which may shard the weights
        self.wrapped_optimizer: Any = fabric.setup_optimizers(self.optimizer)
        self.checks_gradients = any(isinstance(module, DistributedDataParallel) for module in self.wrapped.modules())

    @property
    def rewards(self) -> Rewards | None:
        """The rewards of a self-critical stage."""
        return getattr(self.objective, "rewards", None)

    def close(self) -> None:
        """End the threads that read batches and compute rewards."""
        self.prefetcher.close()
        if self.rewards is not None:
            self.rewards.close()

    def step(
        self,
        indices: np.ndarray,
        generator: torch.Generator,
        learning_rate: float,
        epoch: int,
        step: int,
        next_indices: np.ndarray | None,
    ) -> dict[str, float]:
        """Update the weights once; return the loss and the other metrics of the batch.

        indices: the examples of all devices, of which each device takes its part; generator: for the random choices of
        the batch, the same on all devices; next_indices: the examples of the next step, which are prefetched. The
        gradient equals that of a single device with all examples.
        Raise DataError where the loss or its gradient is not finite, after saving the batch.
        """
        fabric, config = self.fabric, self.config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["share"]  # of which a backbone has less than the others
        self.model.train()
        targets = self.objective.sample_targets(indices, generator)
        chunks = self._chunks(indices, targets, epoch)
        if next_indices is not None:
            for local, _ in self._local_examples(next_indices):
                self.prefetcher.start(next_indices[local])
        normalizers = self._normalizers(chunks)
        self.optimizer.zero_grad(set_to_none=True)
        metrics: dict[str, float] = {}
        for number, chunk in enumerate(chunks):
            with fabric.no_backward_sync(self.wrapped, enabled=number < len(chunks) - 1):
                output = self.wrapped(chunk.batch, *chunk.prepared.inputs)
                loss = chunk.prepared.finish(output)
                terms = zip(self.objective.loss_weights, loss.sums, normalizers, strict=True)
                value = sum((weight / max(total, 1.0) * summed for weight, summed, total in terms), torch.tensor(0.0))
                fabric.backward(value * (0 if chunk.is_dummy else fabric.world_size))
            fraction = 0.0 if chunk.is_dummy else chunk.num_examples / len(indices)
            metrics["loss"] = metrics.get("loss", 0.0) + (0.0 if chunk.is_dummy else value.item())
            for name, metric in loss.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + metric * fraction
        if self.checks_gradients:  # in the first step alone
            check_gradients(self.model)
            self.checks_gradients = False
        names = sorted(metrics)
        values = all_reduce_sum(fabric, torch.tensor([metrics[name] for name in names], dtype=torch.float64))
        metrics = dict(zip(names, values.tolist(), strict=True))
        norm = _clip_gradients(fabric, self.wrapped, self.wrapped_optimizer, config)
        has_scaler = config.precision == "fp16"  # it skips steps that overflow
        if not math.isfinite(metrics["loss"]) or (not has_scaler and norm is not None and not math.isfinite(norm)):
            self._raise_non_finite(indices, targets, step)
        self.wrapped_optimizer.step()
        if fabric.world_size > 1:  # running statistics are those of the first device, which saves the model
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, 0)
        return metrics

    def _local_examples(self, indices: np.ndarray) -> list[tuple[np.ndarray, bool]]:
        """Return this device's positions in `indices` for each chunk, and whether they are a dummy."""
        fabric, accumulation_steps = self.fabric, self.config.gradient_accumulation_steps
        stride = fabric.world_size * accumulation_steps
        num_chunks = min(accumulation_steps, -(-len(indices) // fabric.world_size))
        starts = [fabric.global_rank + number * fabric.world_size for number in range(num_chunks)]
        chunks = [np.arange(len(indices))[start::stride] for start in starts]
        return [(chunk, False) if len(chunk) else (np.zeros(1, dtype=int), True) for chunk in chunks]

    def _chunks(self, indices: np.ndarray, targets: Batch, epoch: int) -> list[_Chunk]:
        """Return this device's examples, chunk by chunk, with everything computed that needs no gradient."""
        chunks = []
        for local, is_dummy in self._local_examples(indices):
            local_targets = {
                name: tensor[torch.from_numpy(local)].to(self.fabric.device) for name, tensor in targets.items()
            }
            batch = {**self.prefetcher.next(indices[local]), **local_targets}
            with unsharded_params(self.objective), self.fabric.autocast():
                prepared = self.objective.prepare(indices[local], batch, epoch)
            chunks.append(_Chunk(batch, prepared, len(local), is_dummy))
        return chunks

    def _normalizers(self, chunks: Sequence[_Chunk]) -> list[float]:
        """Return the divisor of each term of the loss, over all chunks and devices."""
        total = torch.zeros(len(self.objective.loss_weights), dtype=torch.float64)
        for chunk in chunks:
            if not chunk.is_dummy:
                total += torch.tensor(chunk.prepared.normalizers, dtype=torch.float64)
        return all_reduce_sum(self.fabric, total).tolist()

    def _raise_non_finite(self, indices: np.ndarray, targets: Batch, step: int) -> None:
        path = self.folder / _FAILED_BATCH
        if self.fabric.is_global_zero:
            tensors = {**self.objective.read(indices), **targets}
            metadata = {"examples": "\n".join(self.task.train.ids[index] for index in indices)}
            with atomic_write(path) as partial:
                safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, partial, metadata)
        self.fabric.barrier()  # otherwise another process could end this one while it writes
        raise DataError(
            f"the loss or its gradient is not finite at step {step}, whose examples are in {path}; look for broken "
            "features there, or train into another folder (--out) with a lower training.schedule.learning_rate"
        )


class Prefetcher:
    """Reads batches in a thread, in order, and returns them on the device.

    For a GPU, batches are read into pinned memory and copied asynchronously. `next` reads a batch that was not started;
    errors of the reader are raised by `next`.
    """

    def __init__(self, read: Callable[[np.ndarray], Batch], device: torch.device) -> None:
        self._read, self._device = read, device
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._pending: dict[bytes, Future[Batch]] = {}

    def start(self, indices: np.ndarray) -> None:
        """Start to read the examples at these indices."""
        self._pending[indices.tobytes()] = self._executor.submit(self._read_pinned, indices)

    def next(self, indices: np.ndarray) -> Batch:
        """Return the examples at these indices."""
        pending = self._pending.pop(indices.tobytes(), None)
        batch = self._read_pinned(indices) if pending is None else pending.result()
        non_blocking = self._device.type == "cuda"
        return {name: tensor.to(self._device, non_blocking=non_blocking) for name, tensor in batch.items()}

    def close(self) -> None:
        """End the thread; batches that nobody has taken are dropped."""
        self._executor.shutdown(cancel_futures=True)

    def _read_pinned(self, indices: np.ndarray) -> Batch:
        batch = self._read(indices)
        if self._device.type != "cuda":
            return batch
        return {name: tensor.pin_memory() for name, tensor in batch.items()}
