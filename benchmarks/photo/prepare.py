"""Prepare the training of the packaged captioner of photographs: its words, their predictor, and features.

    python benchmarks/photo/prepare.py flickr8k coco_captions photo

reads `flickr8k/dataset_flickr8k.json.gz` and `flickr8k/images`, and COCO's captions for the vectors of words, and
writes into the folder `photo`:

    words.txt, words.safetensors, predictor.safetensors   of the extractor, which belong into src/legenda/assets/photo
    photo.safetensors   features; those of training images from cross-fitted predictions
    shares.npz          these predictions, for the pretraining on text
    kernel.npz          what the reward `consensus` is computed from
    halves.json         annotations: half of validation as val, the other half as test

No caption of validation or test is read before the last file. Takes about 20 minutes on one core.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.data.annotations import read_annotations
from legenda.data.features.packed import write_store
from legenda.data.features.predicted_words import DENSE, GLOBAL, VISUAL, WORD, caption_shares
from legenda.extractors.photo import Backbones
from legenda.extractors.photo.regions import ImageVectors, RegionMaker
from legenda.models.location import ASSETS
from legenda.models.weights import quantize
from legenda.text import ptb_tokenize

STOP = frozenset(
    """a an the is are and of in on at with to by it its as be has have his her their he she they him them for from that
    this which while who what there into some one 's . , -""".split()  # noqa: SIM905
)
MIN_WORD, MIN_PAIR = 12, 30
"""Training captions that hold a word, or a pair of words, which is predicted."""
FOLDS = 5
BLOCKS = ((1280, 1.0, False), (320, 0.7, False), (1624, 0.7, True), (91, 0.3, False))
"""Channels and weight of the blocks of a joined vector: map, detections, detector's maps, colors; and whether each
channel is divided by its own deviation."""
Captions = Sequence[Sequence[Sequence[str]]]


def main() -> None:
    """Write the files."""
    flickr, coco, out = map(Path, sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    images = read_annotations(flickr / "dataset_flickr8k.json.gz")
    is_train = np.array([image.split == "train" for image in images])
    captions = [[ptb_tokenize(caption) for caption in image.captions] for image in images if image.split == "train"]
    names, shares = count_words(captions)
    vectors = extract([flickr / "images" / image.file for image in images])
    train = [ImageVectors(vectors.parts[is_train], vectors.others[is_train])]
    mean, scale = normalization(train[0].joined)
    x = (vectors.joined - mean) * scale
    folds = np.random.default_rng(0).permutation(len(captions)) % FOLDS
    predictor = train_predictor(x[is_train], shares, seed=0)
    predicted = predict(predictor, x)
    rows = np.flatnonzero(is_train)
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        network = train_predictor(x[rows[outside]], shares[outside], seed=fold + 1)
        predicted[rows[inside]] = predict(network, x[rows[inside]])
    write_words(out, names, shares, predicted[is_train], captions, coco)
    visual_mean = train[0].parts.flatten(0, 1).mean(0)
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
            "visual": directions(train[0].parts.flatten(0, 1) - visual_mean, VISUAL),
            "globals": directions(x[is_train][:, vectors.parts.shape[2] :], GLOBAL),
        },
    )
    ids = [image.id for image in images]
    write_store(out / "photo.safetensors", regions(out, ids, vectors, predicted), extractor="photo")
    np.savez(out / "shares.npz", ids=np.array(ids), shares=predicted.astype(np.float16))
    dense = np.sqrt(predicted) - np.sqrt(shares.mean(0))
    np.savez(
        out / "kernel.npz", ids=np.array(ids)[is_train], folds=folds, x=unit(x[is_train]), dense=unit(dense[is_train])
    )
    write_halves(flickr / "dataset_flickr8k.json.gz", out / "halves.json")


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


def extract(files: Sequence[Path]) -> ImageVectors:
    """Return the vectors of all images."""
    backbones = Backbones.load(ASSETS / "photo")
    batches = []
    for first in range(0, len(files), 64):
        opened = [Image.open(file).convert("RGB") for file in files[first : first + 64]]
        batches.append(backbones(opened))
    return ImageVectors(torch.cat([b.parts for b in batches]), torch.cat([b.others for b in batches]))


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
    epochs, batch_size = 20, 64
    torch.manual_seed(seed)
    y = torch.from_numpy(shares)
    network = nn.Sequential(
        nn.Dropout(0.5), nn.Linear(x.shape[1], 448), nn.GELU(), nn.Dropout(0.5), nn.Linear(448, y.shape[1])
    )
    with torch.no_grad():
        network[4].bias.copy_(torch.logit(y.mean(0).clamp(1e-4, 1 - 1e-4)))
        network[4].weight.mul_(0.1)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
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
    return network(x).sigmoid().numpy().copy()


def write_words(
    out: Path, names: Sequence[str], shares: np.ndarray, predicted: np.ndarray, captions: Captions, coco: Path
) -> None:
    """Write the names, the vectors of the words, and the principal directions of predictions."""
    (out / "words.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    others = [[ptb_tokenize(caption) for caption in image.captions] for image in read_annotations(coco)]
    chosen = np.random.default_rng(0).permutation(len(others))[:40_000]
    texts = [(caption, 3) for image in captions for caption in image]
    texts += [(caption, 1) for index in chosen for caption in others[index]]
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
            for number, offset in enumerate((-2, -1, 1, 2)):
                near = caption[position + offset] if 0 <= position + offset < len(caption) else None
                if word in index and near in context:
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


def unit(x: Tensor | np.ndarray) -> np.ndarray:
    """Return x less its mean, with rows of length 1 in the root mean square."""
    values = np.asarray(x, np.float32)
    values = values - values.mean(0)
    return values / np.sqrt((values**2).sum(1).mean())


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as int8."""
    safetensors.torch.save_file({name: value.contiguous() for name, value in quantize(tensors).items()}, path)


def regions(
    folder: Path, ids: Sequence[str], vectors: ImageVectors, predicted: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield id, features and boxes of each image."""
    maker = RegionMaker.load(folder)
    for index, name in enumerate(ids):
        part = slice(index, index + 1)
        features, boxes = maker.regions(ImageVectors(vectors.parts[part], vectors.others[part]), predicted[part])
        yield name, features[0].astype(np.float16), boxes


def write_halves(annotations: Path, path: Path) -> None:
    """Write the annotations with every second validation image, in the order of the names, as test."""
    with gzip.open(annotations) as file:
        dataset = json.load(file)
    dataset["images"] = [image for image in dataset["images"] if image["split"] != "test"]
    validation = sorted(image["filename"] for image in dataset["images"] if image["split"] == "val")
    for image in dataset["images"]:
        if image["filename"] in validation[1::2]:
            image["split"] = "test"
    path.write_text(json.dumps(dataset), encoding="utf-8")


if __name__ == "__main__":
    main()
