"""One job in this process, in a pool and by Ray: equal files, and what is killed or fails is repeated or reported."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from command_results import error_of, everything_in
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.extractors import load_extractor
from legenda.jobs.engine import ray_cluster
from legenda.models import packing

EXTRACTOR = '''
"""The extractor of scenes; the first call with the narrow image kills its process."""

import os
import signal
import time
from pathlib import Path

from legenda.data.scenes import find_things

HERE = Path(__file__).parent

def extract(images):
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(f"{os.getpid()}\\n")
    if (HERE / "slow").exists():
        time.sleep(0.3)
    if (HERE / "deadly").exists() and any(image.width < 320 for image in images):
        (HERE / "deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return [find_things(image) for image in images]
'''
IMAGES = 12
pytestmark = pytest.mark.usefixtures("as_workers")


@pytest.fixture(scope="module")
def as_workers() -> Iterator[None]:
    """The process computes as its workers do, or the last digits of scores would differ: it has two threads, one for
    each worker, and packs wide layers alone, as users' processes do.
    """
    threads, min_numel = torch.get_num_threads(), packing.MIN_NUMEL
    torch.set_num_threads(2)
    packing.MIN_NUMEL = 2**18
    yield
    torch.set_num_threads(threads)
    packing.MIN_NUMEL = min_numel


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray with two CPUs of this machine; workers run at normal priority."""
    pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        with ray_cluster(2):
            yield


@pytest.fixture(params=["pool", pytest.param("ray", marks=pytest.mark.slow)])
def engine(request) -> str:
    """An engine of several processes."""
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


@pytest.fixture
def images(tmp_path) -> Path:
    """A folder of images, one of them narrower than the rest and one damaged; writes the extractor's file, too."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(IMAGES):
        side = 160 if number == 5 else 320
        draw_scene(make_scene("fresh", number)).resize((side, side)).save(folder / f"{number:02d}.png")
    (folder / "08.png").write_text("not an image")
    (tmp_path / "mine.py").write_text(EXTRACTOR)
    return folder


@pytest.fixture
def commands(images, make_run, tmp_path) -> dict[str, str]:
    """The commands of both kinds of jobs."""
    options = f"--extractor {tmp_path / 'mine.py'} --device cpu --workers 2 --shard-size 3 --batch-size 2"
    run = make_run(
        "ngsan", ScenesData(train=40, validation=2), extractor=load_extractor(tmp_path / "mine.py").identity.to_json()
    )
    return {"captions": f"caption {images} --model {run} {options}", "features": f"extract {images} {options}"}


@pytest.mark.parametrize("kind", [pytest.param("captions", marks=pytest.mark.slow), "features"])
def test_an_engine_writes_the_files_of_this_process(commands, run_command, tmp_path, kind, engine):
    folders = {name: tmp_path / name for name in ("local", engine)}
    for name, out in folders.items():
        code, output, err = run_command(f"{commands[kind]} --engine {name} --out {out}")
        assert code == 2
        assert "12 images in 4 shards" in output
        assert "1 of 12 images could not be" in err
    found = [everything_in(out) for out in folders.values()]
    assert len([name for name in found[0] if name.startswith(f"{kind}-")]) == (4 if kind == "captions" else 8)
    assert found[0] == found[1]


def test_a_worker_that_is_killed_is_replaced(commands, run_command, tmp_path, engine):
    run_command(f"{commands['features']} --out {tmp_path / 'expected.safetensors'}")
    (tmp_path / "deadly").touch()
    (tmp_path / "calls.txt").unlink()
    code, out, _ = run_command(f"{commands['features']} --engine {engine} --out {tmp_path / 'f.safetensors'}")
    assert not (tmp_path / "deadly").exists()  # it was killed
    assert len(set((tmp_path / "calls.txt").read_text().split()) - {str(os.getpid())}) >= 2
    assert code == 2
    assert "f.safetensors: 11 images by mine@" in out
    assert (tmp_path / "f.safetensors").read_bytes() == (tmp_path / "expected.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("engine", ["local", "pool", "ray"])
def test_a_killed_driver_is_resumed_and_its_workers_end(commands, run_command, tmp_path, engine):
    import ray

    run_command(f"{commands['features']} --out {tmp_path / 'expected'}")
    (tmp_path / "calls.txt").unlink()
    (tmp_path / "slow").touch()
    out, command = tmp_path / "out", f"{commands['features']} --engine {engine} --out {tmp_path / 'out'}"
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    driver = subprocess.Popen(
        [sys.executable, "-m", "legenda", *command.split()], env=environment, stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("features-*.jsonl")):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    if engine == "pool":
        workers = {Path(f"/proc/{process}") for process in (tmp_path / "calls.txt").read_text().split()}
        deadline = time.monotonic() + 20
        while any(process.exists() for process in workers - {Path(f"/proc/{os.getpid()}")}):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    (tmp_path / "slow").unlink()
    complete = {path: path.stat().st_ino for path in out.glob("features-*.jsonl")}
    assert 0 < len(complete) < 4
    assert run_command(command)[0] == 2
    assert {path: path.stat().st_ino for path in complete} == complete  # not written again
    assert everything_in(out) == everything_in(tmp_path / "expected")


def test_an_error_of_a_worker_reaches_the_caller(commands, run_command, tmp_path, engine):
    """bf16 is computed with packed weights on a CPU, which are not compiled; Ray may print a line about its task."""
    command = f"{commands['captions']} --engine {engine} --out {tmp_path / 'out'} --precision bf16 --compile"
    code, out, err = run_command(command)
    printed = "".join(line for line in out.splitlines(keepends=True) if "(raylet)" not in line)
    assert "bf16" in error_of((code, printed, err))
