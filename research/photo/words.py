"""Learn to predict the words of captions from what the networks see, for the regions of the extractor `photo`.

    python research/photo/words.py DATA OUT

reads the vectors of vectors.py, and writes into OUT:

    words.txt, words.safetensors, predictor.safetensors   of the extractor, which belong into src/legenda/assets/photo
    shares.npz   predicted words of every photograph, those of training photographs cross-fitted

Only captions of training photographs are learned; those of validation measure. Takes about 5 minutes on one core.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from coco import coco_images, read_photographs
from sources import caption_shares
from torch import Tensor, nn
from torch.nn import functional as F
from vectors import FILES

from legenda.models.weights import quantize
from legenda.photo.layout import DENSE, GLOBAL, VISUAL, WORD
from legenda.text import ptb_tokenize

STOP = frozenset(
    """a an the is are and of in on at with to by it its as be has have his her their he she they him them for from that
    this which while who what there into some one 's . , -""".split()  # noqa: SIM905
)
MIN_WORD, MIN_PAIR = 14, 40
"""Training captions that hold a word, or a pair of words, which is predicted."""
FOLDS = 5
HIDDEN = 512
BLOCKS = ((1280, 1.0, False), (320, 0.7, False), (1624, 0.7, True), (91, 0.3, False), (1001, 0.7, False))
"""Channels and weight of the blocks of a joined vector: map, detections, detector's maps, colors, ImageNet's classes;
and whether each channel is divided by its own deviation."""
Captions = Sequence[Sequence[Sequence[str]]]


def load_vectors(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of all photographs of a set, in the order of its file."""
    files = sorted(folder.glob(f"{name}.*.npz"), key=lambda path: int(path.suffixes[0][1:]))
    parts = [dict(np.load(file)) for file in files]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def main() -> None:
    """Write the files."""
    torch.set_num_threads(1)
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    tokens, splits, vectors = [], [], []
    for name in ("coco", "flickr"):
        _, split, captions = read_photographs(data / FILES[name])
        tokens += captions
        splits.append(split)
        vectors.append(load_vectors(out, name))
    split = np.concatenate(splits)
    is_coco = np.arange(len(split)) < len(splits[0])
    train = np.flatnonzero(split == 0)
    captions = [tokens[row] for row in train]
    names, shares = count_words(captions)
    whole = np.concatenate([v["whole"] for v in vectors])
    others = np.concatenate([v["others"].astype(np.float32) for v in vectors])
    joined = torch.from_numpy(np.concatenate([whole.astype(np.float32), others], axis=1))
    mean, scale = normalization(joined[train])
    x = (joined - mean) * scale
    del joined
    predictor = train_predictor(x[train], shares, seed=0)
    predicted = predict(predictor, x)
    index = {name: number for number, name in enumerate(names)}
    for label, chosen in (("coco", is_coco), ("flickr", ~is_coco)):
        rows = np.flatnonzero(chosen & (split == 1))
        truth = np.stack([caption_shares(tokens[row], index) for row in rows])
        prior = shares[chosen[train]].mean(0)
        variance = 1 - ((truth - predicted[rows]) ** 2).sum() / ((truth - prior) ** 2).sum()
        print(f"{label}: explained variance of {len(names)} shares on validation {variance:.4f}", flush=True)
    if len(sys.argv) > 3:
        return
    folds = np.random.default_rng(0).permutation(len(train)) % FOLDS
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        network = train_predictor(x[train[outside]], shares[outside], seed=fold + 1)
        predicted[train[inside]] = predict(network, x[train[inside]])
    write_words(out, names, shares, predicted[train], captions, data)
    parts = torch.from_numpy(np.concatenate([v["parts"] for v in vectors])[train][::2]).flatten(0, 1).float()
    visual_mean = parts.mean(0)
    write_tensors(
        out / "predictor.safetensors",
        {
            "mean": mean,
            "scale": scale,
            "hidden.weight": predictor[1].weight.data,
            "hidden.bias": predictor[1].bias.data,
            "words.weight": predictor[4].weight.data,
            "words.bias": predictor[4].bias.data,
            "visual_mean": visual_mean,
            "visual": directions(parts - visual_mean, VISUAL),
            "globals": directions(x[train][:, 1280:], GLOBAL),
        },
    )
    np.savez(out / "shares.npz", shares=predicted.astype(np.float16), split=split, is_coco=is_coco, folds=folds)


def count_words(captions: Captions) -> tuple[list[str], np.ndarray]:
    """Return the words and pairs of words that are predicted, and their shares in each image's captions."""
    words, pairs = Counter(), Counter()
    for caption in (caption for image in captions for caption in image):
        words.update(set(caption))
        pairs.update(set(pairwise(caption)))
    ranked = [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))]
    names = [word for word in ranked if words[word] >= MIN_WORD and word not in STOP]
    for (first, last), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        if count >= MIN_PAIR and not STOP & {first, last}:
            names.append(f"{first} {last}")
    index = {name: number for number, name in enumerate(names)}
    return names, np.stack([caption_shares(image, index) for image in captions])


def normalization(joined: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean, and the scale that gives each block its weight."""
    mean, variance = joined.mean(0), joined.var(0, correction=0)
    blocks = torch.split(variance, [channels for channels, _, _ in BLOCKS])
    scales = [
        weight / (block.sqrt() + 1e-3 if each else block.mean().sqrt().expand_as(block))
        for block, (_, weight, each) in zip(blocks, BLOCKS, strict=True)
    ]
    return mean, torch.cat(scales)


def train_predictor(
    x: Tensor, shares: np.ndarray, *, seed: int, epochs: int = 20, batch_size: int = 64
) -> nn.Sequential:
    """Return a network with one hidden layer, trained with much dropout on the cross-entropy of each share."""
    torch.manual_seed(seed)
    y = torch.from_numpy(shares)
    network = nn.Sequential(
        nn.Dropout(0.5), nn.Linear(x.shape[1], HIDDEN), nn.GELU(), nn.Dropout(0.5), nn.Linear(HIDDEN, y.shape[1])
    )
    with torch.no_grad():
        network[4].bias.copy_(torch.logit(y.mean(0).clamp(1e-4, 1 - 1e-4)))
        network[4].weight.mul_(0.1)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3, fused=True)
    steps, step = epochs * (len(x) // batch_size), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch_size)[: len(x) // batch_size]:
            rate = 1e-3 * min(1, (step + 1) / 100) * 0.5 * (1 + np.cos(np.pi * step / steps))
            for group in optimizer.param_groups:
                group["lr"] = rate
            step += 1
            with torch.autocast("cpu", torch.bfloat16):
                logits = network(x[rows])
            loss = F.binary_cross_entropy_with_logits(logits.float(), y[rows], reduction="sum") / batch_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


@torch.inference_mode()
def predict(network: nn.Sequential, x: Tensor) -> np.ndarray:
    """Return predicted shares."""
    return torch.cat([network(part).sigmoid() for part in x.split(1000)]).numpy().copy()


def write_words(
    out: Path, names: Sequence[str], shares: np.ndarray, predicted: np.ndarray, captions: Captions, data: Path
) -> None:
    """Write the names, the vectors of the words, and the principal directions of predictions."""
    (out / "words.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    others = coco_images(data)
    chosen = np.random.default_rng(0).permutation(len(others))[:30_000]
    texts = [(caption, 2) for image in captions for caption in image]
    texts += [(ptb_tokenize(caption), 1) for index in chosen for caption in others[index].captions]
    prior = shares.mean(0)
    standardized = torch.from_numpy(np.sqrt(predicted) - np.sqrt(prior))
    words = [name for name in names if " " not in name]
    tensors = {
        "vectors": word_vectors(words, texts),
        "prior": torch.from_numpy(prior),
        "projection": directions(standardized, DENSE),
    }
    write_tensors(out / "words.safetensors", tensors)


def word_vectors(words: Sequence[str], texts: Sequence[tuple[Sequence[str], int]]) -> Tensor:
    """Return vectors of the words from their neighbors, up to two positions away (Levy and Goldberg, 2014)."""
    counts = Counter()
    for caption, weight in texts:
        counts.update(dict.fromkeys(caption, 0))
        for word in caption:
            counts[word] += weight
    index = {word: row for row, word in enumerate(words)}
    context = {word: column for column, (word, _) in enumerate(counts.most_common(3_000))}
    matrix = np.zeros((len(words), 4 * len(context)), np.float32)
    for caption, weight in texts:
        for position, word in enumerate(caption):
            if word not in index:
                continue
            for number, offset in enumerate((-2, -1, 1, 2)):
                near = caption[position + offset] if 0 <= position + offset < len(caption) else None
                if near in context:
                    matrix[index[word], number * len(context) + context[near]] += weight
    expected = (matrix.sum(1, keepdims=True) + 1) * (matrix.sum(0, keepdims=True) + 50) / matrix.sum()
    positive = np.log(np.maximum(matrix / expected, 1))
    values, basis = np.linalg.eigh(positive @ positive.T)
    vectors = basis[:, ::-1][:, :WORD] * values[::-1][:WORD] ** 0.25
    vectors *= 0.7 * np.sqrt(WORD) / np.linalg.norm(vectors, axis=1, keepdims=True)
    return torch.from_numpy(vectors.astype(np.float32))


def directions(x: Tensor, number: int) -> Tensor:
    """Return principal directions, scaled so that the first one's values have a deviation of 1."""
    values, basis = np.linalg.eigh((x.T @ x / len(x)).numpy())
    values, basis = values[::-1][:number].clip(1e-12), basis[:, ::-1][:, :number]
    return torch.from_numpy((basis * (values * values[0]) ** -0.25).astype(np.float32))


def write_tensors(path: Path, tensors: dict[str, Tensor], whole: dict[str, Tensor] | None = None) -> None:
    """Write tensors as int8; whole: others, of integers, as they are."""
    stored = quantize(tensors) | (whole or {})
    safetensors.torch.save_file({name: value.contiguous() for name, value in stored.items()}, path)


if __name__ == "__main__":
    main()
