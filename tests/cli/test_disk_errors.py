"""A file-size limit, which acts as a full disk: one sentence, no crash, the old files kept."""

import errno
import subprocess
import sys

import numpy as np
import pytest

from legenda.cli.main import exit_code
from legenda.errors import DataError
from legenda.features import write_store
from legenda.training.loop import TrainingInterrupted

CHILD = """
import resource, sys
from pathlib import Path
from legenda.errors import DataError
from legenda.features.convert import convert
from legenda.models import create_model
from legenda.models.weights import save_weights
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for name in ("out.hdf5", "out.safetensors", "out"):
    try:
        convert([folder / "in.safetensors"], folder / name)
    except DataError as error:
        print(name, error, flush=True)
model = create_model("transformer", vocab_size=50, dim=32, num_heads=2, num_layers=1, ff_dim=32)
try:
    save_weights(model.state_dict(), folder)
except DataError as error:
    print("weights", error, flush=True)
"""


def test_nothing_is_left_half_written(tmp_path):
    features = np.random.default_rng(0).random((4, 64), dtype=np.float32)
    write_store(tmp_path / "in.safetensors", [(f"{n}", features, None) for n in range(40)], extractor="x")
    (tmp_path / "model.safetensors").write_text("the last good state")
    command = [sys.executable, "-B", "-c", CHILD, tmp_path, "0"]  # -B: Python would leave truncated bytecode
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    failed = [line.split()[0] for line in lines]
    assert failed == ["out.hdf5", "out.safetensors", "out", "weights"]
    assert all("could not be written" in line and "free some space" in line for line in lines)
    assert (tmp_path / "model.safetensors").read_text() == "the last good state"
    assert {path.name for path in tmp_path.iterdir()} == {"in.safetensors", "model.safetensors"}


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a.png"),
            2,
            "legenda caption: a.png could not be written (No",
        ),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), 2, "or set TMPDIR"),
        (MemoryError("Unable to allocate 7.28 TiB"), 2, "legenda caption: there is not enough memory; choose smaller"),
        (DataError("a sentence"), 2, "legenda caption: a sentence"),
        (KeyboardInterrupt(), 130, "stopped"),
        (TrainingInterrupted(15, "SIGTERM stopped training"), 143, "SIGTERM stopped training"),
    ],
)
def test_exit_codes(capsys, error, code, text):
    assert exit_code("caption", error) == code
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1
