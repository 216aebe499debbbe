"""Self-critical training on photographs and on images of which only boxes and simulated words are known.

    python research/photo/selfcritical.py FOLDER START OUT MINUTES

The reward of a photograph's captions is `CONSENSUS` times what the captions of similar photographs lead to expect
(consensus.py) plus `OWN` times CIDEr-D against its own captions; that of boxed images, in some steps, CIDEr-D
against the captions that did not give the simulated words. The baseline of a sample is the mean of the image's others.
Document frequencies are those of all training captions. MINUTES of process time.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import Averaged, decode, new_model, save
from consensus import Consensus
from finetune import Rounds, dropout_options
from sources import BoxedImages, Photographs, SimulatedWords
from torch import Tensor

from legenda.decoding import sample
from legenda.metrics.cider import DocumentFrequencies
from legenda.metrics.rewards import CiderD
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.regions import Regions

COCO, FLICKR, BOXED = 5, 5, 6
BOXED_SHARE = 0.3
"""Share of the steps that have boxed images too."""
SAMPLES = 5
RATE, LEAST_RATE, WARMUP = 4e-5, 5e-6, 20
CONSENSUS, OWN = 0.2, 1.0
MAX_LENGTH = 18


def references(captions: np.ndarray) -> list[list[list[int]]]:
    """Return the words of captions `(B, K, T)` as lists of ids."""
    return [[[i for i in caption if i > 0] for caption in image if caption[0] > 0] for image in captions.tolist()]


def policy_loss(
    model: Captioner, regions: Regions, rewards: Callable[[np.ndarray], np.ndarray]
) -> tuple[Tensor, float]:
    """Return the loss of samples of the model, summed over tokens and divided by their number, and the mean reward.

    rewards: returns the rewards `(B, K)` of tokens `(B, K, T)`.
    """
    with eval_mode(model):
        sampled = sample(model, regions, num_samples=SAMPLES, max_length=MAX_LENGTH).tokens
    tokens = sampled.clone()  # one that a gradient may pass
    ended = (tokens == model.vocabulary.eos_token_id).cumsum(2)
    real = ended - (tokens == model.vocabulary.eos_token_id).long() == 0
    reward = torch.from_numpy(np.asarray(rewards(tokens.numpy())))
    advantage = reward - (reward.sum(1, keepdim=True) - reward) / (SAMPLES - 1)
    model.train()
    inputs = torch.nn.functional.pad(tokens[..., :-1], (1, 0), value=model.generation_config.bos_token_id)
    with torch.autocast("cpu", torch.bfloat16):
        logits = decode(model, inputs, model.encode(regions), real)
    chosen = -torch.nn.functional.cross_entropy(logits.float(), tokens[real], reduction="none")
    weight = advantage.float().unsqueeze(2).expand(tokens.shape)[real]
    return -(chosen * weight).mean(), float(reward.mean())


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    folder, start, path, minutes = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    photographs, boxed = Photographs(folder), BoxedImages(folder)
    words, consensus = SimulatedWords(folder, photographs), Consensus(folder)
    model = new_model(folder, **dropout_options())
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.02, fused=True)
    step, spent_before = 0, 0.0
    state = torch.load(path if path.exists() else start, weights_only=True)
    model.load_state_dict(state["model"] if path.exists() else state["average"]["weights"])
    average = Averaged(model, 0.98)
    if path.exists():
        optimizer.load_state_dict(state["optimizer"])
        average.load(state["average"])
        step, spent_before = state["step"], state["spent"]
    generator = np.random.default_rng(1000 + step)
    torch.manual_seed(1000 + step)
    train = np.flatnonzero(photographs.split == 0)
    own_references = references(photographs.captions[train])
    some = references(boxed.captions[generator.permutation(len(boxed))[:40_000]])
    documents = DocumentFrequencies.from_references([*own_references, *some])
    own = CiderD(dict(zip(train.tolist(), own_references, strict=True)), eos="drop", df=documents)
    rounds = {coco: Rounds(photographs.rows(coco, 0), generator) for coco in (True, False)}
    history, wall, started = [], time.time(), time.process_time() - spent_before
    while (spent := time.process_time() - started) < 60 * minutes:
        rate = LEAST_RATE + (RATE - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * spent / (60 * minutes)))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        chosen = np.concatenate([rounds[True].take(COCO), rounds[False].take(FLICKR)])
        regions = photographs.regions(chosen)

        def reward(tokens: np.ndarray, chosen: np.ndarray = chosen) -> np.ndarray:
            return CONSENSUS * consensus(chosen, tokens) + OWN * own(chosen, tokens)

        loss, mean = policy_loss(model, regions, reward)
        loss.backward()
        if generator.random() < BOXED_SHARE:
            images = generator.integers(len(boxed), size=BOXED)
            captions = boxed.captions[images][:, generator.permutation(5)]
            against = CiderD(references(captions[:, 2:]), eos="drop", df=documents)
            policy_loss(
                model,
                boxed.regions(images, generator, words, captions[:, :2]),
                lambda tokens, against=against: against(range(BOXED), tokens),
            )[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
        step += 1
        history.append(mean)
        if step % 25 == 0:
            passed = (time.time() - wall) / 60
            reward_mean = np.mean(history[-25:])
            print(f"step {step} reward {reward_mean:.4f} cpu {spent / 60:.1f} min wall {passed:.1f} min", flush=True)
        if step % 100 == 0:
            save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)
            save(path.with_suffix(f".{step}.pt"), average=average, step=step)
    save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)


if __name__ == "__main__":
    main()
