"""The page and the API: captions, attention, samples, and requests that are refused in one sentence."""

import base64
import html
import io
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from conftest import header_of_png, png, post, scene

pytest.importorskip("fastapi", reason="needs the extra serve")

from legenda.errors import ConfigError
from legenda.pipeline import Pipeline
from legenda.report.images import packaged_photographs
from legenda.runtime.settings import Overrides
from legenda.serve.app import Settings
from legenda.serve.engine import Request

pytestmark = pytest.mark.usefixtures("one_thread")
PATH = "/api/captions"


def test_a_temperature_of_0_is_beam_search(client, served):
    answer = post(client, png(scene()), model="ngsan", temperature=0)
    assert answer.json()["captions"] == post(client, png(scene()), model="ngsan").json()["captions"]
    assert answer.json()["captions"][0]["text"] == served["ngsan"].caption(scene(), temperature=0).text
    refused = post(client, png(scene()), model="ngsan", temperature=1e-12)
    assert (refused.status_code, "temperature" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize("model", ["ngsan", "xlan"])
def test_captions_equal_those_of_the_pipeline(client, served, model):
    answer = post(client, png(scene()), model=model, beam_size=2, num_captions=2, heads=True).json()
    expected = served[model].caption(scene(), beam_size=2, num_captions=2)
    assert answer["model"] == model
    assert [caption["text"] for caption in answer["captions"]] == [caption.text for caption in expected]
    np.testing.assert_allclose(answer["boxes"], expected[0].boxes, atol=1e-4)
    for caption, of_pipeline in zip(answer["captions"], expected, strict=True):
        assert caption["words"] == list(of_pipeline.words)
        np.testing.assert_allclose(caption["attention"], of_pipeline.attention, atol=1e-4)
        np.testing.assert_allclose(caption["heads"], of_pipeline.heads, atol=1e-4)
    assert post(client, png(scene()), model=model).json()["captions"][0]["heads"] is None


def test_a_photograph_is_captioned_with_a_warning(client):
    assert post(client, png(scene())).json()["warning"] is None
    answer = post(client, packaged_photographs()[0].read_bytes(), name="me.jpg").json()
    assert answer["warning"].startswith("me.jpg: a model of scenes knows only colored things")


def test_attention_png_has_a_tile_for_each_word_of_each_caption(client):
    words = post(client, png(scene())).json()["captions"][0]["words"]
    mean, head, several = (
        Image.open(io.BytesIO(post(client, png(scene()), "/api/attention.png", **fields).content))
        for fields in ({}, {"head": 1}, {"num_captions": 2})
    )
    assert mean.width == min(5, len(words) + 1) * 330 + 10
    assert mean.size == head.size
    assert mean.tobytes() != head.tobytes()
    assert several.height > 1.5 * mean.height


def test_several_images_are_captioned_in_order_and_a_bad_one_is_named(client):
    files = [("image", (name, data)) for name, data in (("a", png(scene())), ("b", b"no image"), ("c", png(scene(1))))]
    first, bad, last = client.post("/api/batch", files=files, data={"model": "xlan"}).json()
    assert (first["name"], bad["name"], last["name"]) == ("a", "b", "c")
    assert first["result"]["captions"] == post(client, png(scene()), model="xlan").json()["captions"]
    assert (first["error"], bad["result"], last["error"]) == (None, None, None)
    assert bad["error"].startswith("b is not an image of a known type")
    refused = client.post(PATH, files=files)
    assert (refused.status_code, "/api/batch" in refused.json()["detail"]) == (422, True)


def test_a_plain_form_is_answered_by_a_page(client):
    name = "<i>a.png"
    page = client.post("/", files={"image": (name, png(scene()))}, data={"model": "ngsan", "seed": ""})
    text = post(client, png(scene())).json()["captions"][0]["text"]
    assert html.escape(f"{name}: {text}") in page.text
    assert client.post("/", data={"model": "ngsan"}).status_code == 422


def test_health_models_samples_and_pages(client, samples):
    assert client.get("/health").json()["models"] == ["ngsan", "xlan"]
    first = client.get("/api/models").json()[0]
    assert (first["name"], first["architecture"], first["extractor"]) == ("ngsan", "ngsan", "scenes")
    assert client.get("/api/samples").json() == list(samples)
    assert client.get("/api/samples/scene-1.png").headers["content-type"] == "image/png"
    assert client.get("/api/samples/..%2Fsecret").status_code == 404
    for path in ("/", "/docs"):
        page = client.get(path)
        assert "default-src 'none'" in page.text
        assert not re.search(r"<(?:script|link|img)\b[^>]*(?:src|href)=.?(?:https?:)?//", page.text)
        assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("data", "fields", "code", "message"),
    [
        (b"no picture", {}, 422, "holiday.jpg is not an image of a known type"),
        (png(scene())[:900], {}, 422, "holiday.jpg"),
        (png(Image.new("RGB", (64, 64), "white")), {}, 422, "holiday.jpg: the image shows 0 things"),
        (bytes(300_000), {}, 413, "the image is too large"),
        (header_of_png(10_000, 5_001), {}, 413, "holiday.jpg has more than 50 megapixels"),
        (header_of_png(30_000, 30_000), {}, 413, "holiday.jpg has more than 50 megapixels"),
        (png(scene()), {"model": "ngsam"}, 422, "there is no model 'ngsam'; did you mean ngsan"),
        (png(scene()), {"beamsize": 2}, 422, "there is no field 'beamsize'; did you mean beam_size?"),
        (png(scene()), {"beam_size": 0}, 422, "beam_size: Input should be greater than or equal to 1"),
        (png(scene()), {"num_captions": 4}, 422, "num_captions must lie between 1 and beam_size=3, not 4"),
        (png(scene()), {"temperature": "hot"}, 422, "temperature: Input should be a valid number"),
    ],
)
def test_invalid_requests_are_refused(client, data, fields, code, message):
    answer = post(client, data, name="holiday.jpg", **fields)
    assert answer.status_code == code
    assert message in answer.json()["detail"]


def test_a_request_without_image_or_length_or_with_an_unknown_head_is_refused(client):
    assert client.post(PATH, data={"model": "ngsan"}).json()["detail"] == "image: Field required"
    assert post(client, png(scene()), "/api/attention.png", head=7).status_code == 422
    streamed = client.post(PATH, content=iter([b"a", b"b"]), headers={"content-type": "multipart/form-data"})
    assert (streamed.status_code, streamed.headers["connection"]) == (411, "close")


@pytest.mark.parametrize(("kind", "is_sent"), [("HEIF", True), ("TIFF", True), ("AVIF", False), ("PNG", False)])
def test_images_that_browsers_do_not_draw_are_sent_as_jpeg(client, kind, is_sent):
    data = io.BytesIO()
    scene().save(data, kind, **({"compression": "tiff_lzw"} if kind == "TIFF" else {}))
    assert post(client, data.getvalue()).json()["preview"] is None
    preview = post(client, data.getvalue(), preview=True).json()["preview"]
    assert (preview is not None) == is_sent
    if is_sent:
        image = Image.open(io.BytesIO(base64.b64decode(preview.removeprefix("data:image/jpeg;base64,"))))
        assert image.width / image.height == pytest.approx(scene().width / scene().height, abs=0.01)


def test_formats_of_photographs_are_read_and_others_are_not_opened(connect):
    client = connect()
    for options in ({"format": "TIFF", "compression": "tiff_lzw"}, {"format": "GIF"}, {"format": "WEBP"}):
        data = io.BytesIO()
        scene().save(data, **options)
        small = post(client, data.getvalue())
        large = post(client, data.getvalue() + bytes(2_000_000))  # above 1 MB an upload is written to disk
        assert small.status_code == large.status_code == 200
        assert large.json()["captions"] == small.json()["captions"]
    data = io.BytesIO()
    Image.new("RGB", (9, 9)).save(data, "EPS")  # Pillow would start Ghostscript
    assert "image" in post(client, data.getvalue()).json()["detail"]


@pytest.mark.parametrize("slow", ["extract", "decode"])
def test_an_answer_that_takes_too_long_is_given_up(connect, served, monkeypatch, slow):
    gate = threading.Event()
    models = served
    if slow == "decode":
        monkeypatch.setattr("legenda.serve.engine.read_image", lambda *_: gate.wait(20) and scene())
    else:
        extractor = replace(served["ngsan"].extractor, extract=lambda _: gate.wait(20) and [])
        models = {"ngsan": Pipeline(served["ngsan"].captioner, extractor)}
    answer = post(connect(models, answer_timeout=0.2), png(scene()))
    gate.set()
    assert (answer.status_code, int(answer.headers["retry-after"])) == (503, 5)
    assert answer.json()["detail"] == "the captions took longer than 0.2 s; try again later"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 422),
        ({"origin": "http://localhost"}, 422),
        ({"sec-fetch-site": "same-origin", "origin": "https://proxy.example"}, 422),
        ({"sec-fetch-site": "none"}, 422),
        ({"origin": "http://elsewhere.example"}, 403),
        ({"origin": "http://localhost:81"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost"}, 403),
    ],
)
def test_posts_of_other_sites_are_refused(client, headers, code):
    assert client.post(PATH, data={"model": "ngsan"}, headers=headers).status_code == code


@pytest.mark.parametrize(
    ("settings", "allowed", "refused"),
    [
        (
            {},
            "localhost:8000 LOCALHOST 127.0.0.1 [::1]:8000",
            "elsewhere.example 192.168.1.2 [ localhost.example localhost:80.elsewhere.example a@localhost localhost/",
        ),
        ({"allowed_hosts": ["Photos.example"]}, "photos.example:443 localhost", "elsewhere.example a.photos.example"),
        ({"host": "0.0.0.0"}, "192.168.1.2:8000 [fe80::1]:80 localhost", "elsewhere.example 1.2.3.4.example"),
        ({"host": "0.0.0.0", "allowed_hosts": ["*"]}, "elsewhere.example", ""),
    ],
)
def test_other_host_names_are_refused_unless_allowed(connect, settings, allowed, refused):
    client = connect(**settings)
    for host in allowed.split():
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    for host in refused.split():
        answer = client.get("/health", headers={"host": host})
        assert (answer.status_code, "--allowed-host" in answer.json()["detail"]) == (400, True), host


def test_fields_of_requests_are_described():
    assert all(field.get("description") for field in Settings.model_json_schema()["properties"].values())


def test_requests_set_what_the_server_leaves_open(served):
    pipeline = next(iter(served.values()))
    own = pipeline.captioner.generation_config

    def request(search: Overrides, **fields: object) -> Request:
        return Settings(**fields).request({"m": pipeline}, search)

    beams = {"beam_size": 4, "length_penalty": 0.7}
    assert request(beams) == Request("m", 1, own.replace(**beams))
    with pytest.raises(ConfigError, match="beam_size=4"):
        request(beams, num_captions=5)
    sampled = own.replace(beam_size=4, do_sample=True, temperature=0.5, seed=7)
    assert request(beams, temperature=0.5, seed=7).search == sampled
    samples = {"do_sample": True, "temperature": 0.5, "top_p": 0.9}
    assert request(samples, num_captions=6) == Request("m", 6, own.replace(**samples))
    assert request(samples, temperature=0.0).search == own.replace(do_sample=False)
