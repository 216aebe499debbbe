"""How fast data is read, how long a training takes to start, and whether memory grows: prints one line per number.

    OMP_NUM_THREADS=1 python research/benchmarks/data.py --folder legenda-data
    OMP_NUM_THREADS=1 python research/benchmarks/data.py --folder legenda-data --annotations COCO --lists SPLITS
    systemd-run --scope -p MemoryMax=4G python research/benchmarks/data.py --folder legenda-data --steps 1000

With --steps only so many training steps of a very small model are measured, on regions as large and as many as COCO's
(18 GB, made first): within less memory than that, they show what reading from the disk in random order costs. With
--annotations only the wait before the first step on these captions is measured, with one region an image.

Everything is synthetic and is made in the folder first, about 4 GB; what is there already is used again. Rates are the
best of three passes in random order over files that the system has cached, by one process, with the load of the machine
printed next to them.
"""

import argparse
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from legenda.data.captions import EncodedCaptions, KarpathyData
from legenda.features import FeatureStore, write_store
from legenda.features.convert import convert
from legenda.features.readers import open_features
from legenda.text.annotations import read_annotations

REGIONS, WIDTH = 36, 2048
IMAGES, CAPTIONS = 123_287, 616_767
"""The number of images of COCO's 2014 train and val together."""
EPOCH = 100_000
BATCH = 50


def report(what: str, value: str) -> None:
    print(f"{what:<58} {value:>46}   load {os.getloadavg()[0]:.1f}", flush=True)


def regions(count: int, shape: tuple[int, int]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((16, *shape)).astype(np.float16)
    corners = rng.uniform(0, 0.5, (shape[0], 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.4], axis=1)
    for number in range(count):
        yield str(number), features[number % 16], boxes


def made(path: Path, make: Callable[[], object]) -> Path:
    if not path.exists():
        make()
    return path


def rate(store: FeatureStore, count: int) -> str:
    """Images a second of the clock, and a second of the processor, which a busy machine disturbs less."""
    clock, used = [], []
    for turn in range(3):
        order = np.random.default_rng(turn).permutation(count)
        began, before = time.perf_counter(), time.process_time()
        for first in range(0, count, BATCH):
            store.read(order[first : first + BATCH])
        clock.append(time.perf_counter() - began)
        used.append(time.process_time() - before)
    return f"{count / min(clock):,.0f} images/s ({count / min(used):,.0f} of the processor's)"


def reading(folder: Path, count: int) -> None:
    native = made(
        folder / "native.safetensors",
        lambda: write_store(folder / "native.safetensors", regions(count, (REGIONS, WIDTH)), extractor="synthetic"),
    )
    shape = f"{count} images of {REGIONS} x {WIDTH} float16"
    report(f"packed safetensors, {shape}", rate(open_features(native), count))
    for name in ("regions.hdf5", "folder"):
        path = folder / name
        made(path, lambda path=path: convert([native], path, dtype="float16"))
        store = open_features(path)
        report(f"{name}, with boxes", rate(store, len(store)))
    import h5py

    bare = folder / "bare.hdf5"

    def make_bare() -> None:
        with h5py.File(bare, "w") as file:
            for image, features, _ in regions(count, (REGIONS, WIDTH)):
                file[f"{image}_features"] = features

    store = open_features(made(bare, make_bare))
    report("HDF5, features alone", rate(store, len(store)))


def write_annotations(path: Path) -> None:
    """Karpathy's layout, as many images and captions as COCO's, of words as frequent as rank allows."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 9))) for _ in range(25_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    images = []
    for number in range(IMAGES):
        count = 5 + (number < CAPTIONS - 5 * IMAGES)
        drawn = rng.choices(words, weights, k=11 * count)
        tokens = [drawn[11 * k : 11 * k + 8 + rng.randrange(4)] for k in range(count)]
        sentences = [
            {"raw": " ".join(own).capitalize() + ".", "tokens": own, "imgid": number, "sentid": k}
            for k, own in enumerate(tokens)
        ]
        split = "train" if number >= 10_000 else "val" if number < 5_000 else "test"
        images.append({"cocoid": number, "filename": f"{number}.jpg", "split": split, "sentences": sentences})
    path.write_text(json.dumps({"images": images, "dataset": "synthetic"}))


def settings(folder: Path, shape: tuple[int, int]) -> KarpathyData:
    features = folder / f"epoch_{shape[0]}x{shape[1]}.safetensors"
    made(features, lambda: write_store(features, regions(IMAGES, shape), extractor="synthetic"))
    annotations = folder / "annotations.json"
    return KarpathyData(annotations=made(annotations, lambda: write_annotations(annotations)), features=features)


def waiting(folder: Path, annotations: Path, lists: Path | None) -> None:
    """CPU seconds before the first step of a training, then before that of a self-critical stage, and peak memory."""
    from legenda.tasks.base import SelfCriticalConfig, describe_features, describe_split
    from legenda.tasks.self_critical import Rewards

    region = np.ones((1, WIDTH), np.float16), np.array([[0, 0, 1, 1]], np.float32)
    features = folder / f"one_region_{annotations.name}.safetensors"
    made(
        features,
        lambda: write_store(
            features, ((image.id, *region) for image in read_annotations(annotations)), extractor="synthetic"
        ),
    )
    began = time.process_time()
    opened = KarpathyData(annotations=annotations, lists=lists, features=features).open(lambda _: None)
    parts = {"captions and vocabulary": time.process_time()}
    EncodedCaptions.of(opened.train, opened.vocabulary, 20)
    parts["captions as ids"] = time.process_time()
    for split in (opened.train, opened.validation):
        describe_split(split)
        describe_features(split)
    parts["digests"] = time.process_time()
    Rewards.from_config(SelfCriticalConfig(), opened.train, opened.vocabulary).close()
    parts["CIDEr-D, for a self-critical stage"] = time.process_time()
    for (name, end), start in zip(parts.items(), [began, *parts.values()], strict=False):
        report(name, f"{end - start:.2f} s used")
    report("peak memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB")


def start(folder: Path) -> None:
    data = settings(folder, (36, 64))
    began, used = time.perf_counter(), time.process_time()
    opened = data.open(lambda _: None)
    captions = EncodedCaptions.of(opened.train, opened.vocabulary, 20)
    wall, used = time.perf_counter() - began, time.process_time() - used
    report(f"start-up, {IMAGES} images and {CAPTIONS} captions", f"{wall:.1f} s ({used:.1f} s used)")
    import torch

    generator = torch.Generator().manual_seed(0)
    order = np.random.default_rng(0).permutation(EPOCH)
    before = 0
    for step, first in enumerate(range(0, EPOCH, BATCH)):
        batch = order[first : first + BATCH]
        opened.train.read(batch)
        captions.rows(batch, 5, generator)
        if step == 20:
            before = memory()
    report(f"memory after an epoch of {EPOCH} images less that after 1,000", f"{(memory() - before) / 2**20:.0f} MB")
    report("memory of the process", f"{memory() / 2**20:,.0f} MB")


def training(folder: Path, steps: int) -> None:
    import torch

    from legenda.models import create_model
    from legenda.tasks.captioning import CrossEntropy
    from legenda.training import TrainingConfig
    from legenda.training.stage import Prefetcher

    opened = settings(folder, (REGIONS, WIDTH)).open(lambda _: None)
    sizes = {"feature_dim": WIDTH, "dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 32}
    model = create_model("transformer", vocab_size=100, **sizes)
    objective = CrossEntropy(model, TrainingConfig(), opened.train)
    optimizer, words = torch.optim.Adam(model.parameters()), torch.randint(100, (BATCH, 1, 10))
    reader = Prefetcher(objective.read, torch.device("cpu"))
    order = np.random.default_rng(0).permutation(len(opened.train))
    batches = [order.take(range(first, first + BATCH), mode="wrap") for first in range(0, steps * BATCH, BATCH)]
    began, used = time.perf_counter(), time.process_time()
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        examples = {**reader.next(batch), "captions": words}
        if following is not None:
            reader.start(following)
        prepared = objective.prepare(batch, examples, 1)
        optimizer.zero_grad()
        prepared.finish(objective(examples, *prepared.inputs)).sums[0].backward()
        optimizer.step()
    wall, used = time.perf_counter() - began, time.process_time() - used
    size = Path(opened.train.source).stat().st_size / 2**30
    report(
        f"{steps} steps of {BATCH} images in random order, {size:.1f} GiB",
        f"{steps * BATCH / wall:,.0f} images/s, {used / wall:.0%} of the time computing",
    )


def memory() -> int:
    """Bytes of the process that are in memory, files that it has mapped included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=4_000, help="of the stores whose rate is measured")
    parser.add_argument("--steps", type=int, default=0, help="of training alone, on regions that memory may not hold")
    parser.add_argument("--annotations", type=Path, help="COCO's captions or another file, for the wait on them alone")
    parser.add_argument("--lists", type=Path, help="the folder with lists of the splits of the annotations")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.annotations:
        waiting(given.folder, given.annotations, given.lists)
        return
    if given.steps:
        training(given.folder, given.steps)
        return
    start(given.folder)
    reading(given.folder, given.images)


if __name__ == "__main__":
    main()
