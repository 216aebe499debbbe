"""Extraction with a user's Python file into a feature store."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.data.features import PackedFeatureStore
from legenda.errors import LegendaError
from legenda.extractors import Extractor, extract_store, load_extractor
from legenda.extractors.registry import EXTRACTORS

COLORS = '''
"""Each image's mean color, of the image and of its halves."""
import numpy as np

def extract(images):
    given = []
    for image in images:
        pixels = np.asarray(image, np.float32) / 255
        middle = pixels.shape[1] // 2
        halves = [pixels, pixels[:, :middle], pixels[:, middle:]]
        boxes = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1], [0.5, 0, 1, 1]])
        given.append((np.stack([half.mean((0, 1)) for half in halves]), boxes))
    return given
'''


@pytest.fixture
def images(tmp_path) -> list[Path]:
    """Seven images, red from 0 to 180 on the left and blue 90 on the right."""
    paths = []
    for number in range(7):
        pixels = np.zeros((4, 6, 3), np.uint8)
        pixels[:, :3, 0], pixels[:, 3:, 2] = number * 30, 90
        paths.append(tmp_path / "images" / f"p{number}.png")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(paths[-1])
    return paths


def write_extractor(folder: Path, source: str = COLORS, name: str = "colors.py") -> Path:
    (folder / name).write_text(source)
    return folder / name


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_a_python_file_extracts_a_store(tmp_path, images, batch_size):
    steps: list[tuple[int, int]] = []
    report = extract_store(
        images,
        load_extractor(write_extractor(tmp_path)),
        tmp_path / "f.safetensors",
        batch_size=batch_size,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert (report.images, report.skipped) == (7, ())
    assert report.seconds > 0
    assert steps == [(min(first + batch_size, 7), 7) for first in range(0, 7, batch_size)]
    store = PackedFeatureStore(tmp_path / "f.safetensors")
    assert store.ids == tuple(path.stem for path in images)
    read = store.read(["p6", "p2"])
    expected = np.array([[90, 0, 45], [180, 0, 0], [0, 0, 90]]) / 255
    np.testing.assert_allclose(read.features[0], expected, rtol=2**-11)
    np.testing.assert_allclose(read.features[1, 1], [60 / 255, 0, 0], rtol=2**-11)
    assert read.boxes is not None
    assert read.boxes[1].tolist() == [[0, 0, 1, 1], [0, 0, 0.5, 1], [0.5, 0, 1, 1]]


def test_the_name_changes_with_the_file(tmp_path):
    first = load_extractor(write_extractor(tmp_path))
    assert load_extractor(write_extractor(tmp_path)).name == first.name
    second = load_extractor(write_extractor(tmp_path, COLORS + "\n# changed\n"))
    assert first.name.startswith("colors-")
    assert first.name != second.name


def test_loading_writes_no_files(tmp_path):
    load_extractor(write_extractor(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["colors.py"]


def test_a_file_may_define_dataclasses(tmp_path):
    source = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Mean:
    x: int

def extract(images): return [Mean(1)]
"""
    (mean,) = load_extractor(write_extractor(tmp_path, source)).extract([])
    assert repr(mean) == "Mean(x=1)"


def no_regions(images: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
    return [(np.ones((1, 2)), None) for _ in images]


@pytest.mark.usefixtures("forget_plugins")
def test_registered_extractors_are_found_by_name(tmp_path, images):
    EXTRACTORS.add("ones", lambda model, **_: Extractor(f"ones{model}", no_regions))
    extractor = load_extractor("ones")
    extract_store(images, extractor, tmp_path / "f.safetensors")
    store = PackedFeatureStore(tmp_path / "f.safetensors")
    assert (store.extractor, store.has_boxes, store.feature_dim) == ("ones", False, 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import a_module_nobody_has", "fails while it is loaded .*No module named 'a_module_nobody_has'"),
        ("def extract(:", "fails while it is loaded .SyntaxError"),
        ("raise SystemExit(3)", "fails while it is loaded .SystemExit: 3"),
        ("x = 1 / 0", "fails while it is loaded .ZeroDivisionError"),
        ("def extrakt(images): return []", r"defines no function extract\(images\)"),
        ("extract = 3", "defines no function extract"),
        ("\0", "fails while it is loaded"),
    ],
)
def test_a_file_that_fails_raises_one_sentence(tmp_path, source, message):
    with pytest.raises(LegendaError, match=rf"mine\.py {message}") as error:
        load_extractor(write_extractor(tmp_path, source, "mine.py"))
    assert "\n" not in str(error.value)


def test_a_missing_file_raises_with_the_registered_names(tmp_path):
    with pytest.raises(
        LegendaError, match=r"absent\.py cannot be read .*one of: bottom-up, hf, photo, scenes, torchvision"
    ):
        load_extractor(tmp_path / "absent.py")


def test_unreadable_images_are_skipped_and_reported(tmp_path, images):
    images[0].write_text("no image")
    images[4].write_bytes(images[4].read_bytes()[:50])
    extractor = load_extractor(write_extractor(tmp_path))
    report = extract_store(images, extractor, tmp_path / "f.safetensors", batch_size=1)
    assert report.images == 5
    assert [path for path, _ in report.skipped] == [images[0], images[4]]
    assert all(path.name in reason for path, reason in report.skipped)
    assert PackedFeatureStore(tmp_path / "f.safetensors").ids == ("p1", "p2", "p3", "p5", "p6")


def test_only_unreadable_images_raise(tmp_path, images):
    for path in images:
        path.write_text("no image")
    with pytest.raises(LegendaError, match=r"none of the 7 images can be read; the first: .*p0\.png"):
        extract_store(images, Extractor("ones", no_regions), tmp_path / "f.safetensors")
    assert not (tmp_path / "f.safetensors").exists()


def test_duplicate_ids_raise_before_extraction(tmp_path, images):
    other = tmp_path / "others" / "p3.jpg"

    def unused(_: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
        raise AssertionError("called")

    with pytest.raises(LegendaError, match=r"p3\.png and .*others/p3\.jpg would share the id 'p3'"):
        extract_store([*images, other], Extractor("unused", unused), tmp_path / "f.safetensors")


def test_batch_size_0_raises(tmp_path, images):
    with pytest.raises(LegendaError, match="batch_size is 0"):
        extract_store(images, Extractor("ones", no_regions), tmp_path / "f.safetensors", batch_size=0)


REGIONS = np.ones((2, 3))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, r"mine-1, called with 3 images \(p0.png to p2.png\), returned a NoneType; it must return a list"),
        ([(REGIONS, None)] * 2, r"returned a list of 2; it must return a list with one entry per image"),
        ([REGIONS] * 3, r"returned \(ndarray\) for p0.png"),
        ([(REGIONS, None), (REGIONS.tolist(), None), (REGIONS, None)], r"returned \(list, NoneType\) for p1.png"),
        ([(REGIONS, None, None)] * 3, r"returned \(ndarray, NoneType, NoneType\) for p0.png"),
        ([(np.ones(3), None)] * 3, r"mine-1, .* returned features of shape \(3,\), .* for p0\.png; correct it"),
        ([(REGIONS, np.ones((2, 3)))] * 3, r"mine-1, .* returned boxes of shape \(2, 3\) for 2 regions for p0\.png"),
        ([(REGIONS * np.nan, None)] * 3, r"mine-1, .* returned features that are NaN or infinite for p0\.png"),
        ([(REGIONS, None), (REGIONS[:0], None), (REGIONS, None)], r"at least one region is needed for p1\.png"),
        ([(REGIONS, np.full((2, 4), 3.0))] * 3, r"the box \[3\.0, .*\], which leaves 0\.\.1 for p0\.png"),
        ([(REGIONS, np.full((2, 4), 0.5))] * 3, r"the box \[0\.5, .*\], which is empty .* for p0\.png"),
        ([(REGIONS, None), (np.ones((2, 4)), None), (REGIONS, None)], r"image 'p1' of extractor mine-1 has .*width 4"),
    ],
)
def test_invalid_regions_raise(tmp_path, images, result, message):
    extractor = Extractor("mine-1", lambda images: result if len(images) == 3 else [])
    with pytest.raises(LegendaError, match=message):
        extract_store(images, extractor, tmp_path / "f.safetensors", batch_size=3)
    assert not (tmp_path / "f.safetensors").exists()


@pytest.mark.parametrize("fault", [OSError("no weights"), RuntimeError("out of memory\nmore lines")])
def test_a_failing_extractor_raises_with_the_reason(tmp_path, images, fault):
    def extract(_: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
        raise fault

    reason = f"{type(fault).__name__}: {str(fault).splitlines()[0]}"
    with pytest.raises(LegendaError, match=rf"mine-1, called with 7 images .* failed \({reason}\)"):
        extract_store(images, Extractor("mine-1", extract), tmp_path / "f.safetensors")


def test_extractors_receive_rgb_images(tmp_path):
    Image.new("L", (5, 4), 9).save(tmp_path / "gray.png")
    seen: list[tuple[str, tuple[int, int]]] = []

    def extract(images: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
        seen.extend((image.mode, image.size) for image in images)
        return no_regions(images)

    extract_store([str(tmp_path / "gray.png")], Extractor("mine-1", extract), tmp_path / "f.safetensors")
    assert seen == [("RGB", (5, 4))]


def test_images_are_extracted_by_size_and_stored_in_order(tmp_path):
    sizes = [(4, 3), (3, 4), (4, 3), (5, 5), (3, 4), (4, 3)]
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path, size in zip(paths, sizes, strict=True):
        Image.new("RGB", size).save(path)
    seen: list[list[tuple[int, int]]] = []

    def extract(images: list[Image.Image]) -> list[tuple[np.ndarray, None]]:
        seen.append([image.size for image in images])
        return [(np.array([image.size]), None) for image in images]

    extract_store(paths, Extractor("mine-1", extract), tmp_path / "f.safetensors", batch_size=3)
    assert seen == [[(3, 4), (3, 4), (4, 3)], [(4, 3), (4, 3), (5, 5)]]
    store = PackedFeatureStore(tmp_path / "f.safetensors")
    assert [tuple(store.read([name]).features[0, 0]) for name in "012345"] == sizes
