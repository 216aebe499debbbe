"""Extractors of a user's Python file: their names, what is wrong with the file, and with what it returns."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.errors import DataError, LegendaError
from legenda.extractors import Extractor, load_extractor, run_extractor

SOURCE = '''
"""The mean color of an image."""
from __future__ import annotations
from dataclasses import dataclass
import numpy as np

@dataclass
class Mean:
    color: np.ndarray

def extract(images):
    means = [Mean(np.asarray(image, np.float32).mean((0, 1))) for image in images]
    return [(mean.color[None], np.array([[0, 0, 1, 1]])) for mean in means]
'''
RED = Image.new("RGB", (5, 4), (200, 0, 0))


def write(folder: Path, source: str) -> Path:
    (folder / "mine.py").write_text(source)
    return folder / "mine.py"


def test_a_file_extracts_and_its_name_changes_with_it(tmp_path):
    extractor = load_extractor(write(tmp_path, SOURCE))
    ((features, boxes),) = run_extractor(extractor, [RED], ["a.png"])
    assert features.tolist() == [[200, 0, 0]]
    assert boxes is not None
    assert extractor.name.startswith("mine@")
    assert load_extractor(write(tmp_path, SOURCE)).name == extractor.name
    assert load_extractor(write(tmp_path, SOURCE + "\n# changed\n")).name != extractor.name
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import a_module_nobody_has", "fails while it is loaded .*No module named 'a_module_nobody_has'"),
        ("def extrakt(images): return []", r"defines no function extract\(images\)"),
    ],
)
def test_a_file_that_fails_raises_one_sentence(tmp_path, source, message):
    with pytest.raises(LegendaError, match=rf"mine\.py {message}") as error:
        load_extractor(write(tmp_path, source))
    assert "\n" not in str(error.value)


class OddError(BaseException):
    def __str__(self) -> str:
        raise ValueError


def test_an_error_of_any_class_is_one_sentence():
    def fail(_: object) -> list:
        raise OddError

    with pytest.raises(DataError, match=r"mine-1.*OddError"):
        run_extractor(Extractor("mine-1", fail), [RED], ["a.png"])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, r"mine-1, called with 2 images \(a.png to b.png\), returned a NoneType; it must return a list"),
        ([(np.ones((1, 2)), None)], "returned a list of 1"),
        ([None] * 2, r"returned \(NoneType\) for a.png; it must return a pair"),
        ([(np.full((1, 3), np.nan), None)] * 2, "NaN or infinite for a.png; correct it"),
    ],
)
def test_results_that_are_no_regions_raise(result, message):
    with pytest.raises(DataError, match=message):
        run_extractor(Extractor("mine-1", lambda _: result), [RED, RED], ["x/a.png", "x/b.png"])
