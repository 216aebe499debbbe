"""Atomic files, pickles of plain data, and errors of one sentence."""

import collections
import json
import os
import pickle
import stat

import pytest

from legenda.errors import UserError
from legenda.io import atomic_write, read_json, read_plain_pickle, read_text, verified, write_json, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_and_json_come_back(tmp_path):
    write_text(tmp_path / "new" / "folder" / "a.txt", "ein Körbchen 犬\n")
    assert read_text(tmp_path / "new" / "folder" / "a.txt") == "ein Körbchen 犬\n"
    write_json(tmp_path / "b.json", {"word": "犬", "numbers": [1, 2.5, None]})
    assert read_json(tmp_path / "b.json") == {"word": "犬", "numbers": [1, 2.5, None]}
    assert "犬" in (tmp_path / "b.json").read_text(encoding="utf-8")


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert partial.parent == tmp_path  # a rename within one file system is atomic
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_a_reader_that_has_opened_the_old_file_reads_it_to_its_end(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old"  # the file was replaced, not overwritten
    assert path.read_text() == "new"


@pytest.mark.parametrize("failure", [ValueError("a bug"), KeyboardInterrupt(), UserError("a mistake")])
@pytest.mark.parametrize("before", ["old", None])
def test_nothing_is_left_when_the_body_raises(tmp_path, failure, before):
    path = tmp_path / "a.txt"
    if before is not None:
        write_text(path, before)

    def write_half():
        with atomic_write(path) as partial:
            partial.write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        write_half()
    assert names(tmp_path) == ([] if before is None else ["a.txt"])
    if before is not None:
        assert path.read_text() == before


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path):
    with (
        pytest.raises(UserError, match=r"a\.txt could not be written \(No space left"),
        atomic_write(tmp_path / "a.txt"),
    ):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_an_ordinary_file(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "")
        assert os.umask(mask) == mask  # the process's own mask is untouched
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "folder").write_text("no folder")
    with pytest.raises(UserError, match=r"folder/a\.txt could not be written .*; .*another folder"):
        write_text(tmp_path / "folder" / "a.txt", "text")
    assert (tmp_path / "folder").read_text() == "no folder"


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UserError, match=r"a\.txt could not be written"):
        write_text(tmp_path / "a.txt", "text")
    assert names(tmp_path) == ["a.txt"]


def test_what_cannot_be_json_writes_nothing(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, r"No such file or directory"),
        (b"\xff\xfe\x00", "is not a UTF-8 text file"),
        (b'{\n "a": 1,\n', r"is not valid JSON \(line 3"),
        (b"", "is not valid JSON"),
    ],
)
def test_a_damaged_json_file_is_told_with_its_remedy(tmp_path, content, told):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read_json(path, "write it again")
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("; write it again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (FileNotFoundError(2, "No such file or directory"), "x.bin does not exist; copy it"),
        (ValueError("bad header\nand a long tale"), r"x.bin cannot be read \(bad header\); copy it"),
        (EOFError(), r"x.bin cannot be read \(EOFError\); copy it"),
    ],
)
def test_a_reader_that_fails_is_told(failure, told):
    def read():
        raise failure

    with pytest.raises(UserError, match=f"^{told}$"):
        verified(read, "x.bin", "copy it")


def test_a_reader_that_succeeds_gives_its_value():
    assert verified(lambda: json.loads("[1]"), "x.bin", "copy it") == [1]


_PYTHON_2 = b"(lp0\n(dp1\nS'raw'\np2\nS'the dog'\np3\nsS'id'\np4\nL12L\nsa."
"""What Python 2 writes at protocol 0 for [{'raw': 'the dog', 'id': 12L}]."""


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_data_of_every_protocol(tmp_path, protocol):
    content = [{"a": 1, "b": [2.5, None, True, "é"]}, (frozenset({3}), {4}, 10**30)]
    path = tmp_path / "plain.p"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_plain_pickle(path, "give plain data") == content


def test_what_python_2_writes(tmp_path):
    (tmp_path / "refs.p").write_bytes(_PYTHON_2)
    assert read_plain_pickle(tmp_path / "refs.p", "give plain data") == [{"raw": "the dog", "id": 12}]


class Call:
    """What a hostile pickle does when it is run."""

    def __reduce__(self):
        return eval, ("[][0]",)


@pytest.mark.parametrize("content", [Call(), [{"deep": Call()}], collections.OrderedDict(a=1), len, object()])
def test_anything_else_is_refused(tmp_path, content):
    path = tmp_path / "refs.p"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"refs\.p cannot be read \(it holds .* no plain data .*; give plain data"):
        read_plain_pickle(path, "give plain data")


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"garbage"])
def test_a_broken_pickle(tmp_path, content):
    (tmp_path / "refs.p").write_bytes(content)
    with pytest.raises(UserError, match=r"refs\.p cannot be read"):
        read_plain_pickle(tmp_path / "refs.p", "give plain data")
