"""Checkpoints of torch.save: what is read, and that hostile ones neither run code nor end the process."""

import subprocess
import sys
import zipfile

import pytest
import torch

from legenda.errors import DataError
from legenda.torch_pickle import load_checkpoint


class RunsCode:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return eval, ("[][0]",)


@pytest.mark.parametrize("archive", [True, False])
def test_checkpoints_of_training_are_read(tmp_path, archive):
    module = torch.nn.BatchNorm1d(3)
    content = {"model": module.state_dict(), "parameter": torch.nn.Parameter(torch.ones(2)), "epoch": 3, "lr": [0.1]}
    path = tmp_path / "last.pth"
    torch.save(content, path, _use_new_zipfile_serialization=archive)
    found = load_checkpoint(path, "give another")
    assert found["model"].keys() == module.state_dict().keys()
    assert (found["parameter"].tolist(), found["epoch"], found["lr"]) == ([1, 1], 3, [0.1])


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.filterwarnings("error")
def test_other_objects_are_one_sentence(tmp_path, archive):
    torch.save({"a": RunsCode()}, tmp_path / "last.pth", _use_new_zipfile_serialization=archive)
    with pytest.raises(DataError) as caught:
        load_checkpoint(tmp_path / "last.pth", "give another")
    reason = "cannot be read (it holds more than tensors, numbers and containers); give another"
    assert str(caught.value) == f"{tmp_path / 'last.pth'} {reason}"


_CHILD = """
import sys
from pathlib import Path
from legenda.errors import DataError
from legenda.torch_pickle import load_checkpoint
for path in map(Path, sys.argv[1:]):
    try:
        load_checkpoint(path, "give another")
    except DataError as error:
        print(error)
"""


def _archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_checkpoints_do_not_end_the_process(tmp_path):
    deep = b"\x80\x02}N" + b"\x85" * 500_000 + b"Ns."
    (tmp_path / "a.pth").write_bytes(deep)
    paths = [tmp_path / "a.pth", _archive(tmp_path / "b.pth", {"data.pkl": deep, "version": b"3\n"})]
    with zipfile.ZipFile(tmp_path / "d.pth", "w") as archive:
        archive.writestr("archive/data.pkl", deep)
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    paths += [_archive(tmp_path / "e.pth", {"DATA.PKL": deep, "version": b"3\n"}), tmp_path / "d.pth"]
    bomb = {"data.pkl": b"\x80\x02}.", "version": b"3\n", "data/0": bytes(300 << 20)}
    paths.append(_archive(tmp_path / "c.pth", bomb, zipfile.ZIP_DEFLATED))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *paths], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    reasons = [line.partition("(")[2].partition(")")[0] for line in done.stdout.splitlines()]
    assert reasons[:4] == ["its tuples are nested too deep"] * 4
    assert "uncompressed it has 300 MiB" in reasons[4]
