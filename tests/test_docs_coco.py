"""The guide "COCO from zero": all its commands, in order, on small files of COCO's formats; its numbers."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import tomllib
import zipfile
from functools import partial
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from legenda.evaluation.evaluate import IMAGE_COUNTS
from legenda.extractors import bottom_up
from legenda.metrics.spice import JARS_VARIABLE
from legenda.papers import all_tables, get_recipe, get_table, shared_recipe
from test_docs import PAGES, ROOT

GUIDE = PAGES["docs/guides/coco.md"]
FILES_PAGE = PAGES["docs/reference/coco-files.md"]
BLOCKS = re.findall(r"^```bash\n(.*?)^```", GUIDE + FILES_PAGE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    words for line in "".join(BLOCKS).replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))
]

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

TRAIN, VAL, TEST, TEST_2015 = range(9, 29), range(42, 52), range(1, 4), range(1, 7)
"""The images of train2014, val2014, test2014, and test2015, which has those of test2014 too."""
SPLITS = {42: "restval", 43: "restval", **dict.fromkeys(range(44, 48), "val"), **dict.fromkeys(range(48, 52), "test")}
WIDTH, HEIGHT = 64, 48
WORDS = [text.split() for text in ("dog cat man woman bus", "runs sits stands waits", "street beach room field")]

# What the test appends to the guide's commands, after their own options: small models, few steps, two rows of a table.
SMALL = {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8, "geometry_dim": 4}
SHORT = ["training.epochs=1", "training.batch_size=10", "training.eval_beam_size=1"]
SHORT += [option.replace("training", "fine_tuning", 1) for option in SHORT]


def regions(image: int, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features and boxes in pixels of 3 to 6 regions of an image."""
    random = np.random.default_rng(image)
    count = count or 3 + image % 4
    boxes = np.tile(np.array([0, 0, WIDTH, HEIGHT], np.float32), (count, 1)) * random.uniform(0.5, 1, (count, 1))
    return random.random((count, 2048), np.float32), boxes.astype(np.float32)


def tsv(images: list[int], count: int | None = None) -> str:
    def line(image: int) -> str:
        features, boxes = regions(image, count)
        packed = [base64.b64encode(part.tobytes()).decode() for part in (boxes, features)]
        return "\t".join([str(image), str(WIDTH), str(HEIGHT), str(len(boxes)), *packed]) + "\n"

    return "".join(map(line, images))


def sentences(image: int) -> list[str]:
    random = np.random.default_rng(image)
    return ["A {} {} near a {}.".format(*(random.choice(words) for words in WORDS)) for _ in range(5)]


def write_zip(path: Path, files: dict[str, str | bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def write_images(path: Path, part: str, images: range) -> None:
    jpeg = path.with_suffix(".jpg")
    files: dict[str, str | bytes] = {}
    for image in images:
        pixels = np.random.default_rng(image).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        Image.fromarray(pixels).save(jpeg)
        files[f"{part}/COCO_{part}_{image:012d}.jpg"] = jpeg.read_bytes()
    jpeg.unlink()
    write_zip(path, files)


def write_captions(folder: Path) -> None:
    annotations, entries = {}, []
    for part, images in (("train2014", TRAIN), ("val2014", VAL)):
        images_of_part = [
            {"id": image, "file_name": f"COCO_{part}_{image:012d}.jpg", "width": WIDTH, "height": HEIGHT, "license": 3}
            for image in images
        ]
        captions = [
            {"id": 10 * image + k, "image_id": image, "caption": caption}
            for image in images
            for k, caption in enumerate(sentences(image))
        ]
        annotations |= {
            f"annotations/{kind}_{part}.json": json.dumps({"info": {}, "images": images_of_part, "annotations": found})
            for kind, found in (("captions", captions), ("instances", []), ("person_keypoints", []))
        }
        for image in images:
            number, captions_of_image = len(entries), sentences(image)
            sentids = [5 * number + k for k in range(5)]
            entries.append(
                {
                    "filepath": part,
                    "filename": f"COCO_{part}_{image:012d}.jpg",
                    "imgid": number,
                    "cocoid": image,
                    "split": SPLITS.get(image, "train"),
                    "sentids": sentids,
                    "sentences": [
                        {"raw": raw, "tokens": re.findall(r"\w+", raw.lower()), "imgid": number, "sentid": sentid}
                        for raw, sentid in zip(captions_of_image, sentids, strict=True)
                    ],
                }
            )
    write_zip(folder / "annotations_trainval2014.zip", annotations)
    images_of_test = [{"id": image, "file_name": f"COCO_test2014_{image:012d}.jpg"} for image in TEST]
    listed = json.dumps({"info": {}, "images": images_of_test, "licenses": [], "categories": []})
    write_zip(folder / "image_info_test2014.zip", {"annotations/image_info_test2014.json": listed})
    karpathy = {"coco": entries, "flickr8k": [], "flickr30k": []}
    described = {f"dataset_{name}.json": json.dumps({"images": part}) for name, part in karpathy.items()}
    write_zip(folder / "caption_datasets.zip", described)
    (folder / "splits").mkdir()
    for split in ("val", "test"):
        lines = [f"val2014/COCO_val2014_{image:012d}.jpg {image}\n" for image in VAL if SPLITS[image] == split]
        (folder / "splits" / f"karpathy_{split}_images.txt").write_text("".join(lines))


def write_features(folder: Path) -> None:
    (folder / "bottom-up").mkdir()
    parts = {"test": [i for i in VAL if SPLITS[i] == "test"], "val": [i for i in VAL if SPLITS[i] == "val"]}
    trained = [*TRAIN, *(i for i in VAL if SPLITS[i] == "restval")]
    name = "trainval/karpathy_{}_resnet101_faster_rcnn_genome.tsv{}"
    files: dict[str, str | bytes] = {name.format(part, ""): tsv(images) for part, images in parts.items()}
    files |= {name.format("train", f".{k}"): tsv(trained[k::2]) for k in (0, 1)}
    write_zip(folder / "bottom-up" / "trainval.zip", files)
    name = "trainval_36/trainval_resnet101_faster_rcnn_genome_36.tsv"
    write_zip(folder / "bottom-up" / "trainval_36.zip", {name: tsv([*TRAIN, *VAL], 36)})
    name = "test2014/test2014_resnet101_faster_rcnn_genome.tsv.{}"
    write_zip(folder / "bottom-up" / "test2014.zip", {name.format(k): tsv([image]) for k, image in enumerate(TEST)})
    for kind in ("att", "box"):
        (folder / f"cocobu_{kind}").mkdir()
    base = lmdb.open(str(folder / "cocobu_att.lmdb"), map_size=1 << 26)
    detections, grids = (h5py.File(folder / name, "w") for name in ("coco_detections.hdf5", "coco_grid_feats2.hdf5"))
    with base, detections, grids, base.begin(write=True) as writing:
        for image in (*TRAIN, *VAL):
            features, boxes = regions(image)
            np.savez_compressed(folder / "cocobu_att" / f"{image}.npz", feat=features)
            np.save(folder / "cocobu_box" / f"{image}.npy", boxes)
            writing.put(f"{image}".encode(), (folder / "cocobu_att" / f"{image}.npz").read_bytes())
            detections[f"{image}_features"], detections[f"{image}_boxes"] = features, boxes
            detections[f"{image}_cls_prob"] = np.full((len(boxes), 1601), 1 / 1601, np.float32)
            grids[f"{image}_features"] = regions(image, 49)[0]
    for part, images in (("train2014", TRAIN), ("val2014", VAL), ("test2015", TEST_2015)):
        (folder / "X-101-features" / part).mkdir(parents=True)
        for image in images:
            torch.save(torch.rand(1, 2048, 8, 10), folder / "X-101-features" / part / f"{image}.pth")


@pytest.fixture
def disk(tmp_path, monkeypatch) -> Path:
    """A folder with all the files that the guide begins with; a detector of few channels is in their place."""
    monkeypatch.chdir(tmp_path)
    write_captions(tmp_path)
    write_features(tmp_path)
    write_images(tmp_path / "train2014.zip", "train2014", TRAIN)
    write_images(tmp_path / "val2014.zip", "val2014", VAL)
    sizes = {"width": 2, "blocks": (1, 1, 1, 1), "rpn_width": 4, "classes": 7}
    detector = partial(bottom_up.BottomUp, **sizes)
    torch.save({"model": detector().state_dict()}, tmp_path / "bua-caffe-frcn-r101_with_attributes.pth")
    monkeypatch.setattr(bottom_up, "BottomUp", detector)
    monkeypatch.setitem(IMAGE_COUNTS, "val2014", len(VAL))
    monkeypatch.setitem(IMAGE_COUNTS, "test2014", len(TEST))
    return tmp_path


def small(command: list[str], sized) -> list[str]:
    """Return what the test appends to a command of the guide."""
    if command[0] not in ("train", "table"):
        return []
    name = command[1] if command[0] == "train" else next(row.recipe for row in get_table(command[1]).rows if row.recipe)
    sizes = sized(get_recipe(name).model, **SMALL)
    rows = ["--rows", "none", "query"] if command[0] == "table" else []
    return [f"model.{field}={value}" for field, value in sizes.items()] + SHORT + rows


def execute(words: list[str], sized, run_command, monkeypatch) -> str:
    """Run one line of the guide as a shell does, and return what it prints; packages are not installed."""
    match words:
        case ["pip", "install", extras]:
            assert set(re.findall(r"\w+", extras)) <= set(EXTRAS)
        case ["export", setting]:
            monkeypatch.setenv(*setting.split("="))
        case ["unzip", archive, "-d", folder]:
            zipfile.ZipFile(archive).extractall(folder)
        case ["unzip", archive, *members]:
            zipfile.ZipFile(archive).extractall(members=members or None)
        case ["legenda", *arguments]:
            expanded = [path for word in arguments for path in (find(word) if "*" in word else [word])]
            code, out, err = run_command(*expanded, *small(arguments, sized))
            assert code == 0, f"{' '.join(words)}: {err}"
            return out
        case _:
            pytest.fail(f"this test does not know how to run: {' '.join(words)}")
    return ""


def find(pattern: str) -> list[str]:
    return sorted(str(path) for path in Path().glob(pattern))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "disk")
def test_all_commands_of_the_guide_run_in_order(sized, run_command, monkeypatch):
    def link_jars(folder: Path, **_: object) -> list[Path]:
        """Stand for the download of SPICE's jars, which are used where they are."""
        if has_jars:
            folder.symlink_to(os.environ[JARS_VARIABLE])
        return [folder]

    has_jars = bool(os.environ.get(JARS_VARIABLE))
    monkeypatch.setattr("legenda.metrics.spice.download_jars", link_jars)
    printed = [(words, execute(words, sized, run_command, monkeypatch)) for words in COMMANDS]

    images = {"convert": f"{len(TRAIN) + len(VAL)} images", "extract": f"{len(TRAIN) + len(VAL)} images"}
    for words, out in printed:
        is_of_test = any(word.startswith("test2014") for word in words)
        expected = f"{len(TEST)} images" if is_of_test and words[1] == "convert" else images.get(words[1], "")
        assert expected in out, (words, out)
    evaluations = [words[2:] for words, _ in printed if words[1] == "evaluate" and "--split" in words]
    for arguments in evaluations:
        runs = [word for word in arguments if word.startswith("runs/")]
        ending = "_stage1" if "--stage" in arguments else "_ensemble" if len(runs) > 1 else ""
        run = Path(runs[0])
        scores = json.loads((run / f"evaluation_test{ending}.json").read_text())["scores"]
        assert set(scores) >= {"BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE"}
        assert scores["METEOR"] is not None
        assert (scores["SPICE"] is not None) == has_jars
    assert len(evaluations) == 4
    for algorithm in ("NAME", "MDSAN"):
        for part, numbers in (("val2014", VAL), ("test2014", TEST)):
            entries = json.loads(Path(f"results/captions_{part}_{algorithm}_results.json").read_text())
            assert {entry["image_id"] for entry in entries} == set(numbers)
    assert Path("runs/tables/ngsan.table4.md").read_text().count("|  | here | ") == 2

    work: dict[str, list[list[str]]] = {}
    monkeypatch.setattr("legenda.cli.table.run_parallel", lambda jobs, _: work.update(jobs) or {})
    changes = small(["train", "coco.aoanet"], sized)
    assert run_command("table", "aoanet.table1_ensembles", *changes, "--rows", "aoanet_x4")[0] == 0
    ((name, commands),) = work.items()
    assert (name, [command[0] for command in commands]) == ("coco.aoanet/ensemble4", ["evaluate"])

    run = Path("runs/tables/coco.ngsan/seed0")
    saved = sum(path.stat().st_size for path in run.glob("*.safetensors"))
    assert saved == pytest.approx(20 * sum(p.numel() for p in legenda.load(run).parameters()), rel=0.5)


def test_tables_use_the_runs_of_the_guide_and_ensembles_those_of_single_models():
    trained = [words for words in COMMANDS if words[:2] == ["legenda", "train"] and "runs/tables" in " ".join(words)]
    assert len(trained) == 6
    for words in trained:
        name, out = words[2], Path(words[words.index("--out") + 1])
        assert shared_recipe(name, "all") == (name, "all")
        assert out.relative_to("runs/tables").parts[0] == name
    rows = [row for table in all_tables().values() for row in table.rows if row.recipe]
    single = {row.recipe for row in rows if row.members == 1}
    others = {"coco.mdsan152", "coco.xlan_senet154", "coco.xtransformer_senet154"}  # of other features
    assert {row.recipe for row in rows if row.members > 1} <= single | others


@pytest.mark.usefixtures("one_thread")
def test_49_cells_without_boxes_train_mdsan_as_printed(tmp_path, monkeypatch, sized, run_command):
    monkeypatch.chdir(tmp_path)
    write_captions(tmp_path)
    zipfile.ZipFile("caption_datasets.zip").extract("dataset_coco.json")
    Path("grids").mkdir()
    for image in (*TRAIN, *VAL):
        np.savez(f"grids/{image}.npz", feat=regions(image, 49)[0])
    code, out, _ = run_command("convert", "grids", "coco_grid.safetensors")
    assert code == 0
    assert "without boxes" in out
    train = ["train", "coco.mdsan_paper", *small(["train", "coco.mdsan_paper"], sized), "--stages", "first"]
    code, _, err = run_command(*train, "--out", "run")
    assert code == 0, err


PAPERS = {
    "NG-SAN, Table 6": ("ngsan.table6", None),
    "AoANet, Table 1": ("aoanet.table1", "aoanet.table1_xe"),
    "X-LAN, Table 1": ("xlan.table1", "xlan.table1_xe"),
    "MD-SAN, Table I": ("mdsan.table1", None),
}


def test_hours_are_measured_steps_times_steps_and_scores_are_those_of_the_papers():
    speed = (ROOT / "research" / "results" / "speed.md").read_text(encoding="utf-8")
    table = speed.split("## Seconds of a step")[1].split("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", table, flags=re.MULTILINE)
    seconds = [{model: stages[stage] for model, *stages in found} for stage in (0, 1)]
    rows = [line.split(" | ") for line in GUIDE.splitlines() if line.startswith("| `coco.")]
    assert len(rows) == 5
    for name, hours, cider, others, paper in rows:
        recipe = get_recipe(name.strip("| `"))
        steps = [113_287 / 10 * stage.epochs for stage in recipe.stages]
        model = recipe.model.removesuffix("_paper")
        times = [float(known[model]) * count / 3600 for known, count in zip(seconds, steps, strict=True)]
        assert hours == ", ".join(f"{time:.0f}" for time in times), name
        last, first = PAPERS[paper.removesuffix(" |")]
        after = paper_scores(last, model)
        before = f"{paper_scores(first, model)['CIDEr-D']}" if first else "–"
        assert cider == f"{before}, {after['CIDEr-D']}", name
        assert others == ", ".join(str(after[metric]) for metric in ("BLEU-4", "METEOR", "ROUGE-L", "SPICE")), name


def paper_scores(table: str, model: str) -> dict[str, float | None]:
    found = get_table(table)
    (row,) = [row for row in found.rows if row.recipe == f"coco.{model}"]
    return dict(zip(found.metrics, row.scores, strict=True))
