"""The HTTP API of `legenda serve`: captions, limits, errors, and concurrent clients."""

import copy
import io
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from image_requests import png, post, scene
from PIL import Image

import legenda
from legenda.cli.main import main
from legenda.data.scenes import draw_scene, make_scene
from legenda.errors import DataError, LegendaError

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("multipart", reason="needs the extra serve")
from fastapi.testclient import TestClient

from legenda.report.images import packaged_photographs
from legenda.search_options import SearchOptions
from legenda.serve.app import create_app
from legenda.serve.engine import Engine, Request
from legenda.serve.limits import Limits
from legenda.serve.request_settings import read_settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("model", ["ngsan", "xlan"])
def test_captions_equal_those_of_the_model(client, served, model):
    answer = post(client, png(scene()), model=model, beam_size=2, num_captions=2).json()
    ((features, boxes),) = served[model].extractor.extract([scene()])
    regions = legenda.Regions(torch.from_numpy(features)[None], torch.from_numpy(boxes)[None])
    assert answer["captions"][0]["text"] == served[model].run.model.caption(regions, beam_size=2)[0]
    assert answer["model"] == model
    assert len(answer["captions"]) == 2
    np.testing.assert_allclose(answer["boxes"], boxes, atol=1e-4)
    for caption in answer["captions"]:
        assert caption["text"].split() == caption["words"]
        np.testing.assert_allclose(np.sum(caption["attention"], axis=1), 1, atol=1e-3)
        assert np.shape(caption["attention"]) == (len(caption["words"]), len(boxes))


def test_a_photograph_is_captioned_with_a_warning(client):
    assert post(client, png(scene())).json()["warning"] is None
    answer = post(client, packaged_photographs()[0].read_bytes(), name="me.jpg").json()
    assert answer["warning"].startswith("me.jpg: a model of scenes knows only colored things")


def test_samples_depend_on_the_seed(client):
    def texts(seed: int) -> list[str]:
        answer = post(client, png(scene()), temperature=1.5, num_captions=4, seed=seed).json()
        return [caption["text"] for caption in answer["captions"]]

    assert len(texts(1)) == 4
    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


@pytest.mark.parametrize("model", ["ngsan", "xlan"])
def test_attention_of_each_head_is_returned_on_request(client, model):
    assert post(client, png(scene()), model=model).json()["captions"][0]["heads"] is None
    caption = post(client, png(scene()), model=model, heads=True).json()["captions"][0]
    heads = np.array(caption["heads"])
    assert heads.shape[:2] == (len(caption["words"]), 2)
    np.testing.assert_allclose(heads.mean(axis=1), caption["attention"], atol=1e-4)
    assert abs(heads[:, 0] - heads[:, 1]).max() > 1e-3


def test_attention_png_of_one_head_or_several_captions(client):
    mean = post(client, png(scene()), "/api/attention.png").content
    one = post(client, png(scene()), "/api/attention.png", head=1).content
    assert one != mean
    assert Image.open(io.BytesIO(one)).size == Image.open(io.BytesIO(mean)).size
    several = post(client, png(scene()), "/api/attention.png", num_captions=2).content
    assert Image.open(io.BytesIO(several)).height > 1.5 * Image.open(io.BytesIO(mean)).height


def test_attention_png_has_a_tile_for_each_word(client):
    words = post(client, png(scene())).json()["captions"][0]["words"]
    answer = post(client, png(scene()), "/api/attention.png")
    assert answer.headers["content-type"] == "image/png"
    width = Image.open(io.BytesIO(answer.content)).size[0]
    assert width == min(5, len(words) + 1) * 330 + 10


@pytest.mark.parametrize(
    ("data", "fields", "code", "message"),
    [
        (b"no picture", {}, 422, "holiday.jpg is not an image of a known type"),
        (b"", {}, 422, "holiday.jpg is not an image of a known type"),
        (png(scene())[:900], {}, 422, "holiday.jpg"),
        (png(Image.new("RGB", (64, 64), "white")), {}, 422, "the image shows 0 things"),
        (bytes(300_000), {}, 413, "the image is too large"),
        (png(scene()), {"model": "ngsam"}, 422, "there is no model 'ngsam'; did you mean ngsan"),
        (png(scene()), {"beam_size": 0}, 422, "beam_size: Input should be greater than or equal to 1"),
        (png(scene()), {"temperature": "hot"}, 422, "temperature: Input should be a valid number"),
    ],
)
def test_invalid_requests_return_an_error(client, data, fields, code, message):
    answer = post(client, data, name="holiday.jpg", **fields)
    assert answer.status_code == code
    assert message in answer.json()["detail"]
    assert "/tmp" not in answer.json()["detail"]


def test_an_unknown_head_returns_an_error(client):
    answer = post(client, png(scene()), "/api/attention.png", head=7)
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "there is no head 7; choose from 0 to 1, or leave it out for their mean",
    )


def test_a_request_without_image_or_length_returns_an_error(client):
    assert client.post("/api/captions", data={"model": "ngsan"}).json()["detail"] == "image: Field required"
    streamed = client.post("/api/captions", content=iter([b"a", b"b"]), headers={"content-type": "multipart/form-data"})
    assert streamed.status_code == 411


def test_other_host_headers_are_rejected(served):
    with TestClient(create_app(served, {}, Limits(hosts=("localhost",)), SearchOptions())) as client:
        assert client.get("/health", headers={"host": "localhost:8000"}).status_code == 200
        assert client.get("/health", headers={"host": "elsewhere.example"}).status_code == 400


def test_health_models_and_samples(client, samples):
    assert client.get("/health").json()["models"] == ["ngsan", "xlan"]
    first = client.get("/api/models").json()[0]
    assert (first["name"], first["architecture"], first["extractor"]) == ("ngsan", "ngsan", "scenes")
    assert client.get("/api/samples").json() == list(samples) == [f"scene-{number}.png" for number in range(1, 7)]
    assert client.get("/api/samples/scene-1.png").headers["content-type"] == "image/png"
    assert client.get("/api/samples/..%2Fsecret").status_code == 404


def test_pages_load_no_external_resources(client):
    for path in ("/", "/docs"):
        page = client.get(path)
        assert "default-src 'none'" in page.text
        assert "connect-src 'self'" in page.text
        assert "unsafe" not in page.text.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
        assert not re.search(r"<(?:script|link|img)\b[^>]*(?:src|href)=.?(?:https?:)?//", page.text)
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/health",
        "/api/models",
        "/api/samples",
        "/api/samples/{name}",
        "/api/captions",
        "/api/attention.png",
    }


def test_environment_variables_do_not_enable_telemetry(served, monkeypatch, caplog):
    """By default FastAPI would look for exporters and warn that none is installed."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with TestClient(create_app(served, {}, Limits(), SearchOptions())) as client:
        assert client.get("/health").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.name == "fastapi"] == []


def test_concurrent_requests_are_batched_and_complete(served):
    with TestClient(create_app(served, {}, Limits(per_minute=100_000), SearchOptions())) as client:
        images = [png(scene(number)) for number in range(8)]
        alone = [post(client, image).json()["captions"][0]["text"] for image in images]
        before = client.get("/health").json()

        def send(number: int) -> list[str]:
            answers = [post(client, images[number]) for _ in range(5)]
            return [answer.json()["captions"][0]["text"] for answer in answers]

        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(send, range(8)))
        after = client.get("/health").json()
    assert texts == [[text] * 5 for text in alone]
    assert after["completed"] - before["completed"] == 40
    assert after["batches"] - before["batches"] < 40


def test_an_invalid_image_does_not_affect_its_batch(served):
    engine = Engine(served)
    answers = [engine.submit(Request("ngsan"), image, "x") for image in (scene(), Image.new("RGB", (9, 9)), scene())]
    assert answers[0].result(20)[0].words == answers[2].result(20)[0].words
    with pytest.raises(LegendaError, match="0 things"):
        answers[1].result(20)
    engine.close()
    assert not engine.worker.is_alive()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name at least one model, such as photo"),
        (["gone"], "gone"),
        (["x", "--max-megapixels", "0"], "--max-megapixels must be at least 1, not 0"),
        (["x", "--port", "99999"], "--port must be at most 65535, not 99999"),
    ],
)
def test_invalid_options_exit_with_an_error(arguments, message, capsys):
    with pytest.raises(SystemExit) as left:
        main(["serve", *arguments])
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_regions_are_moved_to_the_device_of_the_model(served, monkeypatch):
    loaded = served["ngsan"]
    run = replace(loaded.run, model=copy.deepcopy(loaded.run.model).to("meta"))
    devices = []

    def note(_model, regions, *_, **__):
        devices.append(regions.features.device.type)
        raise DataError("the meta device holds no values")

    monkeypatch.setattr("legenda.serve.engine.search", note)
    engine = Engine({"meta": replace(loaded, run=run)})
    result = engine.submit(Request("meta"), draw_scene(make_scene("fresh", 0)), "a.png")
    with pytest.raises(DataError, match="no values"):
        result.result(timeout=30)
    engine.close()
    assert devices == ["meta"]


def test_the_search_of_the_server_is_that_of_requests_which_set_none():
    server = SearchOptions(beam_size=4, length_penalty=0.7)
    assert read_settings().request("m", server) == Request("m", 1, server)
    assert read_settings(num_captions=6).request("m", server).search.beam_size == 6
    sampled = read_settings(temperature=0.5, seed=7).request("m", server).search
    assert (sampled.do_sample, sampled.temperature, sampled.seed, sampled.length_penalty) == (True, 0.5, 7, 0.7)
    samples = SearchOptions(do_sample=True, temperature=0.5, top_p=0.9)
    assert read_settings(num_captions=6).request("m", samples).search == samples
    searched = read_settings(temperature=0.0).request("m", samples).search
    assert (searched.do_sample, searched.temperature) == (False, 1.0)
