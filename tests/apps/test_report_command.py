"""`legenda report` on runs without training: scenes, photographs that are there or not, and models that differ."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import legenda
from legenda.apps.cli import main
from legenda.apps.report import choose
from legenda.apps.report_pictures import Subject
from legenda.apps.runs import describe_data
from legenda.data.caption_sets import DataSettings, KarpathyData, ScenesData
from legenda.vision import extract_store, load_extractor

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).resolve().parents[2]
SCENES = ScenesData(train=40, validation=9, test=3)


@dataclass(frozen=True)
class Photographs:
    """A tiny data set: its folder of pictures and its settings."""

    folder: Path
    data: KarpathyData


@pytest.fixture(scope="module")
def make_run(tmp_path_factory, sized) -> Callable[..., Path]:
    """A run folder with a model of random weights, small, but with a long way to its end."""

    def make(name: str, data: DataSettings, folder: str = "", **sections: object) -> Path:
        opened = data.open(lambda _: None)
        torch.manual_seed(len(name))
        small = sized(name, dim=8, num_heads=2, num_layers=1, ff_dim=8, geometry_dim=4, dropout=0.0)
        model = legenda.create_model(
            name, vocab_size=len(opened.vocabulary), feature_dim=opened.feature_dim, **small
        ).eval()
        model.vocabulary = opened.vocabulary
        path = tmp_path_factory.mktemp("runs") / (folder or name)
        told = {"recipe": f"scenes.{name}", "data": describe_data(data), "extractor": opened.train.extractor}
        return model.save(path, **(told | sections))

    return make


@pytest.fixture(scope="module")
def scene_runs(make_run) -> list[Path]:
    return [make_run(name, SCENES) for name in ("ngsan", "xlan")]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Photographs:
    """Six noisy pictures of their own width beside their annotations, read from a grid of 4 x 4 cells."""
    root = tmp_path_factory.mktemp("photographs")
    folder = root / "images"
    folder.mkdir()
    random = np.random.default_rng(0)
    entries = []
    for number in range(6):
        pixels = random.integers(0, 256, (90, 120, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.jpg")
        sentences = [{"raw": f"a dog number {word} runs"} for word in ("one", "two", "one")]
        split = "train" if number < 3 else "val"
        entries.append({"filename": f"p{number}.jpg", "split": split, "sentences": sentences})
    (root / "dataset.json").write_text(json.dumps({"images": entries}))
    extractor = load_extractor(ROOT / "docs" / "my_extractor.py")
    extract_store(sorted(folder.iterdir()), extractor, root / "features.safetensors")
    data = KarpathyData(annotations=root / "dataset.json", features=root / "features.safetensors", min_count=1)
    return Photographs(folder, data)


def _report(*arguments: object) -> dict:
    """The data in the page that the command writes; its last argument is the page."""
    main(["report", *map(str, arguments[:-1]), "--out", str(arguments[-1])])
    page = Path(str(arguments[-1])).read_text(encoding="utf-8")
    found = re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_scenes_are_compared_with_scores_intervals_references_and_attention(scene_runs, tmp_path, capsys):
    data = _report(*scene_runs, tmp_path / "report.html")
    assert [run["name"] for run in data["runs"]] == ["ngsan", "xlan"]
    assert [column["key"] for column in data["columns"]][:2] == ["truth", "pair"]
    assert data["scoreName"] == "CIDEr-D"
    for run in data["runs"]:
        assert run["configuration"]["model"]["name"] == run["name"]
        assert run["curves"] == {}  # it was never trained
        low, high = run["intervals"]["BLEU-1"]
        assert low <= run["scores"]["BLEU-1"] <= high
    identities = [example["identity"] for example in data["examples"]]
    assert identities == [f"val-0-{number:06d}" for number in range(9)]
    for example in data["examples"]:
        assert example["picture"].startswith("data:image/png;base64,")
        assert example["kind"] in ("near", "size", "bind")
        assert len(example["references"]) == 5
        for caption in example["captions"].values():
            assert caption["verdict"] in (True, False)
            weights = np.array(caption["attention"]).reshape(len(caption["words"]), len(example["boxes"]))
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-3)
    assert "9 pictures, " in capsys.readouterr().out


def test_photographs_beside_the_annotations_are_found_and_shrunk(make_run, photographs, tmp_path):
    run = make_run("mdsan", photographs.data)
    data = _report(run, tmp_path / "report.html")
    assert [example["identity"] for example in data["examples"]] == ["p3", "p4", "p5"]
    for example in data["examples"]:
        assert example["picture"].startswith("data:image/jpeg;base64,")
        assert (len(example["boxes"]), example["kind"]) == (16, "")
        assert example["captions"]["mdsan"]["verdict"] is None


def test_without_photographs_regions_are_drawn_and_the_page_says_so(make_run, photographs, tmp_path):
    run = make_run("aoanet", photographs.data)
    elsewhere = tmp_path / "elsewhere"
    photographs.folder.rename(elsewhere)
    try:
        data = _report(run, tmp_path / "blank.html")
        found = _report(run, "--pictures-folder", elsewhere, tmp_path / "found.html")
    finally:
        elsewhere.rename(photographs.folder)
    assert all(example["picture"].startswith("data:image/png") for example in data["examples"])
    assert any("3 pictures were not found" in note for note in data["footnotes"])
    assert all(example["picture"].startswith("data:image/jpeg") for example in found["examples"])
    assert not any("not found" in note for note in found["footnotes"])


def test_fewer_pictures_than_images_are_chosen_and_the_page_says_so(scene_runs, tmp_path):
    data = _report(*scene_runs, "--pictures", 4, tmp_path / "report.html")
    assert len(data["examples"]) == 4
    assert any(note.startswith("4 of 9 pictures are shown") for note in data["footnotes"])


def test_overlays_are_written_as_pictures(scene_runs, tmp_path):
    data = _report(*scene_runs, "--overlays", tmp_path / "sheets", "--pictures", 2, tmp_path / "report.html")
    spoken = [
        f"{example['identity']}.{name}.png"
        for example in data["examples"]
        for name, caption in example["captions"].items()
        if caption["words"]
    ]
    assert spoken
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == sorted(spoken)


def test_runs_of_one_name_are_told_apart_by_their_folders(make_run, tmp_path):
    folders = [make_run("transformer", SCENES, folder=f"{parent}/same") for parent in "ab"]
    data = _report(*folders, "--pictures", 1, tmp_path / "report.html")
    assert [run["name"] for run in data["runs"]] == ["a/same", "b/same"]


def _refused(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as left:
        main(["report", *map(str, arguments)])
    assert left.value.code == 2
    return capsys.readouterr().err


def test_what_cannot_be_compared_is_refused_in_a_sentence(scene_runs, make_run, photographs, tmp_path, capsys):
    page = tmp_path / "report.html"
    other = make_run("nsan", ScenesData(train=40, validation=5))
    assert "describes other images of val than" in _refused(capsys, scene_runs[0], other, "--out", page)
    assert "named twice" in _refused(capsys, scene_runs[0], scene_runs[0], "--out", page)
    assert "name at least one run folder" in _refused(capsys, "--out", page)
    assert "--pictures must be 0 or more" in _refused(capsys, scene_runs[0], "--pictures", -1, "--out", page)
    run = make_run("updown", photographs.data)
    assert "is no folder" in _refused(capsys, run, "--pictures-folder", tmp_path / "gone", "--out", page)
    (tmp_path / "empty").mkdir()
    message = _refused(capsys, run, "--pictures-folder", tmp_path / "empty", "--out", page)
    assert "holds none of the photographs, such as p3.jpg" in message
    imported = make_run("gsan", SCENES, imported={"kind": "gsan"})
    assert "was imported and has no data of its own" in _refused(capsys, imported, "--out", page)
    assert not page.exists()


def test_an_imported_run_is_reported_on_data_that_are_named(make_run, photographs, tmp_path):
    run = make_run("xtransformer", photographs.data, imported={"kind": "xtransformer"})
    named = ("--annotations", photographs.data.annotations, "--features", photographs.data.features)
    data = _report(run, *named, tmp_path / "report.html")
    assert len(data["examples"]) == 3


def test_the_chosen_are_the_best_the_worst_the_most_different_and_some_between():
    first = [float(number) for number in range(100)]
    second = [number + (60.0 if number in (40, 41) else 0.0) for number in range(100)]
    chosen = choose([first, second], 8)
    assert len(chosen) == len(set(chosen)) == 8
    assert {0, 1, 98, 99, 40, 41} <= set(chosen)
    assert chosen == sorted(chosen)
    assert choose([first, second], 100) == choose([first], 200) == list(range(100))
    assert choose([first], 0) == []


def test_a_hundred_of_the_worst_photographs_stay_below_twenty_megabytes():
    noise = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), dtype=np.uint8)
    data, media_type = Subject(Image.fromarray(noise), "", lambda _: (None, "")).encoded
    assert media_type == "image/jpeg"
    assert max(Image.open(io.BytesIO(data)).size) >= 256
    assert 100 * len(data) * 4 / 3 < 15e6
