"""Train on the photographs and on images of which only boxes are known, whose words are simulated.

    python research/photo/finetune.py FOLDER START OUT MINUTES BOXED PHOTOGRAPHS RATE

START: the checkpoint whose averaged weights begin, or `none`; OUT: the checkpoint that is written, from which training
goes on where it exists. MINUTES of process time. Each step takes BOXED images and PHOTOGRAPHS, every second one as its
mirror image, with `CAPTIONS` captions each; two others give a boxed image's words. The learning rate falls from RATE by
half a cosine over the process time.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from coco import TRAIN
from common import Averaged, caption_loss, new_model, save
from sources import BoxedImages, Photographs, SimulatedWords, join

CAPTIONS = 3
"""Captions of an image that are learned in a step."""
LEAST_RATE, WARMUP = 3e-5, 100
DROPOUT, DROP_REGION = 0.08, 0.1


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
        "drop_region": DROP_REGION,
        "decoder": {"name": "transformer", **decoder},
    }


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    folder, start, path, minutes = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    boxed_count, photograph_count, highest = int(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
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
    elif str(start) == "none":
        torch.manual_seed(0)
        with torch.no_grad():
            model.decoder.embedding.weight.copy_(torch.from_numpy(np.load(folder / "embedding.npy")))
    else:
        model.load_state_dict(torch.load(start, weights_only=True)["average"]["weights"])
    average = Averaged(model, 0.995)
    if path.exists():
        average.load(state["average"])
    generator = np.random.default_rng(step)
    torch.manual_seed(step)
    rounds = Rounds(photographs.rows(TRAIN), generator)
    boxed_rounds = Rounds(np.arange(len(boxed)), generator)
    losses, wall, started = [], time.time(), time.process_time() - spent_before
    while (spent := time.process_time() - started) < 60 * minutes:
        rate = LEAST_RATE + (highest - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * spent / (60 * minutes)))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        model.train()
        chosen = photographs.mirror(rounds.take(photograph_count), generator)
        regions = photographs.regions(chosen)
        captions = photographs.captions[chosen][:, generator.permutation(5)[:CAPTIONS]]
        if boxed_count:
            images = boxed_rounds.take(boxed_count)
            their_captions = boxed.captions[images][:, generator.permutation(5)]
            simulated = boxed.regions(images, generator, words, their_captions[:, CAPTIONS:])
            regions = join(regions, simulated)
            captions = np.concatenate([captions, their_captions[:, :CAPTIONS]])
        loss = caption_loss(model, regions, captions)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        losses.append(loss.item())
        step += 1
        if step % 100 == 0:
            mean, passed = np.mean(losses[-100:]), (time.time() - wall) / 60
            print(f"step {step} loss {mean:.4f} cpu {spent / 60:.1f} min wall {passed:.1f} min", flush=True)
        if step % 200 == 0:
            save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)
    save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)


if __name__ == "__main__":
    main()
