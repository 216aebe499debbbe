"""Train from boxes at scale: COCO's captions and damaged boxes, no pixel.

    python research/photo/boxes.py FOLDER MINUTES

reads captions.npz, embedding.npy, vocabulary.txt and noise.npz of FOLDER and writes FOLDER/boxes.pt, from which it
goes on where it exists. MINUTES of process time in all, not counting earlier calls.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from common import Averaged, caption_loss, new_model, save
from sources import BoxedImages

BATCH = 16
RATE, WARMUP = 1.5e-3, 250


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    folder, minutes = Path(sys.argv[1]), float(sys.argv[2])
    images = BoxedImages(folder)
    torch.manual_seed(0)
    model = new_model(folder)
    with torch.no_grad():
        model.decoder.embedding.weight.copy_(torch.from_numpy(np.load(folder / "embedding.npy")))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    average, step = Averaged(model, 0.995), 0
    path = folder / "boxes.pt"
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        average.load(state["average"])
        step = state["step"]
    generator = np.random.default_rng(step)
    torch.manual_seed(step)
    losses, started, wall = [], time.process_time(), time.time()
    while time.process_time() - started < 60 * minutes:
        chosen = generator.integers(len(images), size=BATCH)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARMUP)
        model.train()
        loss = caption_loss(model, images.regions(chosen, generator), images.captions[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        step += 1
        losses.append(loss.item())
        if step % 100 == 0:
            spent = time.process_time() - started
            minutes_passed = (time.time() - wall) / 60
            mean = np.mean(losses[-100:])
            print(f"step {step} loss {mean:.4f} cpu {spent / 60:.1f} min wall {minutes_passed:.1f} min", flush=True)
        if step % 200 == 0:
            save(path, model=model, optimizer=optimizer, average=average, step=step)
    save(path, model=model, optimizer=optimizer, average=average, step=step)


if __name__ == "__main__":
    main()
