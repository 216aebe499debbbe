"""One step of one stage: a batch becomes a change of the weights, on any number of devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from legenda.errors import UserError
from legenda.io import atomic_write
from legenda.models.model import Model
from legenda.tasks.base import Batch, Prepared, Task
from legenda.tasks.rewards import Reward, Rewards
from legenda.tasks.self_critical import SelfCriticalObjective
from legenda.training.config import Training
from legenda.training.distributed import whole_weights
from legenda.training.optim import clip, create_optimizer
from legenda.training.prefetch import ReadAhead

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, eq=False)
class _Part:
    """Some examples of a step on this device. `idle`: they stand in for none, and count nothing."""

    batch: Batch
    prepared: Prepared
    examples: int
    idle: bool


class Stage:
    """A model set up for the device with the objective and the optimiser of one stage."""

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        model: Model,
        training: Training,
        own_rewards: Mapping[str, Reward] | None,
    ) -> None:
        self.fabric, self.task, self.model, self.training = fabric, task, model, training
        self.objective = task.objective(model, training, own_rewards)
        if training.compile:
            self.objective.compile()
        self.wrapped = fabric.setup_module(self.objective)
        self.reader = ReadAhead(self.objective.read, fabric.device)
        self.optimizer = create_optimizer(model.parameters(), training)  # of the weights as the devices hold them
        self.stepper: Any = fabric.setup_optimizers(self.optimizer)

    @property
    def rewards(self) -> Rewards | None:
        """The rewards of a self-critical stage."""
        return self.objective.rewards if isinstance(self.objective, SelfCriticalObjective) else None

    def step(
        self,
        positions: np.ndarray,
        generator: torch.Generator,
        rate: float,
        epoch: int,
        refused: Path,
        *,
        step: int,
        following: np.ndarray | None,
    ) -> dict[str, float]:
        """One change of the weights at a learning rate; gives the loss and what the objective tells of the batch.

        positions: of all devices' examples in the training split, of which each device takes its share; generator: of
        what is drawn for them, the same on all devices; following: the positions of the next step, whose examples are
        read meanwhile. The gradient is that of one device working on all of them.
        Raises UserError where the loss or its gradient is no number, after saving the batch in the file `refused`.
        """
        fabric, training = self.fabric, self.training
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        drawn = self.objective.draw(positions, generator)
        parts = self._parts(positions, drawn, epoch)
        if following is not None:
            for chosen, _ in self._own(following):
                self.reader.begin(following[chosen])
        totals = self._totals(parts)
        self.optimizer.zero_grad(set_to_none=True)
        told: dict[str, float] = {}
        for number, part in enumerate(parts):
            with fabric.no_backward_sync(self.wrapped, enabled=number < len(parts) - 1):
                output = self.wrapped(part.batch, *part.prepared.inputs)
                loss = part.prepared.finish(output)
                shares = zip(self.objective.shares, loss.sums, totals, strict=True)
                value = sum((share / max(total, 1.0) * summed for share, summed, total in shares), torch.tensor(0.0))
                fabric.backward(value * (0 if part.idle else fabric.world_size))
            share = 0.0 if part.idle else part.examples / len(positions)
            told["loss"] = told.get("loss", 0.0) + (0.0 if part.idle else value.item())
            for name, said in loss.told.items():
                told[name] = told.get(name, 0.0) + said * share
        told = self._summed(told)
        norm = clip(fabric, self.wrapped, self.stepper, training)
        scaled = training.precision == "16-mixed"  # whose scaler leaves out steps that overflow
        if not math.isfinite(told["loss"]) or (not scaled and norm is not None and not math.isfinite(norm)):
            self._refuse(positions, drawn, refused, step)
        self.stepper.step()
        if fabric.world_size > 1:  # running statistics are those of the first device, which is the one that saves
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, 0)
        return told

    def _own(self, positions: np.ndarray) -> list[tuple[np.ndarray, bool]]:
        """The examples of this device in each of its `accumulate` parts, and whether one stands in for none."""
        fabric, training = self.fabric, self.training
        every = fabric.world_size * training.accumulate
        number_of_parts = min(training.accumulate, -(-len(positions) // fabric.world_size))
        firsts = [fabric.global_rank + number * fabric.world_size for number in range(number_of_parts)]
        shares = [np.arange(len(positions))[first::every] for first in firsts]
        return [(chosen, False) if len(chosen) else (np.zeros(1, dtype=int), True) for chosen in shares]

    def _parts(self, positions: np.ndarray, drawn: Batch, epoch: int) -> list[_Part]:
        """The examples of this device, part by part, with all that needs no gradient done."""
        parts = []
        for chosen, idle in self._own(positions):
            own = {name: tensor[torch.from_numpy(chosen)].to(self.fabric.device) for name, tensor in drawn.items()}
            batch = {**self.reader.take(positions[chosen]), **own}
            with whole_weights(self.objective), self.fabric.autocast():
                prepared = self.objective.prepare(positions[chosen], batch, epoch)
            parts.append(_Part(batch, prepared, len(chosen), idle))
        return parts

    def _totals(self, parts: Sequence[_Part]) -> list[float]:
        """What each part of the loss is divided by, over all parts and devices."""
        own = torch.zeros(len(self.objective.shares), dtype=torch.float64)
        for part in parts:
            if not part.idle:
                own += torch.tensor(part.prepared.counts, dtype=torch.float64)
        return self._all_summed(own).tolist()

    def _summed(self, told: Mapping[str, float]) -> dict[str, float]:
        names = sorted(told)
        values = self._all_summed(torch.tensor([told[name] for name in names], dtype=torch.float64)).tolist()
        return dict(zip(names, values, strict=True))

    def _all_summed(self, values: Tensor) -> Tensor:
        if self.fabric.world_size == 1:
            return values
        summed = self.fabric.all_reduce(values.to(self.fabric.device), reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed.cpu()

    def _refuse(self, positions: np.ndarray, drawn: Batch, path: Path, step: int) -> None:
        if self.fabric.is_global_zero:
            tensors = {**self.objective.read(positions), **drawn}
            named = {"examples": "\n".join(self.task.train.ids[position] for position in positions)}
            with atomic_write(path) as partial:
                safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, partial, named)
        self.fabric.barrier()  # else another process, ending, could end this one while it writes
        raise UserError(
            f"the loss or its gradient is no longer a number at step {step}, whose examples are in {path}; look for "
            "broken features there, or train into another folder (--out) with a lower training.schedule.rate"
        )
