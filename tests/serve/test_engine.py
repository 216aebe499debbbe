"""The queue of images: batches, failures, the memory budget, and stopping."""

import io
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra serve")

from conftest import png, scene
from legenda.errors import DataError
from legenda.pipeline import Pipeline
from legenda.runtime.settings import GenerationConfig
from legenda.serve import engine as engine_module
from legenda.serve.engine import LARGEST_IMAGES, MAX_WAITING, BusyError, Engine, Request

pytestmark = pytest.mark.usefixtures("one_thread")
PIXELS = scene().width * scene().height


class Gate:
    """A model whose extractor waits until the gate is open, at most 20 s; `entered` is set when it waits."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        extract = pipeline.extractor.extract

        def wait(images):
            self.entered.set()
            self.open.wait(20)
            return extract(images)

        self.models = {"ngsan": Pipeline(pipeline.captioner, replace(pipeline.extractor, extract=wait))}


@pytest.fixture
def gate(served):
    gate = Gate(served["ngsan"])
    yield gate
    gate.open.set()


@pytest.fixture
def count_decoded(monkeypatch) -> Callable[[], int]:
    """Return the number of decoded images that are in memory."""
    images: list[weakref.ref[Image.Image]] = []

    def read(*_: object) -> Image.Image:
        image = scene()
        images.append(weakref.ref(image))
        return image

    monkeypatch.setattr(engine_module, "read_image", read)
    return lambda: sum(image() is not None for image in images)


def file(number: int = 0) -> io.BytesIO:
    return io.BytesIO(png(scene(number)))


def test_images_are_captioned_in_batches_as_alone(served):
    with Engine(served) as engine:
        alone = [engine.submit(Request("ngsan"), file(number), "x").result(20) for number in range(6)]
        batches = engine.batches
        together = [engine.submit(Request("ngsan"), file(number), "x") for number in range(6)]
        assert [found.result(20).captions[0].text for found in together] == [found.captions[0].text for found in alone]
        assert engine.completed == 12
        assert engine.batches - batches < 6


def test_a_bad_image_does_not_affect_its_batch_and_is_named(gate):
    with Engine(gate.models) as engine:
        engine.submit(Request("ngsan"), file(), "first")
        assert gate.entered.wait(20)
        empty = Image.new("RGB", (64, 64), "white")
        found = [engine.submit(Request("ngsan"), data, "b.png") for data in (file(), io.BytesIO(png(empty)), file())]
        gate.open.set()
        assert found[0].result(20).captions[0].words == found[2].result(20).captions[0].words
        with pytest.raises(DataError, match=r"^b\.png"):
            found[1].result(20)


def test_an_error_that_is_its_own_cause_does_not_stop_the_decoding(served):
    """The refusal of many scans is raised again, while the error that names it as its cause is handled."""
    with Engine(served) as engine:
        scans = b"\xff\xd8" + b"\xff\xda\x00\x02" * 60
        refused = [engine.submit(Request("ngsan"), io.BytesIO(scans), "b.jpg") for _ in range(4)]
        for found in refused:
            with pytest.raises(DataError, match=r"^b\.jpg"):
                found.result(20)
        assert engine.submit(Request("ngsan"), file(), "a.png").result(20).captions


def test_samples_of_a_seed_do_not_depend_on_their_batch(gate):
    request = Request("ngsan", 2, GenerationConfig(do_sample=True, temperature=1.5))
    gate.open.set()
    with Engine(gate.models) as engine:
        alone = engine.submit(request, file(), "x").result(20)
        several = [engine.submit(request, file(), "x") for _ in range(3)]
        for found in several:
            assert [caption.text for caption in found.result(20).captions] == [c.text for c in alone.captions]


def test_decoded_pixels_are_bounded_also_after_their_requests_gave_up(gate, count_decoded):
    with Engine(gate.models, max_pixels=PIXELS) as engine:
        for _ in range(4):  # the requests of each round give up before the next one
            round_ = [engine.submit(Request("ngsan"), file(), "x") for _ in range(8)]
            assert gate.entered.wait(20)
            threading.Event().wait(0.05)
            assert count_decoded() <= LARGEST_IMAGES
            for found in round_:
                found.cancel()
        last = engine.submit(Request("ngsan"), file(), "x")
        gate.open.set()
        assert last.result(20).captions
        assert engine.free_pixels <= LARGEST_IMAGES * PIXELS
        threading.Event().wait(0.1)
        assert (engine.free_pixels, engine.waiting) == (LARGEST_IMAGES * PIXELS, 0)


def test_a_full_queue_refuses(gate):
    with Engine(gate.models, max_pixels=PIXELS) as engine:

        def fill() -> None:
            for _ in range(MAX_WAITING + 30):
                engine.submit(Request("ngsan"), file(), "x")

        with pytest.raises(BusyError):
            fill()
        assert engine.waiting == MAX_WAITING


def test_stopping_refuses_what_waits_and_finishes_what_is_at_work(gate):
    with Engine(gate.models) as engine:
        first = engine.submit(Request("ngsan"), file(), "x")
        assert gate.entered.wait(20)
        waiting = [engine.submit(Request("ngsan"), file(), "x") for _ in range(5)]
        engine.stop()
        for found in waiting:
            with pytest.raises(BusyError, match="stopping"):
                found.result(2)
        with pytest.raises(BusyError, match="stopping"):
            engine.submit(Request("ngsan"), file(), "x")
        gate.open.set()
        assert first.result(20).captions
    assert not any(thread.is_alive() for thread in engine._threads)
