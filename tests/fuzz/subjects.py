"""What is fuzzed: small valid files of every format, and the commands that read them."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of default_data

TINY = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"
SHORT = "training.epochs=1 training.batch_size=4 training.eval_beam_size=1 training.precision=float32"
FINE = SHORT.replace("training", "fine_tuning")
WORDS = ["a", "red", "dog", "runs", "on", "the", "green", "grass", "with", "two", "cats"]
DIM = 4
ARGUMENTS = "arguments.json"
"""A file with further arguments of the commands, as a list."""


@dataclass(frozen=True)
class Subject:
    """Files of one kind and the commands that read them.

    folder: the valid files, copied for every case; {0} in `commands` stands for the copy. files: patterns of those that
    are damaged. exact: whether a damaged file has to be refused or to give the output of the valid one, because the
    format has checksums; else other valid data may give another output.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    commands: tuple[str, ...]
    exact: bool = False
    damage: Callable[[Path, Random], str] | None = None
    """What is done to a copy of the folder, in place of damage to one of `files`."""
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with the standard output of a damaged case that is not refused."""

    def damaged(self) -> list[Path]:
        """Return the files that are damaged, relative to the folder."""
        found = {path.relative_to(self.folder) for pattern in self.files for path in self.folder.glob(pattern)}
        if not found:
            raise ValueError(f"{self.name}: no file fits {', '.join(self.files)}")
        return sorted(found)


def call(*lines: str) -> None:
    """Run commands in this process; they must succeed."""
    from legenda.cli.main import main

    for line in lines:
        main(line.split())


def regions(count: int = 6, start: int = 0) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return features and boxes of three regions of each of some images."""
    found = []
    for number in range(start, start + count):
        random = np.random.default_rng(number)
        corners = np.sort(random.random((3, 2, 2)), axis=1).reshape(3, 4)
        found.append((str(number), random.random((3, DIM), np.float32), corners.astype(np.float32)))
    return found


def write_packed(path: Path, images: list[tuple[str, np.ndarray, np.ndarray]] | None = None) -> None:
    """Write regions in the packed format."""
    from legenda.features import write_store

    write_store(path, images or regions(), extractor="mine")


def sentence(number: int) -> str:
    """Return one of many captions."""
    return f"{WORDS[number % 3]} {WORDS[1 + number % 4]} dog number {number} runs on grass"


def feature_stores(root: Path) -> list[Subject]:
    """Return feature stores of our own formats, and those as text."""

    def subject(name: str, store: str, files: str) -> Subject:
        folder = root / name
        commands = f"inspect {{0}}/{store} --verify", f"convert {{0}}/{store} {{0}}/out.safetensors"
        return Subject(f"features.{name}", folder, (files,), commands, exact=False)

    for name in ("packed", "tsv", "shards"):
        (root / name).mkdir(parents=True)
    write_packed(root / "packed" / "f.safetensors")
    lines = []
    for image, features, boxes in regions():
        texts = (base64.b64encode(np.ascontiguousarray(a, "<f4")).decode() for a in (boxes * 100, features))
        lines.append("\t".join([image, "100", "100", "3", *texts]))
    shards = {"manifest.json": json.dumps({"kind": "features", "base": ".", "images": 6, "shard_size": 3})}
    write_files(root / "shards" / "f", shards | {f"features-00000{number}.jsonl": "{}" for number in range(2)})
    for number in range(2):
        write_packed(root / "shards" / "f" / f"features-00000{number}.safetensors", regions(3, 3 * number))
    (root / "tsv" / "f.tsv").write_text("\n".join(lines) + "\n")
    return [
        subject("packed", "f.safetensors", "f.safetensors"),
        subject("tsv", "f.tsv", "f.tsv"),
        subject("shards", "f", "f/*"),
    ]


def captions(root: Path) -> list[Subject]:
    """Return annotations of captions in every layout, trained on for one epoch."""
    entries = [{"image_id": n, "id": 10 * n + k, "caption": sentence(n + k)} for n in range(6) for k in range(2)]
    images = [{"id": n, "file_name": f"{n}.jpg", "width": 100, "height": 100} for n in range(6)]
    karpathy = [
        {
            "filename": f"{n}.jpg", "cocoid": n, "imgid": n, "split": "train" if n < 4 else "val",
            "sentences": [{"raw": sentence(n), "tokens": sentence(n).split(), "sentid": n, "imgid": n}],
        }
        for n in range(6)
    ]  # fmt: skip
    rows = [(f"{n}.jpg", sentence(n), "train" if n < 4 else "val") for n in range(6)]

    def coco(first: int, last: int) -> str:
        return json.dumps({"images": images[first:last], "annotations": entries[2 * first : 2 * last]})

    vatex = [{"videoID": str(n), "enCap": [sentence(n)]} for n in range(6)]
    videos = [{"video_id": str(n), "split": "train" if n < 4 else "validate"} for n in range(6)]
    sentences = [{"video_id": str(n), "caption": sentence(n)} for n in range(6)]
    layouts: dict[str, dict[str, str]] = {
        "karpathy": {"dataset.json": json.dumps({"images": karpathy, "dataset": "x"})},
        "coco": {"a/captions_train2014.json": coco(0, 4), "a/captions_val2014.json": coco(4, 6)},
        "gzip": {"dataset.json.gz": json.dumps({"images": karpathy})},
        "csv": {"c.csv": "file,caption,split\n" + "\n".join(map(",".join, rows))},
        "tsv": {"c.tsv": "file\tcaption\tsplit\n" + "\n".join(map("\t".join, rows))},
        "jsonl": {"c.jsonl": "\n".join(json.dumps({"file": f, "caption": c, "split": s}) for f, c, s in rows)},
        "vatex": {"a/vatex_train.json": json.dumps(vatex[:4]), "a/vatex_validation.json": json.dumps(vatex[4:])},
        "msrvtt": {"a/train_val_videodatainfo.json": json.dumps({"videos": videos, "sentences": sentences})},
        "lists": {"dataset.json": json.dumps({"images": karpathy}), "l/train.txt": "0\n1\n2\n3\n", "l/val.txt": "4\n5"},
    }
    found = []
    for name, files in layouts.items():
        folder = root / name
        folder.mkdir(parents=True)
        write_packed(folder / "f.safetensors")
        write_files(folder, files)
        annotations = next(iter(files)).split("/")[0]
        lists = " data.lists={0}/l" if name == "lists" else ""
        train = (
            f"train flickr8k.ngsan --out {{0}}/run data.annotations={{0}}/{annotations} "
            f"data.features={{0}}/f.safetensors data.min_count=1{lists} {TINY} model.geometry_dim=4 "
            f"--stages first {SHORT}"
        )
        damaged = ("l/*",) if name == "lists" else tuple(files)
        found.append(Subject(f"captions.{name}", folder, damaged, (train,)))
    return found


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write texts by path, gzipped where a name ends in .gz."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def questions(root: Path) -> list[Subject]:
    """Return the questions of VQA and of DAQUAR, referring expressions, phrases, and parallel text."""
    import default_data as data

    vqa, refs, entities = (root / name for name in ("vqa", "refs", "entities"))
    for name in ("vqa", "daquar", "refs", "entities", "parallel"):
        (root / name).mkdir(parents=True)
    data.write_questions(vqa)
    answers = json.dumps(["dog", "beach", "two"])
    write_files(vqa, {"answers.json": answers, "glove.txt": "what 1 2\nis 0.5 -1\n"})
    data.write_daquar(root / "daquar")
    data.write_expressions(refs, "unc")
    data.write_entities(entities)
    names = [f"{n:012d}" for n in data.IMAGES]
    rows = [f"{name}.jpg,a dog,{split}" for name, split in zip(names, data.SPLITS, strict=True)]
    write_files(entities, {"c.csv": "\n".join(["file,caption,split", *rows])})
    data.write_translations(root / "parallel")
    write_files(root / "parallel", {"merges.txt": "#version: 0.2\nd o\ndo g</w>\n"})
    for folder, ids in ((vqa, list(map(str, data.IMAGES))), (refs, list(map(str, data.IMAGES))), (entities, names)):
        data.write_features(folder / "f.safetensors", ids)
    features = "data.features={0}/f.safetensors"
    rest = {
        "vqa": f"vqa2.mcan_small data.questions={{0}} {features} data.answers={{0}}/answers.json "
        "data.vectors={0}/glove.txt data.train=train model.word_dim=2",
        "daquar": "daquar.mcan data.questions={0}/daquar data.features={0}/daquar.safetensors",
        "refs": f"refcoco.mcan data.refs={{0}}/refs(unc).p data.instances={{0}}/instances.json {features} "
        "data.vectors=None",
        "entities": "entities.mcan data.phrases={0}/flickr30k_entities.json.gz data.annotations={0}/c.csv "
        f"{features} data.vectors=None",
        "parallel": "multi30k.transformer data.folder={0}/multi30k data.merges={0}/merges.txt",
    }
    damaged = {"vqa": ("*.json", "*.txt"), "daquar": ("daquar/*",), "refs": ("instances.json",)}
    damaged |= {"entities": ("*.gz",), "parallel": ("multi30k/*", "*.txt")}
    return [
        Subject(f"data.{name}", root / name, damaged[name], (f"train {options} --out {{0}}/run {TINY} {SHORT}",))
        for name, options in rest.items()
    ]
