"""The API and the page of `legenda judge`: blinding, several judges at once, limits, and errors."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra serve")

from fastapi.testclient import TestClient

from legenda.evaluation.judgments import JudgmentFile, Pair, read_judgments
from legenda.serve.judge_app import create_judge_app
from legenda.serve.limits import Limits

PAIRS = [Pair(f"image{number}", f"a dog {number}", f"a cat {number}") for number in range(12)]


@pytest.fixture
def file(tmp_path) -> JudgmentFile:
    return JudgmentFile(tmp_path / "judgments.jsonl", "runs/aoanet/val.json", "runs/base/val.json", PAIRS)


@pytest.fixture
def client(file, tmp_path) -> Iterator[TestClient]:
    images = [tmp_path / f"secret-{pair.image}.png" for pair in PAIRS]
    for path in images[:-1]:
        Image.new("RGB", (8, 6)).save(path)
    with TestClient(create_judge_app(file, images, Limits(max_bytes=10_000, per_minute=100_000))) as client:
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
    found = read_judgments(file.path).verdicts["Ann"]
    assert set(found.values()) == {"first", "second"}  # "left" is either model
    assert ask(client, "Ann", "undo")["done"] == 11


def test_nothing_that_a_judge_gets_names_the_models(client):
    page = client.get("/")
    texts = [page.text]
    question = ask(client, "Ann")
    for _ in range(4):
        assert set(question) == {"pair", "left", "right", "done", "total"}
        image = client.get(f"/api/images/{question['pair']}")
        texts += [json.dumps(question), str(dict(image.headers))]
        question = ask(client, "Ann", "answer", pair=question["pair"], choice="equal")
    for word in ("aoanet", "base/", "val.json", "secret", "image0", '"first"', '"second"', 'key"'):
        assert not any(word in text for text in texts), word
    assert client.get("/openapi.json").status_code == 404


def test_several_judges_at_once_lose_nothing(client, file):
    barrier = threading.Barrier(6)

    def answer_all(judge: str) -> None:
        barrier.wait()
        question = ask(client, judge)
        while question["pair"] is not None:
            question = ask(client, judge, "answer", pair=question["pair"], choice="equal")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(answer_all, map(str, range(6))))
    found = read_judgments(file.path).verdicts
    assert found == file.judgments.verdicts
    assert [len(found[str(judge)]) for judge in range(6)] == [12] * 6


@pytest.mark.parametrize(
    ("path", "fields", "code", "detail"),
    [
        ("next", {"judge": "  "}, 422, "judge: String should have at least 1 character"),
        ("next", {"judge": "x" * 61}, 422, "judge: String should have at most 60 characters"),
        ("answer", {"judge": "Ann", "pair": 12, "choice": "left"}, 404, "there is no pair 12"),
        ("answer", {"judge": "Ann", "pair": 1, "choice": "first"}, 422, "choice: Input should be"),
        ("next", {"judge": "Ann", "more": "x" * 20_000}, 413, "too large"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(client, path, fields, code, detail):
    response = client.post(f"/api/{path}", json=fields)
    assert response.status_code == code
    assert detail in response.json()["detail"]


def test_an_image_beyond_the_limit_of_pixels_is_refused(client, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    assert client.get("/api/images/0").status_code == 404


def test_the_guard_of_the_server_holds(client, file):
    headers = {"sec-fetch-site": "cross-site"}
    assert client.post("/api/next", json={"judge": "Ann"}, headers=headers).status_code == 403
    page = client.get("/")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in page.text
    assert client.get("/api/images/-1").status_code == 404
    missing = client.get("/api/images/11")
    assert (missing.status_code, missing.json()["detail"]) == (404, "image 11 can no longer be read")
    with TestClient(create_judge_app(file, [], Limits(per_minute=2, hosts=("localhost",)))) as strict:
        codes = [
            strict.post("/api/next", json={"judge": "Ann"}, headers={"host": "localhost"}).status_code for _ in range(3)
        ]
        assert codes == [200, 200, 429]
        assert strict.get("/").status_code == 400


def test_names_are_written_as_json(client, file):
    name = 'Zoë "\n\u202e</script>'
    ask(client, name, "answer", pair=0, choice="left")
    assert list(read_judgments(Path(file.path)).verdicts) == [name]
