"""Train on the photographs of both sets, among images of which only boxes and simulated words are known.

    python research/photo/finetune.py FOLDER START OUT MINUTES

START: the checkpoint whose averaged weights begin; OUT: the checkpoint that is written, from which training goes on
where it exists. MINUTES of process time. Each step takes `COCO` and `FLICKR` photographs with 5 captions each; some
steps also take `BOXED` images, with two captions given as simulated words, or none, and the others learned. The
learning rate falls by half a cosine over the process time.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from common import Averaged, loss_of_memory, new_model, save
from sources import BoxedImages, Photographs, SimulatedWords

from legenda.models import Captioner

COCO, FLICKR, BOXED = 4, 6, 6
BOXED_SHARE = 0.15
"""Share of the steps that have boxed images too."""
RATE, LEAST_RATE, WARMUP = 7e-4, 3e-5, 60
WORDS_SHARE = 0.7
"""Share of these steps in which they have simulated words."""
DROPOUT, REGION_DROPOUT = 0.08, 0.1


class Rounds:
    """The elements of an array in random order, round after round."""

    def __init__(self, rows: np.ndarray, generator: np.random.Generator) -> None:
        self.rows, self.generator, self.queue = rows, generator, np.empty(0, int)

    def take(self, count: int) -> np.ndarray:
        """Return the next ones."""
        if len(self.queue) < count:
            self.queue = np.concatenate([self.queue, self.generator.permutation(self.rows)])
        taken, self.queue = self.queue[:count], self.queue[count:]
        return taken


def dropout_options() -> dict[str, object]:
    """Return the options of the model in this stage."""
    decoder = {"num_layers": 2, "dropout": DROPOUT, "norm_first": True, "tie_embeddings": True}
    return {
        "dropout": DROPOUT,
        "region_dropout": REGION_DROPOUT,
        "decoder": {"name": "transformer", **decoder},
    }


def boxed_loss(
    model: Captioner, boxed: BoxedImages, words: SimulatedWords, generator: np.random.Generator
) -> torch.Tensor:
    """Return the loss of some boxed images, most often with simulated words."""
    images = generator.integers(len(boxed), size=BOXED)
    captions = boxed.captions[images][:, generator.permutation(5)]
    if generator.random() < WORDS_SHARE:
        regions, captions = boxed.regions(images, generator, words, captions[:, :2]), captions[:, 2:]
    else:
        regions = boxed.regions(images, generator)
    with torch.autocast("cpu", torch.bfloat16):
        memory = model.encode(regions)
    return loss_of_memory(model, memory, captions)


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    folder, start, path, minutes = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    photographs, boxed = Photographs(folder), BoxedImages(folder)
    words = SimulatedWords(folder, photographs)
    model = new_model(folder, **dropout_options())
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.02, fused=True)
    step, spent_before = 0, 0.0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent_before = state["step"], state["spent"]
    else:
        state = torch.load(start, weights_only=True)
        model.load_state_dict(state["average"]["weights"])
    average = Averaged(model, 0.995)
    if path.exists():
        average.load(state["average"])
    generator = np.random.default_rng(step)
    torch.manual_seed(step)
    rounds = {coco: Rounds(photographs.rows(coco, 0), generator) for coco in (True, False)}
    losses, wall, started = [], time.time(), time.process_time() - spent_before
    while (spent := time.process_time() - started) < 60 * minutes:
        rate = LEAST_RATE + (RATE - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * spent / (60 * minutes)))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        model.train()
        chosen = np.concatenate([rounds[True].take(COCO), rounds[False].take(FLICKR)])
        with torch.autocast("cpu", torch.bfloat16):
            memory = model.encode(photographs.regions(chosen))
        loss = loss_of_memory(model, memory, photographs.captions[chosen])
        loss.backward()
        losses.append(loss.item())
        if generator.random() < BOXED_SHARE:
            boxed_loss(model, boxed, words, generator).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
        step += 1
        if step % 50 == 0:
            mean = np.mean(losses[-50:])
            print(
                f"step {step} loss {mean:.4f} cpu {spent / 60:.1f} min wall {(time.time() - wall) / 60:.1f} min",
                flush=True,
            )
        if step % 200 == 0:
            save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)
    save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)


if __name__ == "__main__":
    main()
