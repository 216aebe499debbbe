"""How noisy the gradient of self-critical training is with its baseline."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from legenda.claims.runs import ClaimRun
from legenda.evaluation.runs import load_captioner_run
from legenda.tasks.base import Objective
from legenda.tasks.captioning import Captioning

NUM_BATCHES, BATCH_SIZE = 60, 32


def gradient_noise(run: ClaimRun) -> float | None:
    """Return the variance of the gradient of the second stage, divided by the squared norm of its mean.

    Of the model with which that stage began, over NUM_BATCHES random batches of BATCH_SIZE training images, each with
    samples of its own; the training takes larger batches or smaller ones. None where the stage is not self-critical.
    """
    config = run.recipe.stages[-1]
    if config.objective != "self_critical":
        return None
    model = load_captioner_run(run.folder).load_stage(1).model
    objective = Captioning(run.recipe.data.open(lambda _: None)).objective(model, config)
    model.train()
    torch.manual_seed(run.seed)
    generator = torch.Generator().manual_seed(run.seed)
    gradients = []
    for number in range(NUM_BATCHES):
        indices = np.random.default_rng([run.seed, number]).choice(len(objective.split), BATCH_SIZE, replace=False)
        gradients.append(_gradient(objective, indices, generator))
    return noise_of(torch.stack(gradients))


def noise_of(gradients: Float[Tensor, "batches parameters"]) -> float:
    """Return the sum of the variances of all components, divided by the squared norm of the mean gradient.

    That norm is estimated without bias: the square of the mean of a few noisy gradients is too large by their variance
    divided by their number. Infinite where the noise hides the mean.
    """
    variance = float(gradients.var(dim=0).sum())
    squared_norm = float(gradients.mean(dim=0).square().sum()) - variance / len(gradients)
    return variance / squared_norm if squared_norm > 0 else float("inf")


def _gradient(objective: Objective, indices: np.ndarray, generator: torch.Generator) -> Float[Tensor, " parameters"]:
    """Return the gradient of the loss of a batch as one vector."""
    objective.zero_grad()
    batch = {**objective.read(indices), **objective.sample_targets(indices, generator)}
    prepared = objective.prepare(indices, batch, 1)
    loss = prepared.finish(objective(batch, *prepared.inputs))
    (loss.sums[0] / max(prepared.normalizers[0], 1.0)).backward()
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in objective.model.parameters()]
    return torch.cat([part.flatten() for part in parts])
