"""What damaged files do not show: odd values of options, odd and equal names of files, and a job that was stopped."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from random import Random

from formats import mutate
from model_subjects import SCENES, draw_images
from mutations import VALUES
from subjects import ARGUMENTS, SHORT, TINY, Subject, call, sentence, write_files

_NAMES = (
    "a.png", "b.png", "x/a.png", "y/a.png", "7.png", "IMG_0007.png", "DSC_0007.png", "COCO_val2014_000000000007.png",
    "new\nline.png", "tab\t.png", "-x.png", "--beam-size", "a b.png", "é.png", "\udcff.png", "\x1b[31mred.png", "@list",
    "a,b.png", '"a".png', "#.png", "%41.png", "http:.png", "\u202egnp.exe", "x" * 240 + ".png", "a", ".png", "{0}.png",
)  # fmt: skip
_FORMATS = ("text", "json", "csv", "coco")
_OPTIONS = {
    "beams": (
        "caption {0}/a.png --model {0}/run",
        "--beam-size 2 --num-captions 1 --batch-size 2 --length-penalty 0.7 --no-repeat-ngram-size 0 "
        "--num-beam-groups 1 --diversity-penalty 0.5 --format json --temperature 1 --forbidden-last-words a",
    ),
    "samples": (
        "caption {0}/a.png --model {0}/run --do-sample",
        "--temperature 1.5 --top-k 3 --top-p 0.9 --seed 3 --num-captions 2 --trigram-penalty 1 --precision float32",
    ),
    "extraction": (
        "extract {0}/a.png --extractor scenes --out {0}/out.safetensors",
        "--batch-size 2 --shard-size 10 --device cpu --workers 1",
    ),
    "scores": ("score {0}/p.json {0}/r.json", "--resamples 20 --seed 1 --metrics CIDEr-D --references-per-image 1"),
    "training": (
        "train scenes.ngsan --out {0}/trained",
        f"{TINY} model.geometry_dim=4 model.dropout=0.1 {SHORT} {SCENES} training.seed=1 training.label_smoothing=0.1 "
        "training.schedule.learning_rate=0.001 training.max_grad_norm=1 training.checkpoint_every=2 data.seed=1",
    ),
}
_SIZES = ("model.num_layers", "model.dim", "model.ff_dim")
_WORK = ("training.epochs", "data.train", "data.validation", "--workers", "--resamples", *_SIZES)
"""Options whose value is how much is computed, however long that takes and however much memory."""


def damage_options(folder: Path, random: Random) -> str:
    """Replace the value of one option, or of one field of a recipe."""
    path = folder / ARGUMENTS
    arguments = json.loads(path.read_text())
    places = [n for n, text in enumerate(arguments) if not text.startswith("--")]
    named = {n: "".join(arguments[max(n - 1, 0) : n + 1]) for n in places}
    at = random.choice([n for n in places if not any(word in named[n] for word in _WORK)])
    key, equals, _ = arguments[at].rpartition("=")
    value = random.choice([value for value in VALUES if len(str(value)) <= 1000 and str(value).isprintable()])
    arguments[at] = key + equals + (value if isinstance(value, str) else json.dumps(value))
    path.write_text(json.dumps(arguments))
    return f"{arguments[at - 1 : at + 1]!r:.100}"


def damage_names(folder: Path, random: Random) -> str:
    """Caption three copies of an image with names of which some are odd, or equal but for their folders."""
    image, names = (folder / "a.png").read_bytes(), random.sample(_NAMES, 3)
    (folder / "a.png").unlink()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(image)
    kind = random.choice(_FORMATS)
    (folder / ARGUMENTS).write_text(json.dumps([*(f"{folder}/{name}" for name in names), "--format", kind]))
    return f"{names} as {kind}"


def damage_parts(folder: Path, random: Random) -> str:
    """Damage what a stopped extraction of the folder's images has left."""
    from legenda.extractors import load_extractor
    from legenda.features.extraction import FeatureTask
    from legenda.images.shards import digest_files, open_job, process_shard

    parts = folder / ".out.safetensors.parts"
    images = [folder / name for name in ("0.png", "1.png")]
    extractor = load_extractor("scenes")
    settings = {"extractor": extractor.name, "files": digest_files(images)}
    job = open_job(parts, settings, kind="features", shard_size=1, names=[*map(str, images)])
    process_shard(job, FeatureTask(extractor, extractor.identity), 0)
    return mutate(random.choice(sorted(path for path in parts.rglob("*") if path.is_file())), random)


def check_names(out: str) -> str | None:
    """Return what is wrong with the captions of three images."""
    if out.startswith("["):
        entries = json.loads(out)
        ids = [str(entry.get("image_id", entry.get("image"))) for entry in entries]
        return None if len(set(ids)) == 3 else f"ids {ids}"
    rows = len(list(csv.reader(io.StringIO(out)))) - 1 if out.startswith("image,") else len(out.splitlines())
    return None if rows == 3 else f"{rows} rows"


def blind_spots(root: Path) -> list[Subject]:
    """Return options, names, and the parts of a stopped extraction."""
    draw_images(root / "files", ("png",))
    call(f"train scenes.ngsan --out {root}/files/run {TINY} model.geometry_dim=4 {SHORT} {SCENES}")
    texts = {str(n): sentence(n) for n in range(5)}
    write_files(
        root / "files",
        {
            "p.json": json.dumps(texts),
            "r.json": json.dumps({image: [text, text + " x"] for image, text in texts.items()}),
        },
    )
    found = []
    for name, (command, options) in _OPTIONS.items():
        folder = root / name
        shutil.copytree(root / "files", folder)
        (folder / ARGUMENTS).write_text(json.dumps(options.split()))
        found.append(Subject(f"blind.{name}", folder, (), (command,), damage=damage_options))
    shutil.copytree(root / "files", root / "names")
    names = [*(f"{root}/names/{name}" for name in ("a.png", "b.png", "c.png")), "--format", "json"]
    for name in ("b.png", "c.png"):
        shutil.copy2(root / "names" / "a.png", root / "names" / name)
    (root / "names" / ARGUMENTS).write_text(json.dumps(names))
    found.append(
        Subject("blind.names", root / "names", (), ("caption --model {0}/run",), damage=damage_names, check=check_names)
    )
    draw_images(root / "parts", ("png",))
    for number in range(2):
        shutil.copy2(root / "parts" / "a.png", root / "parts" / f"{number}.png")
    command = "extract {0}/0.png {0}/1.png --extractor scenes --shard-size 1 --out {0}/out.safetensors"
    found.append(Subject("blind.parts", root / "parts", (), (command,), damage=damage_parts))
    return found
