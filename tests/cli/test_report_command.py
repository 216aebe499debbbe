"""`legenda report` on runs without training: scenes, photographs that are there or not, and models that differ."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from legenda.cli.main import main
from legenda.data.captions import ScenesData
from legenda.pipeline import GeneratedCaption
from legenda.report.captions import heads_fit_page_budget, select_examples

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).resolve().parents[2]
SCENES = ScenesData(train=40, validation=9, test=3)


@pytest.fixture(scope="module")
def scene_runs(make_run) -> list[Path]:
    return [make_run(name, SCENES) for name in ("ngsan", "xlan")]


def _report(*arguments: object) -> dict:
    """The data in the page that the command writes; its last argument is the page."""
    main(["report", *map(str, arguments[:-1]), "--out", str(arguments[-1])])
    page = Path(str(arguments[-1])).read_text(encoding="utf-8")
    found = re.search(r'id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_scenes_are_compared_with_scores_intervals_references_and_attention(scene_runs, tmp_path, capsys):
    data = _report(*scene_runs, tmp_path / "report.html")
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


def test_photographs_next_to_the_annotations_are_found_and_shrunk(make_run, noisy_photographs, tmp_path):
    run = make_run("mdsan", noisy_photographs.data)
    data = _report(run, tmp_path / "report.html")
    assert [example["id"] for example in data["examples"]] == ["p3", "p4", "p5"]
    for example in data["examples"]:
        assert example["image"].startswith("data:image/jpeg;base64,")
        assert (len(example["boxes"]), example["kind"]) == (16, "")
        assert example["captions"]["mdsan"]["verdict"] is None


def test_without_photographs_regions_are_drawn_and_the_page_says_so(make_run, noisy_photographs, tmp_path):
    run = make_run("aoanet", noisy_photographs.data)
    elsewhere = tmp_path / "elsewhere"
    noisy_photographs.folder.rename(elsewhere)
    try:
        data = _report(run, tmp_path / "blank.html")
        found = _report(run, "--image-folder", elsewhere, tmp_path / "found.html")
    finally:
        elsewhere.rename(noisy_photographs.folder)
    assert all(example["image"].startswith("data:image/png") for example in data["examples"])
    assert any("3 images were not found" in note for note in data["footnotes"])
    assert all(example["image"].startswith("data:image/jpeg") for example in found["examples"])
    assert not any("not found" in note for note in found["footnotes"])


def test_overlays_are_written_as_png(scene_runs, tmp_path):
    data = _report(*scene_runs, "--overlays", tmp_path / "sheets", "--num-images", 2, tmp_path / "report.html")
    expected = [
        f"{example['id']}.{name}.png"
        for example in data["examples"]
        for name, caption in example["captions"].items()
        if caption["words"]
    ]
    assert expected
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == sorted(expected)


def test_a_head_that_is_not_there_is_refused_before_anything_is_captioned(scene_runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "legenda.report.captions.predict_with_attention",
        lambda *_, **__: pytest.fail("all were captioned"),
    )
    line = (scene_runs[0], "--overlays", tmp_path / "sheets", "--head", 2, "--out", tmp_path / "report.html")
    assert f"{scene_runs[0]}: there is no head 2; choose from 0 to 1" in _refused(capsys, *line)
    assert list(tmp_path.iterdir()) == []


def test_runs_with_equal_names_are_named_by_their_folders(make_run, tmp_path):
    folders = [make_run("transformer", SCENES, folder=f"{parent}/same") for parent in "ab"]
    data = _report(*folders, "--num-images", 1, tmp_path / "report.html")
    assert [run["name"] for run in data["runs"]] == ["a/same", "b/same"]


def _refused(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as left:
        main(["report", *map(str, arguments)])
    assert left.value.code == 2
    return capsys.readouterr().err


def test_what_cannot_be_compared_is_refused_in_a_sentence(scene_runs, make_run, noisy_photographs, tmp_path, capsys):
    page = tmp_path / "report.html"
    other = make_run("nsan", ScenesData(train=40, validation=5))
    assert "has other images in val than" in _refused(capsys, scene_runs[0], other, "--out", page)
    assert "named twice" in _refused(capsys, scene_runs[0], scene_runs[0], "--out", page)
    assert "name at least one model, such as photo" in _refused(capsys, "--out", page)
    assert "--num-images must be" in _refused(capsys, scene_runs[0], "--num-images", -1, "--out", page)
    run = make_run("updown", noisy_photographs.data)
    assert "is not a folder" in _refused(capsys, run, "--image-folder", tmp_path / "gone", "--out", page)
    (tmp_path / "empty").mkdir()
    message = _refused(capsys, run, "--image-folder", tmp_path / "empty", "--out", page)
    assert "holds none of the photographs, such as p3.jpg" in message
    imported = make_run("gsan", SCENES, imported={"kind": "gsan"})
    assert "was imported without data" in _refused(capsys, imported, "--out", page)
    assert not page.exists()


def test_an_imported_run_is_reported_on_data_that_are_named(make_run, noisy_photographs, tmp_path):
    run = make_run("xtransformer", noisy_photographs.data, imported={"kind": "xtransformer"})
    named = ("--annotations", noisy_photographs.data.annotations, "--features", noisy_photographs.data.features)
    data = _report(run, *named, tmp_path / "report.html")
    assert len(data["examples"]) == 3


def test_the_chosen_are_the_best_the_worst_the_most_different_and_some_between():
    first = [float(number) for number in range(100)]
    second = [number + (60.0 if number in (40, 41) else 0.0) for number in range(100)]
    chosen = select_examples([first, second], 8)
    assert len(chosen) == len(set(chosen)) == 8
    assert {0, 1, 98, 99, 40, 41} <= set(chosen)
    assert chosen == sorted(chosen)
    assert select_examples([first, second], 100) == select_examples([first], 200) == list(range(100))
    assert select_examples([first], 0) == []


def test_single_heads_are_kept_as_long_as_the_page_stays_small():
    def captions(heads: int, regions: int) -> dict[str, GeneratedCaption]:
        attention = np.random.default_rng(0).dirichlet(np.ones(regions), (12, heads))
        return {
            str(n): GeneratedCaption(("word",) * 12, (1,) * 12, 0.0, attention, np.zeros((regions, 4)))
            for n in range(2)
        }

    assert heads_fit_page_budget([captions(8, 49)] * 3)
    assert not heads_fit_page_budget([captions(16, 100)] * 3)
    assert heads_fit_page_budget([captions(16, 100), *[captions(2, 9)] * 3])  # the mean over the pictures counts
    assert heads_fit_page_budget([])
