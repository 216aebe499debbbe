"""One step of one stage: a batch becomes a change of the weights, on any number of devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from legenda.data.caption_sets import CaptionSet
from legenda.errors import UserError
from legenda.files import whole_file
from legenda.models import Captioner
from legenda.regions import Regions
from legenda.training.optimizers import clip, create_optimizer
from legenda.training.rewards import Reward, Rewards
from legenda.training.self_critical import SelfCriticalTask
from legenda.training.settings import Training
from legenda.training.tasks import CrossEntropyTask, Prepared, Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, eq=False)
class _Part:
    """Some images of a step on this device. `idle`: they stand in for none, and count nothing."""

    regions: Regions
    prepared: Prepared
    idle: bool


class Stage:
    """A model set up for the device with the task and the optimiser of one stage."""

    def __init__(
        self,
        fabric: Fabric,
        model: Captioner,
        training: Training,
        split: CaptionSet,
        own_rewards: Mapping[str, Reward] | None,
    ) -> None:
        self.fabric, self.model, self.training, self.split = fabric, model, training, split
        self.optimizer = create_optimizer(model.parameters(), training)
        self.task = create_task(model, training, split, own_rewards)
        if training.compile:
            self.task.compile()
        self.wrapped, self.stepper = fabric.setup(self.task, self.optimizer)

    @property
    def rewards(self) -> Rewards | None:
        """The rewards of a self-critical stage."""
        return self.task.rewards if isinstance(self.task, SelfCriticalTask) else None

    def step(
        self, images: np.ndarray, captions: Tensor, rate: float, epoch: int, refused: Path, *, step: int
    ) -> dict[str, float]:
        """One change of the weights at a learning rate; gives the loss and what the task tells of the batch.

        images: positions in the training split of all devices' images, and their captions; each device takes its share
        of both. The gradient is that of one device working on all of them. Raises UserError where the loss or its
        gradient is no number, after saving the batch in the file `refused`.
        """
        fabric, training = self.fabric, self.training
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        parts = self._parts(images, captions, epoch)
        totals = self._totals(parts)
        self.optimizer.zero_grad(set_to_none=True)
        told: dict[str, float] = {}
        for number, part in enumerate(parts):
            with fabric.no_backward_sync(self.wrapped, enabled=number < len(parts) - 1):
                regions = part.regions
                output = self.wrapped(
                    regions.features, regions.boxes, regions.valid, regions.pooled, *part.prepared.inputs
                )
                loss = part.prepared.finish(output)
                shares = zip(self.task.shares, loss.sums, totals, strict=True)
                value = sum((share / max(total, 1.0) * summed for share, summed, total in shares), torch.tensor(0.0))
                fabric.backward(value * (0 if part.idle else fabric.world_size))
            share = 0.0 if part.idle else len(regions) / len(images)
            told["loss"] = told.get("loss", 0.0) + (0.0 if part.idle else value.item())
            for name, said in loss.told.items():
                told[name] = told.get(name, 0.0) + said * share
        told = self._summed(told)
        norm = clip(fabric, self.wrapped, self.stepper, training)
        scaled = training.precision == "16-mixed"  # whose scaler leaves out steps that overflow
        if not math.isfinite(told["loss"]) or (not scaled and norm is not None and not math.isfinite(norm)):
            self._refuse(images, captions, refused, step)
        self.stepper.step()
        return told

    def _parts(self, images: np.ndarray, captions: Tensor, epoch: int) -> list[_Part]:
        """The images of this device in `accumulate` parts, with all that needs no gradient done."""
        fabric, training = self.fabric, self.training
        every = fabric.world_size * training.accumulate
        parts = []
        for number in range(min(training.accumulate, -(-len(images) // fabric.world_size))):
            chosen = np.arange(len(images))[fabric.global_rank + number * fabric.world_size :: every]
            idle = not len(chosen)
            chosen = chosen[:1] if idle else chosen
            if idle:
                chosen = np.zeros(1, dtype=int)
            regions = self.split.read(images[chosen]).to(fabric.device)
            rows = captions[torch.from_numpy(chosen)].to(fabric.device)
            with fabric.autocast():
                prepared = self.task.prepare(images[chosen], regions, rows, epoch)
            parts.append(_Part(regions, prepared, idle))
        return parts

    def _totals(self, parts: Sequence[_Part]) -> list[float]:
        """What each part of the loss is divided by, over all parts and devices."""
        own = torch.zeros(len(self.task.shares), dtype=torch.float64)
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

    def _refuse(self, images: np.ndarray, captions: Tensor, path: Path, step: int) -> None:
        if self.fabric.is_global_zero:
            regions = self.split.read(images)
            tensors = {"features": regions.features, "mask": regions.valid, "captions": captions}
            if regions.boxes is not None:
                tensors["boxes"] = regions.boxes
            named = {"images": "\n".join(self.split.identities[image] for image in images)}
            with whole_file(path) as partial:
                safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, partial, named)
        raise UserError(
            f"the loss or its gradient is no longer a number at step {step}, whose images are in {path}; look for "
            "broken features there, or train into another folder (--out) with a lower training.schedule.rate"
        )


def create_task(
    model: Captioner, training: Training, split: CaptionSet, own_rewards: Mapping[str, Reward] | None = None
) -> Task:
    """The task that the settings name."""
    if training.objective == "cross_entropy":
        return CrossEntropyTask(model, training)
    assert model.vocabulary is not None
    return SelfCriticalTask(model, training, Rewards.of(training.self_critical, split, model.vocabulary, own_rewards))
