"""The page of judgments and its API: blinding, several judges at once, errors; and the commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra serve")

from app import create_judge_app
from fastapi.testclient import TestClient
from judgments import JudgmentFile, Pair, read_judgments

from legenda.io import write_json

PAIRS = [Pair(f"image{number}", f"a dog {number}", f"a cat {number}") for number in range(12)]


@pytest.fixture
def file(tmp_path) -> JudgmentFile:
    return JudgmentFile(tmp_path / "judgments.jsonl", "runs/aoanet/val.json", "runs/base/val.json", PAIRS)


@pytest.fixture
def client(file, tmp_path) -> Iterator[TestClient]:
    images = [tmp_path / f"secret-{pair.image}.png" for pair in PAIRS]
    for path in images[:-1]:
        Image.new("RGB", (8, 6)).save(path)
    with TestClient(create_judge_app(file, images)) as client:
        yield client


def ask(client: TestClient, judge: str, path: str = "next", **fields: object) -> dict:
    response = client.post(f"/api/{path}", json={"judge": judge, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_judge_answers_all_pairs(client, file):
    question = ask(client, " Ann ")
    while question["pair"] is not None:
        assert client.get(f"/api/images/{question['pair']}").status_code in (200, 404)
        question = ask(client, "Ann", "answer", pair=question["pair"], choice="left")
    assert (question["done"], question["total"]) == (12, 12)
    verdicts = read_judgments(file.path).verdicts["Ann"]
    assert set(verdicts.values()) == {"first", "second"}  # "left" is either model
    assert ask(client, "Ann", "undo")["done"] == 11


def test_nothing_that_a_judge_gets_names_the_models(client):
    texts = [client.get("/").text]
    question = ask(client, "Ann")
    for _ in range(4):
        image = client.get(f"/api/images/{question['pair']}")
        texts += [json.dumps(question), str(dict(image.headers))]
        question = ask(client, "Ann", "answer", pair=question["pair"], choice="equal")
    for word in ("aoanet", "base/", "val.json", "secret", "image0", '"first"', '"second"', 'key"'):
        assert not any(word in text for text in texts), word


@pytest.fixture
def captions(tmp_path, monkeypatch) -> None:
    """Two files of captions and their images; the server stops at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: None)
    Path("photos/val2014").mkdir(parents=True)
    for name in ("7.png", "val2014/COCO_val2014_000000000042.png", "9.tif"):
        Image.new("RGB", (8, 6)).save(Path("photos") / name)
    first = {"7": "a dog", "42": "a cat", "9": "browsers show no TIFF"}
    write_json("first.json", first)
    write_json("second.json", {name: f"{caption} runs" for name, caption in first.items()})


SERVE = "serve first.json second.json --images photos --out judgments.jsonl"


@pytest.mark.usefixtures("captions")
def test_pairs_are_served_summarized_and_correlated(run_script):
    code, out, _ = run_script("judge/run.py", *SERVE.split())
    assert (code, "2 of 3 images" in out) == (0, True)
    pairs = read_judgments(Path("judgments.jsonl")).pairs
    assert set(pairs) == {Pair("7", "a dog", "a dog runs"), Pair("42", "a cat", "a cat runs")}
    file = JudgmentFile(Path("judgments.jsonl"), "first.json", "second.json", pairs)
    for pair in range(2):
        file.answer("Ann", pair, "equal")
    assert run_script("judge/run.py", "summarize", "judgments.jsonl", "--out", "summary.json")[0] == 0
    assert json.loads(Path("summary.json").read_text())["judgments"]["equal"] == 2
    Path("ratings.csv").write_text("image_id,caption,rating\n7,a dog runs,4\n42,a house,1\n")
    write_json("references.json", {"7": ["the dog runs"], "42": ["a small cat"]})
    line = "correlate ratings.csv references.json --metrics fast --out c.json"
    assert run_script("judge/run.py", *line.split())[0] == 0
    assert json.loads(Path("c.json").read_text())["metrics"]["ROUGE-L"]["tau_b"] == pytest.approx(1)
