"""An extractor in two processes, which stand for two devices."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.compute import ComputeOptions
from legenda.errors import DataError
from legenda.extractors import ExtractorProcesses, extract_store, load_extractor

EXTRACTOR = '''
"""Mean colors; notes its process, may wait for a second one, may be slow or killed."""

import os
import signal
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent

def extract(images):
    if images[0].width == 320:  # the test image of fingerprints
        return [(np.ones((1, 3)), np.array([[0, 0, 1, 1]]))]
    (HERE / f"process-{os.getpid()}").touch()
    while (HERE / "together").exists() and len(list(HERE.glob("process-*"))) < 2:
        time.sleep(0.02)
    if (HERE / "slow").exists():
        time.sleep(0.2)
    if (HERE / "deadly").exists():
        (HERE / "deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return [(np.asarray(image, np.float32).mean((0, 1))[None], np.array([[0, 0, 1, 1]])) for image in images]
'''
CPUS = [ComputeOptions(device="cpu")] * 2


@pytest.fixture
def images(tmp_path) -> list[Path]:
    """Nine images, of which one is damaged, and the file of the extractor in the folder above."""
    (tmp_path / "colors.py").write_text(EXTRACTOR)
    (tmp_path / "images").mkdir()
    paths = [tmp_path / "images" / f"{number}.png" for number in range(9)]
    for number, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)).save(path)
    paths[4].write_text("no image")
    return paths


def processes(folder: Path) -> set[int]:
    """Return the processes that have run the extractor."""
    return {int(path.name.removeprefix("process-")) for path in folder.glob("process-*")}


def test_two_processes_write_the_file_of_one(images, tmp_path, run_command):
    extract_store(images, load_extractor(tmp_path / "colors.py"), tmp_path / "one.safetensors", batch_size=2)
    for process in tmp_path.glob("process-*"):
        process.unlink()
    (tmp_path / "together").touch()
    code, out, err = run_command(
        f"extract {tmp_path / 'images'} --extractor {tmp_path / 'colors.py'} --device cpu,cpu --batch-size 2 "
        f"--out {tmp_path / 'two.safetensors'}"
    )
    assert code == 0, err
    assert "two.safetensors: 8 images by colors-" in out
    assert "1 skipped" in out
    assert "4.png is not an image of a known type" in err
    assert (tmp_path / "two.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()
    assert len(processes(tmp_path) - {os.getpid()}) == 2  # each waited for the other


@pytest.mark.slow
def test_a_killed_process_is_reported_and_the_extraction_resumed(images, tmp_path):
    out, arguments = tmp_path / "f.safetensors", {"batch_size": 1, "shard_size": 1}
    with ExtractorProcesses(str(tmp_path / "colors.py"), CPUS) as extractor:
        (tmp_path / "deadly").touch()
        with pytest.raises(DataError, match="a process of the extractor was killed; call the same command again"):
            extract_store(images, extractor, out, **arguments)
    assert not out.exists()
    with ExtractorProcesses(str(tmp_path / "colors.py"), CPUS) as extractor:
        assert extract_store(images, extractor, out, **arguments).images == 8


@pytest.mark.slow
def test_an_extractor_that_cannot_be_loaded_is_named(run_command, images, tmp_path):
    folder, out_file = images[0].parent, tmp_path / "f"
    for extractor, message in [
        ("gone.py", "gone.py cannot be read (No such file or directory)"),
        ("scenes@36regions", "the extractor scenes has no choice of 36 regions"),
    ]:
        code, out, err = run_command(f"extract {folder} --extractor {extractor} --device cpu,cpu --out {out_file}")
        assert (code, out) == (2, "")
        assert err.startswith(f"legenda extract: {message}")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpu,gpu", "device must be auto, cpu, cuda, cuda:N or mps, not 'gpu'"),
        ("cpu,cuda:99", "the device cuda:99 does not exist"),
    ],
)
def test_devices_that_do_not_exist_are_named(run_command, device, message):
    code, out, err = run_command(f"extract . --extractor scenes --device {device}")
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.slow
def test_processes_end_with_a_parent_that_is_killed(images, tmp_path):
    (tmp_path / "slow").touch()
    (tmp_path / "together").touch()
    command = f"extract {images[0].parent} --extractor {tmp_path / 'colors.py'} --device cpu,cpu --batch-size 1"
    parent = subprocess.Popen(
        [sys.executable, "-m", "legenda", *command.split(), "--out", str(tmp_path / "f")], stderr=subprocess.DEVNULL
    )
    while len(processes(tmp_path)) < 2:
        assert parent.poll() is None
        time.sleep(0.02)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{process}").exists() for process in processes(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
