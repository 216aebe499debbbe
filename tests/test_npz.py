"""NumPy's files: arrays, and files that would fill memory."""

import ast
import gzip
import io
import zipfile

import numpy as np
import pytest
import torch

from legenda.data.features.detections import DetectionStore
from legenda.data.features.open import open_features
from legenda.errors import DataError
from legenda.importers.load import read_tensors
from legenda.io import MAX_BYTES, read_json
from legenda.npz import load_arrays


def test_arrays_are_those_of_numpy(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), y=np.zeros(1 << 20))
    arrays = load_arrays(tmp_path / "a.npz")
    assert isinstance(arrays, dict)
    assert [arrays["x"].tolist(), arrays["y"].shape] == [[[0, 1, 2], [3, 4, 5]], (1 << 20,)]
    np.save(tmp_path / "a.npy", np.arange(3))
    assert load_arrays(tmp_path / "a.npy").tolist() == [0, 1, 2]


def test_headers_are_parsed_again_after_an_error_of_python(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    failures = [SystemError("AST constructor recursion depth mismatch (before=36, after=47)")] * 2
    parse = ast.literal_eval

    def parse_or_fail(header):
        if failures:
            raise failures.pop()
        return parse(header)

    monkeypatch.setattr("ast.literal_eval", parse_or_fail)
    with (tmp_path / "a.npz").open("rb") as file:
        assert load_arrays(file)["x"].tolist() == [0, 1, 2]
    failures += [SystemError("not of Python")] * 3
    with pytest.raises(SystemError):
        load_arrays(tmp_path / "a.npz")


def bomb(entries: int = 1, *, declared: int = MAX_BYTES + 1) -> bytes:
    """Return an .npz whose arrays of zeros are over the limit; `declared` forges the sizes in its directory."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(entries):
            file.writestr(f"{number}.npy", b"")
            file.filelist[-1].file_size = declared
    return content.getvalue()


@pytest.mark.parametrize("options", [{}, {"entries": 300, "declared": 1 << 20}])
def test_a_bomb_is_refused_before_it_is_decompressed(tmp_path, options):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1.npz").write_bytes(bomb(**options))
    with pytest.raises(DataError, match=r"image '1' cannot be read \(uncompressed it has .* MiB, .* over 20 times"):
        open_features(tmp_path / "folder").check()
    with pytest.raises(DataError, match=r"1\.npz cannot be read \(uncompressed"):
        DetectionStore(tmp_path / "folder" / "1.npz")


def test_gzipped_text_and_checkpoints_that_fill_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("legenda.io.MAX_BYTES", 1 << 20)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(
        DataError, match=r"a\.json\.gz cannot be read \(uncompressed it has over 1 MiB, which is over 20"
    ):
        read_json(tmp_path / "a.json.gz")
    torch.save({"weight": torch.zeros(1 << 20)}, tmp_path / "plain.pth")
    assert read_tensors(tmp_path / "plain.pth").keys() == {"weight"}
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, zipfile.ZipFile(tmp_path / "a.pth", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(DataError, match=r"a\.pth cannot be read \(uncompressed it has 4 MiB, which is over 20"):
        read_tensors(tmp_path / "a.pth")


def test_entries_that_are_no_arrays_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("boxes.npy", b"text")
    with pytest.raises(ValueError, match="boxes is no array"):
        load_arrays(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"a\.npz cannot be read .*; name an \.npz"):
        DetectionStore(tmp_path / "a.npz")
