"""`legenda judge`: pairs of two files served until stopped, and the two forms that print."""

import json
from pathlib import Path

import pytest
from PIL import Image

from legenda.evaluation.judgments import JudgmentFile, Pair, read_judgments
from legenda.io import write_json

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

CALL = "judge first.json second.json --images photos --out judgments.jsonl --port 0"


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos/val2014").mkdir(parents=True)
    for name in ("7.png", "val2014/COCO_val2014_000000000042.png", "beach.png", "9.tif"):
        Image.new("RGB", (8, 6)).save(Path("photos") / name)
    captions = {"7": "a dog", "42": "a cat", "beach": "sand", "9": "browsers show no TIFF"}
    write_json("first.json", captions)
    write_json("second.json", [{"image_id": name, "caption": f"{text} runs"} for name, text in captions.items()])


@pytest.fixture
def served(monkeypatch) -> list:
    """Return a list that gets the files of judgments, instead of serving them."""
    apps: list = []

    def stop(app, *_: object) -> None:
        apps.append(app)

    monkeypatch.setattr("legenda.serve.http_server.run_server", stop)
    return apps


def test_images_are_found_by_id_stem_and_cocos_number(run_command, served):
    code, out, err = run_command(CALL)
    assert (code, out, err) == (0, "", "")
    pairs = read_judgments(Path("judgments.jsonl")).pairs
    assert set(pairs) == {
        Pair("7", "a dog", "a dog runs"),
        Pair("42", "a cat", "a cat runs"),
        Pair("beach", "sand", "sand runs"),
    }
    assert len(served) == 1
    code, _, err = run_command(f"{CALL} --num-images 2")
    assert code == 2
    assert "judgments.jsonl has judgments of other pairs" in err


@pytest.mark.usefixtures("served")
def test_an_evaluation_of_a_run_is_read(run_command):
    run = Path("run")
    run.mkdir()
    write_json(run / "config.json", {})
    write_json(run / "evaluation_val.json", {"captions": {"7": "a bird"}})
    assert run_command(CALL.replace("first.json", "run"))[0] == 0
    assert [pair.first for pair in read_judgments(Path("judgments.jsonl")).pairs] == ["a bird"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (CALL.replace("photos", "gone"), "gone is not a folder"),
        (CALL.replace("photos", "photos/val2014") + " --num-images 2", "--num-images must lie in 1..1"),
        (CALL.replace("second", "first"), "the captions of all 3 images are identical"),
        (CALL.replace("--port 0", "--port 70000"), "--port must be at most 65535"),
        ("judge first.json --images photos --out x", "SECOND"),
        ("judge --summarize gone.jsonl", "gone.jsonl cannot be read"),
        ("judge --summarize first.json", "name a file that legenda judge wrote"),
        ("judge --correlate ratings.csv", "--references"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(run_command, served, call, message):
    code, out, err = run_command(call)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert served == []


def test_the_summary_and_the_correlation_are_printed_and_written(run_command):
    pairs = [Pair(str(number), "a dog", "a cat") for number in range(4)]
    file = JudgmentFile(Path("judgments.jsonl"), "a.json", "b.json", pairs)
    for judge in ("Ann", "Bob"):
        for pair in range(4):
            file.answer(judge, pair, "equal" if pair else "left")
    code, out, err = run_command("judge --summarize judgments.jsonl --out summary.json")
    assert (code, err) == (0, "")
    assert "8 judgments of 4 images by 2 judges" in out
    assert "75.00" in out
    assert json.loads(Path("summary.json").read_text())["judgments"]["equal"] == 6
    Path("ratings.csv").write_text("image_id,caption,rating\n7,a dog runs,4\n42,a house,1\n")
    write_json("references.json", {"7": ["the dog runs"], "42": ["one cat"]})
    code, out, err = run_command(
        "judge --correlate ratings.csv --references references.json --metrics fast --out c.json"
    )
    assert (code, err) == (0, "")
    assert "2 ratings of 2 captions" in out
    assert json.loads(Path("c.json").read_text())["metrics"]["ROUGE-L"]["tau_b"] == pytest.approx(1)
