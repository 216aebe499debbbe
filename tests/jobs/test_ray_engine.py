"""Captioning and extraction with Ray on this machine: a worker is killed; a driver is killed and called again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from legenda.data.captions import ScenesData
from legenda.data.features import open_features
from legenda.data.scenes import draw_scene, make_scene
from legenda.errors import LegendaError
from legenda.extractors import load_extractor
from legenda.jobs.captions import CaptionWork
from legenda.jobs.job import open_job
from legenda.jobs.ray_engine import process_shards, start_ray
from legenda.search_options import SearchOptions

EXTRACTOR = '''
"""The extractor of scenes; the first call with the narrow image kills its process."""

import os
import signal
import time
from pathlib import Path

from legenda.data.scenes import extract as extract_scenes

HERE = Path(__file__).parent

def extract(images):
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(f"{os.getpid()} {len(images)}\\n")
    if (HERE / "slow").exists():
        time.sleep(0.5)
    if (HERE / "deadly").exists() and any(image.width < 320 for image in images):
        (HERE / "deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return extract_scenes(images)
'''
IMAGES, SHARD_SIZE = 24, 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray with two CPUs of this machine; workers run at normal priority."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        start_ray(workers=2)
        yield
        ray.shutdown()


@pytest.fixture
def images(tmp_path) -> Path:
    """A folder of 24 images, one of them narrower than the rest and one damaged; writes the extractor's file, too."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(IMAGES):
        image = draw_scene(make_scene("fresh", number))
        side = 160 if number == 9 else 320
        image.resize((side, side)).save(folder / f"{number:02d}.png")
    (folder / "20.png").write_text("not an image")
    (tmp_path / "deadly.py").write_text(EXTRACTOR)
    return folder


def with_ray(folder: Path) -> str:
    """Return the options of both commands."""
    return (
        f"--extractor {folder / 'deadly.py'} --engine ray --workers 2 --shard-size {SHARD_SIZE} --batch-size 3 "
        f"--out {folder / 'out'}"
    )


@pytest.fixture
def scenes(images, make_run, tmp_path) -> str:
    """The command that captions the images."""
    name = load_extractor(tmp_path / "deadly.py").name
    run = make_run("ngsan", ScenesData(train=40, validation=2), extractor=name)
    return f"caption {images} --model {run} {with_ray(tmp_path)}"


def check_output(folder: Path, kind: str = "captions") -> None:
    """Check that each image is in the shards once, the damaged one with an error, and that no other files remain."""
    files = sorted(folder.glob(f"{kind}-*.jsonl"))
    assert len(files) == IMAGES // SHARD_SIZE
    entries = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert set(Counter(Path(entry["image"]).name for entry in entries).items()) == {
        (f"{number:02d}.png", 1) for number in range(IMAGES)
    }
    assert [Path(entry["image"]).name for entry in entries if "error" in entry] == ["20.png"]
    assert all(entry["captions"][0]["caption"] for entry in entries if "captions" in entry)
    assert sum(kind in entry or "regions" in entry for entry in entries) == IMAGES - 1
    assert not list(folder.glob(".*"))


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_is_replaced(scenes, run_command, tmp_path):
    (tmp_path / "deadly").touch()
    code, out, err = run_command(scenes)
    assert not (tmp_path / "deadly").exists()  # it was killed
    assert len({line.split()[0] for line in (tmp_path / "calls.txt").read_text().splitlines()}) >= 2
    check_output(tmp_path / "out")
    assert code == 2
    assert "24 images in 4 shards" in out
    assert "1 of them failed; 24 by this call" in out
    assert "1 of 24 images could not be captioned" in err


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_killed_driver_is_resumed(scenes, run_command, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "slow").touch()
    kill_at_the_first_shard(scenes, "captions-*.jsonl", out)
    (tmp_path / "slow").unlink()
    complete = {path: path.stat().st_ino for path in out.glob("captions-*.jsonl")}
    assert 0 < len(complete) < IMAGES // SHARD_SIZE
    code, output, _ = run_command(scenes)
    assert code == 2
    assert " 24 by this call" not in output
    assert {path: path.stat().st_ino for path in complete} == complete  # not written again
    check_output(out)


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_worker_is_raised_by_the_driver(scenes, tmp_path):
    job = open_job(tmp_path / "out", [scenes.split()[1]], {}, shard_size=SHARD_SIZE, allow_urls=False)
    work = CaptionWork(
        job=job, run=tmp_path / "no-such-run", extractor=None, device="auto", precision="float32",
        search=SearchOptions(), num_captions=1, batch_size=3, flags={},
    )  # fmt: skip
    with pytest.raises(LegendaError, match="no-such-run"):
        list(process_shards(work, 2))


@pytest.mark.usefixtures("cluster")
def test_compile_reaches_the_decoder_of_a_worker(scenes, run_command):
    """bf16 is computed with packed weights on a CPU, which are not compiled."""
    code, _, err = run_command(f"{scenes} --device cpu --precision bf16 --compile")
    assert code == 2
    assert "compiled steps compute in float32 on the CPU; leave compile or bf16 out" in err


def kill_at_the_first_shard(command: str, pattern: str, folder: Path) -> None:
    """Run a command with the cluster of this process, and kill it when the folder holds a file of the pattern."""
    import ray

    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    driver = subprocess.Popen(
        [sys.executable, "-m", "legenda", *command.split()], env=environment, stderr=subprocess.PIPE, text=True
    )
    while not list(folder.glob(pattern)):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_an_extraction_whose_driver_and_worker_are_killed_equals_an_undisturbed_one(images, run_command, tmp_path):
    out, command = tmp_path / "out", f"extract {images} {with_ray(tmp_path)}"
    (tmp_path / "slow").touch()
    kill_at_the_first_shard(command, "features-*.jsonl", out)
    (tmp_path / "slow").unlink()
    assert 0 < len(list(out.glob("features-*.jsonl"))) < IMAGES // SHARD_SIZE
    with pytest.raises(LegendaError, match=r"of 4 shards; call legenda extract again"):
        open_features(out)
    for path in out.glob("features-00000001.*"):  # the shard of the image at which the worker is killed
        path.unlink()
    (tmp_path / "deadly").touch()
    complete = {path: path.stat().st_ino for path in out.glob("features-*.jsonl")}
    code, output, err = run_command(command)
    assert not (tmp_path / "deadly").exists()
    assert code == 2
    assert "1 of 24 images could not be extracted" in err
    assert " 24 by this call" not in output or not complete
    assert {path: path.stat().st_ino for path in complete} == complete  # not written again
    check_output(out, "features")
    local = tmp_path / "local.safetensors"
    command = f"extract {images} --extractor {tmp_path / 'deadly.py'} --batch-size 3 --out {local}"
    assert run_command(command)[0] == 0
    first, second = open_features(out), open_features(local)
    assert (first.ids, first.extractor) == (second.ids, second.extractor)
    for attribute in ("features", "boxes", "mask"):
        assert (getattr(first.read(first.ids), attribute) == getattr(second.read(first.ids), attribute)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out {0} --workers 0", "--workers must be at least 1, not 0"),
        ("--out {0} --device cpu,cpu", "--engine ray assigns the GPUs itself"),
        ("--out {0}/b.json", "needs a folder"),
        ("--out {0}/out --num-regions 36", "the extractor scenes has no choice of 36 regions"),
        ("", "name a folder"),
    ],
)
def test_options_of_an_extraction_are_rejected(run_command, tmp_path, options, message):
    for name in ("a.png", "b.json"):
        (tmp_path / name).touch()
    code, out, err = run_command(f"extract {tmp_path} --extractor scenes --engine ray", options.format(tmp_path))
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out {0} --format json", "leave out --format"),
        ("--out {0} --workers 0", "--workers must be at least 1, not 0"),
        ("--out {0}/b.json", "needs a folder"),
        ("", "name a folder"),
    ],
)
def test_options_that_ray_does_not_support_are_rejected(run_command, tmp_path, options, message):
    for name in ("a.png", "b.json"):
        (tmp_path / name).touch()
    code, out, err = run_command(f"caption {tmp_path} --model none --engine ray", options.format(tmp_path))
    assert (code, out) == (2, "")
    assert message in err


def test_without_ray_the_extra_is_named(run_command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    for command in (f"caption {tmp_path} --model none", f"extract {tmp_path} --extractor scenes"):
        code, _, err = run_command(f"{command} --engine ray --out {tmp_path / 'out'}")
        assert code == 2
        assert "pip install '.[ray]'" in err
