"""Runs, training states, released weights, scored captions, recipes and images: valid files and their commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from subjects import DIM, FINE, SHORT, TINY, Subject, call, sentence, write_files, write_packed

SCENES = "data.train=12 data.validation=3 data.test=4"
FORMATS = ("png", "jpg", "webp", "gif", "bmp", "tif", "avif", "heic")


def trained(root: Path) -> list[Subject]:
    """Return the files of finished and of stopped runs, which are evaluated, compared, resumed and reported."""
    from legenda.training.checkpoint import read_progress

    folder, scenes = root / "files", root / "scenes"
    rows = [f"{n}.jpg,{sentence(n)},{'train' if n < 4 else 'val'}" for n in range(6)]
    write_files(folder, {"c.csv": "\n".join(["file,caption,split", *rows])})
    write_packed(folder / "f.safetensors")
    train = (
        "train flickr8k.ngsan --out {0}/run data.annotations={0}/c.csv data.features={0}/f.safetensors "
        f"data.min_count=1 {TINY} model.geometry_dim=4 {SHORT} {FINE}"
    )
    call(train.format(folder), f"evaluate {folder}/run")
    assert read_progress(folder / "run").finished
    call(f"train scenes.ngsan --out {scenes}/run {TINY} model.geometry_dim=4 {SHORT} {SCENES}")
    draw_images(scenes, ("png",))
    read = ("inspect {0}/run --verify", "evaluate {0}/run --out {0}/e.json")
    caption = "caption {0}/a.png --model {0}/run"
    subjects = [
        Subject("run.config", folder, ("run/config.json",), (*read, "report {0}/run --out {0}/r.html")),
        Subject("run.config_scenes", scenes, ("run/config.json",), (caption,)),
        Subject("run.vocabulary", scenes, ("run/vocabulary.txt",), (caption,)),
        Subject("run.weights", scenes, ("run/model.safetensors",), (caption,), exact=True),
        Subject("run.state", folder, ("run/training_state.safetensors",), (train,)),
        Subject("run.history", folder, ("run/metrics.*",), (*read[:1], "report {0}/run --out {0}/r.html")),
        Subject("run.predictions", folder, ("run/evaluation_val.json",), ("compare {0}/run {0}/run", read[0])),
    ]
    longer = train.replace("fine_tuning.epochs=1", "fine_tuning.epochs=2")
    subjects.append(Subject("run.data", folder, ("c.csv",), (train,), exact=True))
    subjects.append(Subject("run.resumed", folder, ("run/*.safetensors", "run/metrics.jsonl"), (longer,)))
    alone = root / "alone"
    config = (folder / "run" / "config.json").read_text().replace("c.csv", "none.csv")  # so that nothing trains
    write_files(alone, {"run/config.json": config})
    train = "train --config {0}/run/config.json --out {0}/again"
    return [*subjects, Subject("run.recipe", alone, ("run/config.json",), (train,))]


def draw_images(folder: Path, formats: tuple[str, ...]) -> None:
    """Save small scenes in several formats."""
    import legenda.images.files  # noqa: F401 - registers HEIC
    from legenda.data.scenes import draw_scene, make_scene

    folder.mkdir(parents=True, exist_ok=True)
    for kind in formats:
        image = draw_scene(make_scene("fresh", 1))
        image.save(folder / f"a.{kind}", **({"progressive": True} if kind == "jpg" else {}))


def images(root: Path) -> list[Subject]:
    """Return an image of each format, which is captioned and whose features are extracted."""
    call(f"train scenes.ngsan --out {root}/run {TINY} model.geometry_dim=4 {SHORT} {SCENES}")
    found = []
    for kind in FORMATS:
        draw_images(root / kind, (kind,))
        commands = (
            f"caption {{0}}/a.{kind} --model {root}/run --format json",
            f"extract {{0}}/a.{kind} --extractor scenes --out {{0}}/out.safetensors",
        )
        found.append(Subject(f"image.{kind}", root / kind, (f"a.{kind}",), commands))
    return found


def scored(root: Path) -> list[Subject]:
    """Return captions and references of every layout that `legenda score` reads."""
    predictions = {
        "results": [{"image_id": n, "caption": sentence(n)} for n in range(5)],
        "mapping": {str(n): sentence(n) for n in range(5)},
        "several": {str(n): [sentence(n), sentence(n + 1)] for n in range(5)},
    }
    references = {
        "coco": {
            "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(5)],
            "annotations": [{"image_id": n, "id": n, "caption": sentence(n + 2)} for n in range(5)],
        },
        "mapping": {str(n): [sentence(n + 2), sentence(n)] for n in range(5)},
    }
    found = []
    for kind, content in predictions.items():
        name = "coco" if kind == "results" else "mapping"
        files = {"p.json": json.dumps(content), "r.json": json.dumps(references[name])}
        write_files(root / kind, files)
        commands = ("score {0}/p.json {0}/r.json --metrics CIDEr-D BLEU-4 --resamples 20 --out {0}/s.json",)
        found.append(Subject(f"score.{kind}", root / kind, ("*.json",), commands))
    return found


def recipes(root: Path) -> list[Subject]:
    """Return recipes as TOML; their data do not exist, so that none trains."""
    from legenda.papers import get_recipe
    from legenda.recipes import recipe_to_toml

    found = []
    for name in ("flickr8k.ngsan", "vqa2.mcan_small", "multi30k.nsa"):
        content = recipe_to_toml(get_recipe(name))
        write_files(root / name, {"recipe.toml": content})
        found.append(
            Subject(f"recipe.{name}", root / name, ("*.toml",), ("train --config {0}/recipe.toml --out {0}/run",))
        )
    return found


def released(root: Path) -> list[Subject]:
    """Return released weights in safetensors, and vocabularies as JSON and as text, which are imported."""
    import safetensors.torch
    import torch

    data = Path(__file__).resolve().parents[1] / "importers" / "data" / "abl_base.npz"
    with np.load(data) as arrays:
        tensors = {n.removeprefix("sd/"): torch.from_numpy(arrays[n]) for n in arrays.files if n.startswith("sd/")}
    words = {str(n + 1): f"w{n}" for n in range(49)} | {"50": "UNK"}
    found = []
    for damaged, vocabulary in (
        ("model.safetensors", "vocab.txt"),
        ("*.json", "cocotalk.json"),
        ("*.txt", "vocab.txt"),
    ):
        folder = root / damaged.replace("*", "vocabulary").replace(".", "_")
        write_files(
            folder, {"cocotalk.json": json.dumps({"ix_to_word": words}), "vocab.txt": "\n".join(words.values())}
        )
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        command = f"import aoanet {{0}}/model.safetensors --vocabulary {{0}}/{vocabulary} --out {{0}}/run"
        found.append(Subject(f"import.{folder.name}", folder, (damaged,), (command,)))
    return found


def remaining(root: Path) -> list[Subject]:
    """Return subwords, answers and sizes of images."""
    found = []
    folder = root / "words"
    call(
        f"train number_words.transformer --out {folder}/run {TINY} {SHORT} data.train=20 data.validation=3 data.test=3"
    )
    found.append(Subject("more.subwords", folder, ("run/vocabulary.txt",), ("evaluate {0}/run",)))
    folder = root / "answers"
    call(f"train vqa.scenes --out {folder}/run {TINY} {SHORT} {SCENES}")
    found.append(Subject("more.answers", folder, ("run/answers.txt", "run/vocabulary.txt"), ("evaluate {0}/run",)))
    folder = root / "sizes"
    (folder / "b_att").mkdir(parents=True)
    (folder / "b_box").mkdir()
    entries = []
    for number in range(4):
        np.save(folder / "b_att" / f"{number}.npy", np.ones((2, DIM), np.float32) * number)
        np.save(folder / "b_box" / f"{number}.npy", np.array([[1, 2, 30, 40], [5, 5, 60, 70]], np.float32))
        entries.append({"id": number, "file_name": f"{number}.jpg", "width": 100, "height": 80})
    write_files(folder, {"captions_val2014.json": json.dumps({"images": entries, "annotations": []})})
    command = "convert {0}/b_att {0}/out.safetensors --sizes {0}/captions_val2014.json"
    found.append(Subject("more.sizes", folder, ("*.json",), (command,)))
    return found
