"""LMDB data bases, whole and damaged, against liblmdb's own answers."""

import io
import random
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import lmdb
import numpy as np
import pytest

from legenda.data.features.lmdb_file import LmdbFile
from legenda.data.features.open import open_features
from legenda.errors import DataError


def npy(value: float = 1.0) -> bytes:
    content = io.BytesIO()
    np.save(content, np.full((3, 8), value, np.float32))
    return content.getvalue()


def write(path: Path, entries: dict[bytes, bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, subdir=False, lock=False) as base, base.begin(write=True) as writing:
        for key, value in entries.items():
            writing.put(key, value)
    return path


@pytest.mark.parametrize("count", [0, 1, 3, 4000])
def test_entries_are_those_of_liblmdb(tmp_path, count):
    random.seed(count)
    entries = {f"{random.random()}".encode(): random.randbytes(random.choice([0, 9, 900, 9000])) for _ in range(count)}
    path = write(tmp_path / "a.lmdb", entries)
    removed = sorted(entries)[::3]
    with lmdb.open(str(path), map_size=1 << 26, subdir=False, lock=False) as base, base.begin(write=True) as writing:
        for key in removed:
            writing.delete(key)
            del entries[key]
    found = LmdbFile(path)
    assert found.keys == tuple(sorted(entries))
    assert {key: found.get(key) for key in found.keys} == entries


def test_a_file_cut_anywhere_is_refused_and_never_ends_the_process(tmp_path):
    entries = {f"{number}".encode(): npy() * 20 for number in range(40)}
    whole = write(tmp_path / "a.lmdb", entries).read_bytes()
    cut, refused = tmp_path / "cut.lmdb", 0
    for size in range(0, len(whole), len(whole) // 40):
        cut.write_bytes(whole[:size])
        try:
            found = LmdbFile(cut)
        except ValueError as error:
            refused += str(error) == "it is truncated"
        else:
            assert {key: found.get(key) for key in found.keys} == entries  # what is missing is unused
    assert refused > 30
    cut.write_bytes(whole[:20_000])
    with pytest.raises(DataError, match=r"cut\.lmdb cannot be read \(it is truncated\); name an LMDB data base"):
        open_features(cut)


def test_a_file_cut_while_it_is_open_is_refused(tmp_path):
    path = write(tmp_path / "a.lmdb", {f"{number}".encode(): npy() for number in range(100)})
    store = open_features(path)
    store.check()
    path.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(DataError, match=r"image '99' cannot be read \(it is truncated\)"):
        store.read(["99"])


def test_damaged_pages_are_refused_or_read_without_a_crash(tmp_path):
    whole = write(tmp_path / "a.lmdb", {f"{number:05}".encode(): npy() * 8 for number in range(300)}).read_bytes()
    damaged = tmp_path / "damaged.lmdb"
    for seed in range(150):
        random.seed(seed)
        content = bytearray(whole)
        for _ in range(20):
            content[random.randrange(min(len(content), 1 << 16))] = random.randrange(256)
        damaged.write_bytes(content)
        with suppress(DataError):
            open_features(damaged).read([0])


def test_inner_pages_that_form_a_circle_are_refused(tmp_path):
    path = write(tmp_path / "a.lmdb", {f"{number:05}".encode(): b"" for number in range(4000)})
    content = bytearray(path.read_bytes())
    root = max((int.from_bytes(content[start + 144 : start + 152], "little"), start) for start in (0, 4096))[1]
    page = 4096 * int.from_bytes(content[root + 128 : root + 136], "little")
    node = page + int.from_bytes(content[page + 16 : page + 18], "little")
    content[node : node + 6] = (page // 4096).to_bytes(6, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match="its pages form a circle"):
        open_features(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ((b"1", b"1.npy"), "holds 1 and 1.npy for one image; name an LMDB"),
        ((b"1", b"\xff\xfe"), r"cannot be read \('utf-8' codec can't decode .*\); name an LMDB"),
    ],
)
def test_keys_that_name_no_image_or_one_twice_are_refused(tmp_path, keys, message):
    path = write(tmp_path / "a.lmdb", dict.fromkeys(keys, npy()))
    with pytest.raises(DataError, match=message):
        open_features(path)


def read_first(store) -> float:
    return float(store.read([0]).features.sum())


def test_a_store_is_read_in_the_process_that_opened_it_and_in_a_fork(tmp_path):
    store = open_features(write(tmp_path / "a.lmdb", {b"1": npy()}))
    again = open_features(tmp_path / "a.lmdb")
    assert read_first(store) == read_first(again) == 24
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        assert pool.submit(read_first, again).result(20) == 24
