"""`legenda report` on runs without training: scenes, photographs that are there or not, and models that differ."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from command_results import error_of, report_data
from legenda.data.captions import ScenesData
from legenda.features import open_features, write_store
from legenda.report.predictions import select_examples

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ScenesData(train=40, validation=9, test=3)


@pytest.fixture(scope="module")
def scene_runs(make_run) -> list[Path]:
    return [make_run(name, SCENES) for name in ("ngsan", "xlan")]


def test_scenes_are_compared_with_scores_intervals_references_and_attention(scene_runs, tmp_path, capsys):
    data = report_data(*scene_runs, tmp_path / "report.html")
    assert [run["name"] for run in data["runs"]] == ["ngsan", "xlan"]
    assert [column["key"] for column in data["columns"]][:2] == ["truth", "pair"]
    assert data["scoreName"] == "CIDEr-D"
    for run in data["runs"]:
        low, high = run["intervals"]["BLEU-1"]
        assert low <= run["scores"]["BLEU-1"] <= high
    first, second = (run["differences"] for run in data["runs"])
    assert first == {}
    scores = [run["scores"]["BLEU-1"] for run in data["runs"]]
    assert second["BLEU-1"]["difference"] == pytest.approx(scores[1] - scores[0])
    assert second["BLEU-1"]["low"] <= second["BLEU-1"]["difference"] <= second["BLEU-1"]["high"]
    assert 0 < second["CIDEr-D"]["p"] <= 1
    assert any(note.startswith("Differences: ") for note in data["footnotes"])
    ids = [example["id"] for example in data["examples"]]
    assert ids == [f"val-0-{number:06d}" for number in range(9)]
    text = (tmp_path / "report.html").read_text()
    assert "captions by beam 3." in text
    for example in data["examples"]:
        assert example["image"].startswith("data:image/png;base64,")
        assert example["kind"] in ("near", "size", "bind")
        assert len(example["references"]) == 5
        for caption in example["captions"].values():
            assert caption["verdict"] in (True, False)
            weights = np.array(caption["attention"]).reshape(len(caption["words"]), len(example["boxes"]))
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-3)
            assert caption["heads"]["count"] == 2
    assert "9 images, " in capsys.readouterr().out


def test_without_photographs_regions_are_drawn_and_the_page_says_so(make_run, noisy_photographs, tmp_path):
    run = make_run("aoanet", noisy_photographs.data)
    elsewhere = tmp_path / "elsewhere"
    noisy_photographs.folder.rename(elsewhere)
    try:
        data = report_data(run, tmp_path / "blank.html")
        found = report_data(run, "--images", elsewhere, tmp_path / "found.html")
    finally:
        elsewhere.rename(noisy_photographs.folder)
    assert all(example["image"].startswith("data:image/png") for example in data["examples"])
    assert any("3 images were not found" in note for note in data["footnotes"])
    assert all(example["image"].startswith("data:image/jpeg") for example in found["examples"])
    assert not any("not found" in note for note in found["footnotes"])


@pytest.fixture(scope="module")
def runs_with_and_without_boxes(make_run, noisy_photographs) -> dict[str, Path]:
    """Two models of the same pictures, one of whose features have no boxes."""
    path = noisy_photographs.folder.parent / "flat.safetensors"
    store = open_features(noisy_photographs.data.features)
    features = store.read(range(len(store))).features
    write_store(path, ((name, rows, None) for name, rows in zip(store.ids, features, strict=True)), extractor="flat")
    flat = noisy_photographs.data.model_copy(update={"features": path})
    return {"flat": make_run("aoanet", flat, "flat"), "boxed": make_run("aoanet", noisy_photographs.data, "boxed")}


@pytest.mark.parametrize("names", [["flat"], ["flat", "boxed"], ["boxed", "flat"]])
@pytest.mark.parametrize("overlays", [False, True])
def test_captions_of_features_without_boxes_have_no_attention(runs_with_and_without_boxes, tmp_path, names, overlays):
    drawn = ["--overlays", tmp_path / "sheets"] if overlays else []
    data = report_data(*(runs_with_and_without_boxes[name] for name in names), *drawn, tmp_path / "report.html")
    assert len(data["examples"]) == 3
    for example in data["examples"]:
        captions = example["captions"]
        assert captions["flat"]["words"]
        assert (captions["flat"]["attention"], captions["flat"]["heads"], captions["flat"]["boxes"]) == (None,) * 3
        assert len(example["boxes"]) == (16 if "boxed" in names else 0)
        if "boxed" in names:
            assert np.shape(captions["boxed"]["attention"]) == (len(captions["boxed"]["words"]), 16)
    assert any("flat have no boxes" in note for note in data["footnotes"])
    sheets = sorted(path.name for path in (tmp_path / "sheets").glob("*.png"))
    assert len(sheets) == (3 if overlays and "boxed" in names else 0)


@pytest.fixture
def refused(run_command, tmp_path) -> Callable[..., str]:
    """Return the sentence of a report that is refused."""
    return lambda *arguments: error_of(run_command("report", *map(str, arguments), "--out", f"{tmp_path}/report.html"))


def test_what_cannot_be_compared_is_refused_in_a_sentence(scene_runs, make_run, noisy_photographs, tmp_path, refused):
    other = make_run("nsan", ScenesData(train=40, validation=5))
    assert "has other images in val than" in refused(scene_runs[0], other)
    assert "named twice" in refused(scene_runs[0], scene_runs[0])
    assert "name at least one model, such as photo" in refused()
    assert "--num-images must be" in refused(scene_runs[0], "--num-images", -1)
    run = make_run("updown", noisy_photographs.data)
    assert "is not a folder" in refused(run, "--images", tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    assert "holds none of the photographs, such as p3.jpg" in refused(run, "--images", tmp_path / "empty")
    assert "was imported without data" in refused(make_run("gsan", SCENES, imported={"kind": "gsan"}))
    assert "captions.csv, which" in refused("photo")
    assert not (tmp_path / "report.html").exists()


def test_the_chosen_are_the_best_the_worst_the_most_different_and_some_between():
    first = [float(number) for number in range(100)]
    second = [number + (60.0 if number in (40, 41) else 0.0) for number in range(100)]
    chosen = select_examples([first, second], 8)
    assert len(chosen) == len(set(chosen)) == 8
    assert {0, 1, 98, 99, 40, 41} <= set(chosen)
    assert chosen == sorted(chosen)
    assert select_examples([first, second], 100) == select_examples([first], 200) == list(range(100))
    assert select_examples([first], 0) == []
