"""Limits of `legenda serve`: pixels, formats, the queue, requests per minute, time, and memory."""

import gc
import io
import struct
import threading
import weakref
import zlib
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice

import pytest
from image_requests import png, post, scene
from PIL import Image

from legenda.pipeline import GeneratedCaption

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("multipart", reason="needs the extra serve")
from fastapi.testclient import TestClient

from legenda.search_options import SearchOptions
from legenda.serve.app import create_app
from legenda.serve.engine import MAX_QUEUED, BusyError, Engine, LoadedModel, Request
from legenda.serve.limits import WAITING_IMAGES, Limits, RateLimiter

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_rate_limit_returns_429(served):
    with TestClient(create_app(served, {}, Limits(per_minute=3), SearchOptions())) as client:
        answers = [post(client, png(scene())) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert "too many requests from this address; try again in" in answers[3].json()["detail"]
        assert int(answers[3].headers["retry-after"]) >= 1
        assert client.get("/health").status_code == 200


def test_the_rate_limiter_refills_evenly_for_each_address():
    now = [0.0]
    rate = RateLimiter(6, clock=lambda: now[0])
    assert [rate.admit("a") for _ in range(7)] == [0] * 6 + [10]
    assert rate.admit("b") == 0
    now[0] = 10.0
    assert [rate.admit("a"), rate.admit("a")] == [0, 10]


def test_a_full_queue_raises_and_is_processed(served):
    gate = threading.Event()
    engine = Engine(_gated(served, gate))
    futures: list[Future[list[GeneratedCaption]]] = []

    def fill() -> None:
        for _ in range(1000):
            futures.append(engine.submit(Request("ngsan"), scene(), "x"))

    with pytest.raises(BusyError):
        fill()
    assert len(futures) >= MAX_QUEUED
    assert futures[-1].cancel()  # a cancelled request does not affect the others
    gate.set()
    engine.close()
    assert all(answer.result(0) for answer in futures[:-1])


def _header_of_png(width: int, height: int) -> bytes:
    """Return a PNG that says its size and holds no pixels."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    )
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@pytest.mark.parametrize("size", [(10_000, 5_001), (30_000, 30_000)])
def test_too_many_pixels_are_refused_by_the_header(client, size):
    answer = post(client, _header_of_png(*size), name="big.png")
    assert (answer.status_code, answer.json()["detail"]) == (413, "big.png has more than 50 megapixels; scale it down")


def test_other_formats_than_those_of_photographs_are_not_opened(client):
    data = io.BytesIO()
    Image.new("RGB", (9, 9)).save(data, "EPS")  # Pillow would start Ghostscript
    answer = post(client, data.getvalue(), name="a.eps")
    assert (answer.status_code, "a.eps is not an image of a known type" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    "options", [{"format": "TIFF", "compression": "tiff_lzw"}, {"format": "GIF"}, {"format": "WEBP"}]
)
def test_formats_of_photographs_are_read_from_small_and_large_uploads(served, options):
    data = io.BytesIO()
    scene().save(data, **options)
    with TestClient(create_app(served, {}, Limits(), SearchOptions())) as client:
        small = post(client, data.getvalue())
        large = post(client, data.getvalue() + bytes(2_000_000))  # above 1 MB an upload is written to disk
    assert small.status_code == large.status_code == 200
    assert large.json()["captions"] == small.json()["captions"]


def _gated(served, gate: threading.Event) -> dict[str, LoadedModel]:
    """Return a model that waits for the gate, at most 20 s."""
    extract = served["ngsan"].extractor.extract

    def slow(images: list[Image.Image]):
        gate.wait(20)
        return extract(images)

    return {"ngsan": LoadedModel(served["ngsan"].run, replace(served["ngsan"].extractor, extract=slow))}


def test_the_pixels_that_wait_are_bounded(served):
    gate, image = threading.Event(), scene()
    limits = Limits(max_pixels=image.width * image.height)
    with (
        TestClient(create_app(_gated(served, gate), {}, limits, SearchOptions())) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = [pool.submit(post, client, png(image)) for _ in range(8)]
        refused = list(islice(as_completed(answers, timeout=20), 8 - WAITING_IMAGES))
        gate.set()
        assert [answer.result().status_code for answer in refused] == [503] * len(refused)
        assert all(int(answer.result().headers["retry-after"]) >= 1 for answer in refused)
        served_ones = [answer.result() for answer in answers if answer not in refused]
        assert [answer.status_code for answer in served_ones] == [200] * WAITING_IMAGES
        assert post(client, png(image)).status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(served):
    gate = threading.Event()
    with TestClient(create_app(_gated(served, gate), {}, Limits(answer_timeout=0.2), SearchOptions())) as client:
        answer = post(client, png(scene()))
        gate.set()
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "the captions took longer than 0.2 s; try again later",
    )


def test_images_are_released_when_answered(served):
    engine = Engine(served)
    gc.disable()  # the collector must not be needed
    try:
        for fails in (False, True, False):
            image, released = Image.new("RGB", (9, 9)) if fails else scene(), threading.Event()
            weakref.finalize(image, released.set)
            future = engine.submit(Request("ngsan"), image, "x")
            del image
            assert (future.exception(20) is not None) == fails
            assert released.wait(5)
    finally:
        gc.enable()
        engine.close()
