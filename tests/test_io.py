"""Atomic writes, locks, and reading with errors of one sentence."""

import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from legenda.errors import DataError
from legenda.io import (
    FORMAT_VERSION,
    atomic_write,
    check_format,
    check_writable,
    locked,
    read_json,
    read_text,
    write_json,
    write_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_and_json_round_trip(tmp_path):
    write_text(tmp_path / "new" / "folder" / "a.txt", "ein Körbchen 犬\n")
    assert read_text(tmp_path / "new" / "folder" / "a.txt") == "ein Körbchen 犬\n"
    write_json(tmp_path / "b.json", {"word": "犬", "numbers": [1, 2.5, None]})
    assert read_json(tmp_path / "b.json") == {"word": "犬", "numbers": [1, 2.5, None]}
    assert "犬" in (tmp_path / "b.json").read_text(encoding="utf-8")


def test_the_file_is_replaced_on_exit_only(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert partial.parent == tmp_path  # a rename within one file system is atomic
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("failure", [ValueError("a bug"), KeyboardInterrupt(), DataError("a mistake")])
@pytest.mark.parametrize("before", ["old", None])
def test_an_exception_leaves_no_partial_file(tmp_path, failure, before):
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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "")
        assert os.umask(mask) == mask  # the umask of the process is unchanged
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode


def test_writing_in_threads_leaves_the_umask_as_it_is(tmp_path, monkeypatch):
    umask = os.umask
    before = umask(0o027)

    def switch_thread_after(mask):
        previous = umask(mask)
        time.sleep(1e-4)
        return previous

    monkeypatch.setattr("os.umask", switch_thread_after)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: write_text(tmp_path / f"{number}.txt", ""), range(200)))
        assert umask(before) == 0o027
    finally:
        umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"No such file or directory"),
        (b"\xff\xfe\x00", "is not a UTF-8 text file"),
        (b'{\n "a": 1,\n', r"is not valid JSON \(line 3"),
        (b"[" * 200_000 + b"]" * 200_000, "holds JSON that is nested too deep"),
        (b'{"image_id": ' + b"1" * 310 + b"}", "holds a number that is NaN, infinite or of too many digits"),
        (b'{"score": NaN}', "holds a number that is NaN"),
        (b'{"score": [-1e999]}', "holds a number that is NaN"),
    ],
)
def test_damaged_json_raises_with_the_hint(tmp_path, content, message):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_json(path, "write it again")
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("; write it again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("exists", [True, False])
def test_the_file_of_a_symbolic_link_is_written_and_the_link_stays(tmp_path, exists):
    target, link = tmp_path / "disk" / "a.json", tmp_path / "link.json"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    with locked(link):
        assert [path.name for path in target.parent.iterdir() if path.name.startswith(".")] == [".a.json.lock"]
        write_json(link, 1)
    assert link.is_symlink()
    assert target.read_text() == "1\n"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(("name", "as_file"), [("file/out.json", False), ("file/a/b", False), ("folder", True)])
def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path, name, as_file):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "new" / "out.json")
    with pytest.raises(DataError, match="folder"):
        check_writable(tmp_path / name, as_file=as_file)
    with pytest.raises(DataError, match="no regular file"):
        check_writable(tmp_path / "pipe")


HOLD = """
import sys, time
from legenda.io import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.usefixtures("holder")
def test_one_process_writes_at_a_time(tmp_path):
    with pytest.raises(DataError, match="run is being written by another process"), locked(tmp_path / "run"):
        raise AssertionError
    with locked(tmp_path / "other"):
        pass


def test_the_lock_of_a_killed_process_does_not_count(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".run.lock").exists()
    with locked(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [2, 0, "1", True, 1.0, [1]])
def test_files_of_other_formats_are_refused_with_the_version_they_need(tmp_path, version):
    check_format(tmp_path, None, None)
    check_format(tmp_path, FORMAT_VERSION, "9.9")
    with pytest.raises(DataError, match=r"legenda>=7\.1" if version == 2 else "which is none"):
        check_format(tmp_path, version, "7.1")
