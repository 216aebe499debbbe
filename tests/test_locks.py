"""Locks: one writer at a time; what a killed process leaves does not count."""

import signal
import subprocess
import sys

import pytest

from legenda.errors import DataError
from legenda.io import locked

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


@pytest.mark.parametrize("path", [".", ""])
def test_a_path_without_a_name_is_locked(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with locked(path):
        assert len([*tmp_path.iterdir()]) == 1


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


def test_one_process_cannot_take_a_lock_twice(tmp_path):
    with locked(tmp_path / "run"):
        with pytest.raises(DataError, match="another process"), locked(tmp_path / "run"):
            raise AssertionError
        assert (tmp_path / ".run.lock").exists()
    with locked(tmp_path / "run"):
        pass


def test_only_leftovers_of_the_same_name_are_removed(tmp_path):
    mine, others = tmp_path / ".run.abcd1234.partial", tmp_path / ".run.json.abcd1234.partial"
    mine.touch()
    others.touch()
    with locked(tmp_path / "run"):
        assert not mine.exists()
        assert others.exists()
