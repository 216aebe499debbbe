"""Captions by workers of Ray on this machine, of which one is killed, and a driver that is killed and called again."""

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

from legenda.datasets.captions import ScenesData
from legenda.datasets.scenes import draw_scene, make_scene
from legenda.errors import UserError
from legenda.extractors import load_extractor
from legenda.scale.ray_engine import Work, caption_shards, start_ray
from legenda.scale.shards import open_job

EXTRACTOR = '''
"""The extractor of scenes, but the first to see the narrow picture kills the process that it runs in."""

import os
import signal
import time
from pathlib import Path

from legenda.datasets.scenes import extract as scenes

HERE = Path(__file__).parent

def extract(pictures):
    with (HERE / "seen.txt").open("a") as seen:
        seen.write(f"{os.getpid()} {len(pictures)}\\n")
    if (HERE / "slow").exists():
        time.sleep(0.5)
    if (HERE / "deadly").exists() and any(picture.width < 320 for picture in pictures):
        (HERE / "deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return scenes(pictures)
'''
PICTURES, SHARD = 24, 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two processors of this machine under Ray, whose workers do not give way to other programs."""
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        start_ray(workers=2)
        yield
        ray.shutdown()


@pytest.fixture
def scenes(make_run, tmp_path) -> str:
    """24 pictures, one of them narrower than the rest and one broken, and the options that caption them."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(PICTURES):
        picture = draw_scene(make_scene("fresh", number))
        side = 160 if number == 9 else 320
        picture.resize((side, side)).save(folder / f"{number:02d}.png")
    (folder / "20.png").write_text("no picture")
    file = tmp_path / "deadly.py"
    file.write_text(EXTRACTOR)
    run = make_run("ngsan", ScenesData(train=40, validation=2), extractor=load_extractor(file).name)
    return (
        f"caption {folder} --model {run} --extractor {file} --engine ray --workers 2 --shard-size {SHARD} "
        f"--batch-size 3 --out {tmp_path / 'out'}"
    )


def check_whole(folder: Path) -> None:
    """Each picture stands once in the shards, the broken one with its reason, and nothing else is left."""
    files = sorted(folder.glob("captions-*.jsonl"))
    assert len(files) == PICTURES // SHARD
    entries = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert set(Counter(Path(entry["file"]).name for entry in entries).items()) == {
        (f"{number:02d}.png", 1) for number in range(PICTURES)
    }
    assert [Path(entry["file"]).name for entry in entries if "error" in entry] == ["20.png"]
    assert all(entry["captions"][0]["caption"] for entry in entries if "captions" in entry)
    assert not list(folder.glob(".*"))


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_in_a_shard_is_replaced(scenes, run_command, tmp_path):
    (tmp_path / "deadly").touch()
    code, out, err = run_command(scenes)
    assert not (tmp_path / "deadly").exists()  # it was killed
    assert len({line.split()[0] for line in (tmp_path / "seen.txt").read_text().splitlines()}) >= 2
    check_whole(tmp_path / "out")
    assert code == 2
    assert "24 pictures in 4 shards" in out
    assert "1 of them broken; 24 by this call" in out
    assert "1 of 24 pictures could not be captioned" in err


@pytest.mark.usefixtures("cluster")
def test_a_driver_that_is_killed_is_called_again(scenes, run_command, tmp_path):
    import ray

    out = tmp_path / "out"
    (tmp_path / "slow").touch()
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    driver = subprocess.Popen(
        [sys.executable, "-m", "legenda", *scenes.split()], env=environment, stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("captions-*.jsonl")):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    (tmp_path / "slow").unlink()
    there = {path: path.stat().st_ino for path in out.glob("captions-*.jsonl")}
    assert 0 < len(there) < PICTURES // SHARD
    code, said, _ = run_command(scenes)
    assert code == 2
    assert " 24 by this call" not in said
    assert {path: path.stat().st_ino for path in there} == there  # not written again
    check_whole(out)


@pytest.mark.usefixtures("cluster")
def test_a_mistake_that_a_worker_finds_is_told_in_one_sentence(scenes, tmp_path):
    job = open_job(tmp_path / "out", [scenes.split()[1]], {}, shard_size=SHARD, allow_urls=False)
    work = Work(job, tmp_path / "no-such-run", None, 3, 1, 3)
    with pytest.raises(UserError, match="no-such-run"):
        list(caption_shards(work, 2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--out {0} --format json", "leave out --format"),
        ("--out {0} --workers 0", "--workers and --shard-size"),
        ("--out {0}/a.png", "needs a folder"),
        ("", "name a folder"),
    ],
)
def test_what_does_not_go_with_ray_is_told(run_command, tmp_path, options, said):
    (tmp_path / "a.png").touch()
    code, out, err = run_command(f"caption {tmp_path} --model none --engine ray", options.format(tmp_path))
    assert (code, out) == (2, "")
    assert said in err


def test_without_ray_its_extra_is_named(run_command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    code, _, err = run_command(f"caption {tmp_path} --model none --engine ray --out {tmp_path / 'out'}")
    assert code == 2
    assert "pip install 'legenda[ray]'" in err
