"""Self-critical training on photographs and on images of which only boxes and simulated words are known.

    python research/photo/selfcritical.py FOLDER START OUT MINUTES RATE

The reward is CIDEr-D with the end of a caption as a word, as in AoANet's released code, against the image's captions;
against those that did not give the simulated words for boxed images. Document frequencies are those of COCO's training
captions. From it `PENALTY` is taken for each word that names a thing of COCO's classes of which the image has no true
box and which none of its captions names. The baseline of a sample is the mean of the image's others. Samples of a model
that learned with label smoothing are mostly noise, so its logits are first divided by `TEMPERATURE`, in the weights of
the last normalization. Sampling and learning are both without dropout. Each token is drawn among the `TOP` likeliest:
samples of all tokens end in word salad after some hundred steps. MINUTES of process time.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from coco import TRAIN
from common import Averaged, new_model, save
from finetune import Rounds, dropout_options
from nouns import name_classes
from sources import BoxedImages, Photographs, SimulatedWords, join
from torch import Tensor

from legenda.decoding import sample
from legenda.metrics.cider import DocumentFrequencies
from legenda.metrics.rewards import CiderD
from legenda.models import Captioner
from legenda.photo.regions import labels
from legenda.regions import Regions

BOXED, PHOTOGRAPHS = 18, 20
"""Images of a step."""
SAMPLES = 5
LEAST_RATE, WARMUP = 5e-6, 20
PENALTY = 0.3
TEMPERATURE = 0.6
TOP = 6
"""Likeliest tokens of which one is drawn."""
MAX_LENGTH = 18


def count_absent(tokens: np.ndarray, present: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return how many words of captions `(B, K, T)` name a thing that is not there, `(B, K)`.

    present: `(B, 80)`, whether each image shows a class; names: the class that each token names, or -1.
    """
    classes = names[tokens]
    ended = np.cumsum(tokens == 0, axis=2) > 0
    image = np.arange(len(tokens))[:, np.newaxis, np.newaxis]
    return ((classes >= 0) & ~ended & ~present[image, classes]).sum(2)


def with_named(shown: np.ndarray, captions: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the classes that images show `(B, 80)` or that their captions `(B, K, T)` name."""
    present = shown.copy()
    image, caption, position = np.nonzero((captions > 0) & (names[captions.clip(min=0)] >= 0))
    present[image, names[captions[image, caption, position]]] = True
    return present


def references(captions: np.ndarray) -> list[list[list[int]]]:
    """Return the words of captions `(B, K, T)` as lists of ids, with the end, id 0."""
    return [[[*(i for i in caption if i > 0), 0] for caption in image if caption[0] > 0] for image in captions.tolist()]


def policy_loss(
    model: Captioner, regions: Regions, rewards: Callable[[np.ndarray], np.ndarray]
) -> tuple[Tensor, np.ndarray]:
    """Return the loss of samples of the model, a mean over their tokens, and the mean reward of each image.

    rewards: returns the rewards `(B, K)` of tokens `(B, K, T)`.
    """
    tokens = sample(
        model, regions, num_samples=SAMPLES, top_k=TOP, max_length=MAX_LENGTH
    ).tokens.clone()  # gradients may pass
    ended = (tokens == model.vocabulary.eos_token_id).cumsum(2)
    real = ended - (tokens == model.vocabulary.eos_token_id).long() == 0
    reward = torch.from_numpy(rewards(tokens.numpy()))
    advantage = reward - (reward.sum(1, keepdim=True) - reward) / (SAMPLES - 1)
    inputs = torch.nn.functional.pad(tokens[..., :-1], (1, 0), value=model.generation_config.bos_token_id)
    logits = model(regions, inputs, real)
    chosen = -torch.nn.functional.cross_entropy(logits, tokens[real], reduction="none")
    weight = advantage.float().unsqueeze(2).expand(tokens.shape)[real]
    return -(chosen * weight).mean(), reward.mean(1).numpy()


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    folder, start, path = map(Path, sys.argv[1:4])
    minutes, highest = map(float, sys.argv[4:6])
    photographs, boxed = Photographs(folder), BoxedImages(folder)
    words = SimulatedWords(folder, photographs)
    model = new_model(folder, **dropout_options())
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.02, fused=True)
    step, spent_before = 0, 0.0
    state = torch.load(path if path.exists() else start, weights_only=True)
    model.load_state_dict(state["model"] if path.exists() else state["average"]["weights"])
    if not path.exists():
        with torch.no_grad():
            model.decoder.norm.weight.div_(TEMPERATURE)
            model.decoder.norm.bias.div_(TEMPERATURE)
    average = Averaged(model, 0.99)
    if path.exists():
        optimizer.load_state_dict(state["optimizer"])
        average.load(state["average"])
        step, spent_before = state["step"], state["spent"]
    model.eval()
    generator = np.random.default_rng(1000 + step)
    torch.manual_seed(1000 + step)
    rows = photographs.rows(TRAIN)
    own = references(photographs.captions[rows])
    documents = DocumentFrequencies.from_references(
        [*own, *references(boxed.captions[np.random.default_rng(0).permutation(len(boxed))[:40_000]])]
    )
    measure = CiderD(dict(zip(photographs.row[rows].tolist(), own, strict=True)), df=documents)
    names = name_classes(model.vocabulary, labels())
    rounds, boxed_rounds = Rounds(rows, generator), Rounds(np.arange(len(boxed)), generator)
    history, wall, started = [], time.time(), time.process_time() - spent_before
    while (spent := time.process_time() - started) < 60 * minutes:
        rate = LEAST_RATE + (highest - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * spent / (60 * minutes)))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        seen, images = rounds.take(PHOTOGRAPHS), boxed_rounds.take(BOXED)
        captions = boxed.captions[images][:, generator.permutation(5)]
        against = CiderD(references(captions[:, 2:]), df=documents)
        shown = np.concatenate([photographs.classes[seen], boxed.shown(images)])
        present = with_named(shown, np.concatenate([photographs.captions[seen], captions]), names)
        regions = photographs.regions(photographs.mirror(seen, generator))
        regions = join(regions, boxed.regions(images, generator, words, captions[:, :2]))

        def reward(
            tokens: np.ndarray, seen: np.ndarray = seen, against: CiderD = against, present: np.ndarray = present
        ) -> np.ndarray:
            ours, others = np.split(tokens, [PHOTOGRAPHS])
            cider = np.concatenate([measure(photographs.row[seen].tolist(), ours), against(range(BOXED), others)])
            return cider - PENALTY * count_absent(tokens, present, names)

        loss, means = policy_loss(model, regions, reward)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        step += 1
        history.append([part.mean() for part in np.split(means, [PHOTOGRAPHS])])
        if step % 50 == 0:
            by_source = " ".join(f"{mean:.3f}" for mean in np.mean(history[-50:], axis=0))
            passed = (time.time() - wall) / 60
            print(f"step {step} rewards {by_source} cpu {spent / 60:.1f} min wall {passed:.1f} min", flush=True)
        if step % 100 == 0:
            save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)
        if step % 100 == 0:
            save(path.with_suffix(f".{step}.pt"), average=average, step=step)
    save(path, model=model, optimizer=optimizer, average=average, step=step, spent=spent)


if __name__ == "__main__":
    main()
