"""Learn to predict the words of captions from what the networks see, for the regions of the extractor `photo`.

    python research/photo/words.py DATA OUT

reads captions.npz, noise.npz and the vectors of vectors.py, and writes into OUT:

    words.txt, words.safetensors, predictor.safetensors   of the extractor, which belong into src/legenda/assets/photo
    shares.npz   predicted words of every photograph, those of training photographs cross-fitted

The predictor first learns from COCO's images of which only boxes are known, damaged as the detector damages them, with
all other channels at their means; then from the training photographs and their mirror images, all channels. Only
captions of training images are learned; those of validation measure. Takes about 5 minutes on one core.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from coco import MEASURED, TRAIN, VALIDATION, listed_photographs
from sources import BoxedImages, caption_shares
from torch import Tensor, nn
from torch.nn import functional as F
from vectors import VIEWS

from legenda.models.weights import quantize
from legenda.photo.regions import CLASSES, DENSE, GLOBAL, MIN_SCORE, VISUAL, WORD
from legenda.photo.vision import CHANNELS, OTHERS, Things, summarize
from legenda.text import Vocabulary, ptb_tokenize

STOP = frozenset(
    """a an the is are and of in on at with to by it its as be has have his her their he she they him them for from that
    this which while who what there into some one 's . , -""".split()  # noqa: SIM905
)
MIN_WORD, MIN_PAIR = 14, 40
"""Training captions that hold a word, or a pair of words, which is predicted."""
FOLDS = 5
HIDDEN, RATE = 512, 1e-3
PRETRAINING = 3
"""Epochs of images of which only boxes are known."""
BLOCKS = tuple(zip((CHANNELS, *OTHERS), (1.0, 0.7, 0.7, 0.3, 0.7), (False, False, True, False, False), strict=True))
"""Channels and weight of the blocks of a joined vector: map, detections, detector's maps, colors, ImageNet's classes;
and whether each channel is divided by its own deviation."""
DETECTIONS = slice(CHANNELS, CHANNELS + OTHERS[0])
Captions = Sequence[Sequence[Sequence[str]]]


def load_vectors(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays of all views that exist, the plain one first; rows: those of captions.npz."""
    parts = [dict(np.load(folder / f"{view}.npz")) for view in VIEWS if (folder / f"{view}.npz").exists()]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def main() -> None:
    """Write the files."""
    torch.set_num_threads(1)
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    vectors, stored = load_vectors(out), np.load(out / "captions.npz")
    row, plain = vectors["rows"], int((stored["photo_split"] < 3).sum())
    split = stored["photo_split"][row]
    tokens = [[ptb_tokenize(each["raw"]) for each in entry["sentences"]] for entry in listed_photographs(data, out)]
    train = np.flatnonzero(split == TRAIN)
    captions = [tokens[row[sample]] for sample in train if sample < plain]
    names, shares = count_words(captions)
    index = {name: number for number, name in enumerate(names)}
    truth = np.stack([caption_shares(tokens[photograph], index) for photograph in row])
    joined = torch.from_numpy(np.concatenate([vectors["whole"], vectors["others"]], axis=1).astype(np.float32))
    mean, scale = normalization(joined[train])
    x = (joined - mean) * scale
    del joined
    start = pretrain(out, names, shares.mean(0), vectors, mean, scale)
    predictor = train_predictor(start, x[train], truth[train], seed=0)
    predicted = predict(predictor, x)
    prior = shares.mean(0)
    for label, part in (("validation", VALIDATION), ("measured", MEASURED)):
        rows = np.flatnonzero(split == part)
        variance = 1 - ((truth[rows] - predicted[rows]) ** 2).sum() / ((truth[rows] - prior) ** 2).sum()
        print(f"{label}: explained variance of {len(names)} shares {variance:.4f}", flush=True)
    fold = np.random.default_rng(0).permutation(len(stored["photo_split"]))[row] % FOLDS
    for number in range(FOLDS):
        inside, outside = train[fold[train] == number], train[fold[train] != number]
        network = train_predictor(start, x[outside], truth[outside], seed=number + 1)
        predicted[inside] = predict(network, x[inside])
    write_words(out, names, shares, predicted[train], captions)
    parts = torch.from_numpy(vectors["parts"][train][::2]).flatten(0, 1).float()
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
            "globals": directions(x[train][:, CHANNELS:], GLOBAL),
        },
    )
    np.savez(out / "shares.npz", shares=predicted.astype(np.float16))


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


def pretrain(
    folder: Path, names: Sequence[str], prior: np.ndarray, vectors: dict[str, np.ndarray], mean: Tensor, scale: Tensor
) -> nn.Sequential:
    """Return a predictor that has learned from detections alone, as images of which only boxes are known have them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Dropout(0.5),
        nn.Linear(len(mean), HIDDEN),
        nn.GELU("tanh"),
        nn.Dropout(0.5),
        nn.Linear(HIDDEN, len(names)),
    )
    with torch.no_grad():
        network[4].bias.copy_(torch.logit(torch.from_numpy(prior).clamp(1e-4, 1 - 1e-4)))
        network[4].weight.mul_(0.1)
    if not PRETRAINING:
        return network
    boxed = BoxedImages(folder)
    counts = boxed_counts(boxed.captions, names, Vocabulary.load(folder / "vocabulary.txt"))
    best = vectors["others"][:, :CLASSES].astype(np.float32)
    seen = np.zeros(best.shape, bool)
    for number in range(vectors["scores"].shape[1]):
        present = vectors["scores"][:, number] >= MIN_SCORE
        seen[present, vectors["classes"][present, number]] = True
    unseen = (best * ~seen).sum(0) / (~seen).sum(0)  # what the best anchor has of a class that is not detected
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3, fused=True)
    generator = np.random.default_rng(0)
    steps, step = PRETRAINING * (len(boxed) // 64), 0
    for epoch in range(PRETRAINING):
        order = generator.permutation(len(boxed))
        for part in np.array_split(order, len(boxed) // 64):
            detections = np.stack([_detections(*things, unseen) for things in boxed.things(part, generator)])
            x = (torch.from_numpy(detections) - mean[DETECTIONS]) * scale[DETECTIONS]
            hidden = F.linear(network[0](x), network[1].weight[:, DETECTIONS], network[1].bias)
            y = torch.from_numpy(counts[part].astype(np.float32)) / boxed.captions.shape[1]
            loss = F.binary_cross_entropy_with_logits(network[2:](hidden), y, reduction="sum") / len(part)
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * min(1, (step + 1) / 100) * 0.5 * (1 + np.cos(np.pi * step / steps))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 500 == 0:
                print(f"boxed images, epoch {epoch}, step {step} of {steps}: loss {loss.item():.2f}", flush=True)
    return network


def _detections(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Return the channels of detections of an image of which only boxes are known."""
    best = unseen**2
    np.maximum.at(best, classes, scores)
    return summarize(Things(boxes, scores, classes), best)


def boxed_counts(captions: np.ndarray, names: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """Return how many captions of each image hold each word or pair of words, `(images, names)`.

    captions: ids `(images, K, T)`, padded with -1.
    """
    size = len(vocabulary)
    slots = np.full(size * (size + 1), -1, np.int32)  # words first, then pairs
    for number, name in enumerate(names):
        ids = vocabulary.encode(name.split())
        slots[ids[0] if len(ids) == 1 else size + ids[0] * size + ids[1]] = number
    slots[list(vocabulary.encode(["\N{REPLACEMENT CHARACTER}"]))] = -1
    counts = np.zeros((len(captions), len(names)), np.uint8)
    for caption in captions.transpose(1, 0, 2).astype(np.int64):
        words = slots[caption.clip(min=0)] * (caption > 0) - (caption <= 0)
        pairs = slots[size + caption[:, :-1].clip(min=0) * size + caption[:, 1:].clip(min=0)]
        pairs[(caption[:, :-1] <= 0) | (caption[:, 1:] <= 0)] = -1
        named = np.concatenate([words, pairs], axis=1)
        present = np.zeros(counts.shape, bool)
        image, position = np.nonzero(named >= 0)
        present[image, named[image, position]] = True
        counts += present
    return counts


def train_predictor(
    start: nn.Sequential, x: Tensor, shares: np.ndarray, *, seed: int, epochs: int = 10, batch_size: int = 64
) -> nn.Sequential:
    """Return a copy of a predictor, trained with much dropout on the cross-entropy of each share."""
    torch.manual_seed(seed)
    y = torch.from_numpy(shares)
    network = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3, fused=True)
    steps, step = epochs * (len(x) // batch_size), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch_size)[: len(x) // batch_size]:
            rate = RATE * min(1, (step + 1) / 100) * 0.5 * (1 + np.cos(np.pi * step / steps))
            for group in optimizer.param_groups:
                group["lr"] = rate
            step += 1
            loss = F.binary_cross_entropy_with_logits(network(x[rows]), y[rows], reduction="sum") / batch_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


@torch.inference_mode()
def predict(network: nn.Sequential, x: Tensor) -> np.ndarray:
    """Return predicted shares."""
    return torch.cat([network(part).sigmoid() for part in x.split(1000)]).numpy().copy()


def write_words(out: Path, names: Sequence[str], shares: np.ndarray, predicted: np.ndarray, captions: Captions) -> None:
    """Write the names, the vectors of the words, and the principal directions of predictions."""
    (out / "words.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    vocabulary = Vocabulary.load(out / "vocabulary.txt").tokens
    boxed = np.load(out / "captions.npz")["coco"]
    chosen = boxed[np.random.default_rng(0).permutation(len(boxed))[:30_000]].reshape(-1, boxed.shape[-1])
    texts = [(caption, 2) for image in captions for caption in image]
    texts += [([vocabulary[token] for token in caption if token > 0], 1) for caption in chosen.tolist()]
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
