"""Kill commands at random moments, call them again until they are done, and compare what they wrote, bit for bit.

    python tests/fuzz/kills.py                                   # 100 kills of training, 30 of each other kind
    python tests/fuzz/kills.py --only train --kills 100 --seed 3
    python tests/fuzz/kills.py --only "captions in a file" --interrupt --kills 100

One in four kills is a SIGTERM, the others are SIGKILL. Every command runs in a fork of this process, which has imported
Legenda already, so that the signals strike its work and not its start; for the same reason Ray's cluster runs all the
time. Prints for each kind kills, runs, lost outputs and outputs with other bits than those of an uninterrupted call;
exit code 1 where there are any. With --interrupt, every call gets one SIGINT, as by Ctrl+C, and must end without a
traceback, a skipped image or partial files.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from tempfile import TemporaryDirectory

from outputs import contents, differences

TINY = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"
STAGE = "training.epochs=3 training.batch_size=4 training.eval_beam_size=1 training.checkpoint_every=2"
TRAIN = (
    f"train flickr8k.ngsan {TINY} model.geometry_dim=4 {STAGE} {STAGE.replace('training.', 'fine_tuning.')} "
    "training.precision=float32 fine_tuning.precision=float32 data.min_count=1 "
    "data.annotations={0}/c.csv data.features={0}/f.safetensors --out {1}/run"
)
TABLE = (
    f"table ngsan.table2 --scenes --rows none in --beam-size 1 {TINY} {STAGE.replace('epochs=3', 'epochs=1')} "
    "data.train=12 data.validation=3 data.test=6 --out {1}/table"
)
_JOB = "{{0}}/images --shard-size 4 --batch-size 2 --workers 2 --engine {}"


@dataclass(frozen=True)
class Kind:
    """What is killed: the command, with {0} for the inputs and {1} for the outputs; prepare writes the inputs."""

    command: str
    prepare: Callable[[Path], None]
    done: str = "\0"
    """What a further call says where the killed one had written all."""


def captioned(folder: Path) -> None:
    """Write captions in a table, and features."""
    from subjects import regions, sentence, write_files, write_packed

    rows = [f"{n}.jpg,{sentence(n)},{'train' if n < 12 else 'val'}" for n in range(16)]
    write_files(folder, {"c.csv": "\n".join(["file,caption,split", *rows])})
    write_packed(folder / "f.safetensors", regions(16))


def drawn(folder: Path, count: int = 150) -> None:
    """Write scenes as PNG."""
    from legenda.data.scenes import draw_scene, make_scene

    (folder / "images").mkdir(parents=True)
    for number in range(count):
        draw_scene(make_scene("fresh", number)).save(folder / "images" / f"{number:03d}.png")


def stored(folder: Path) -> None:
    """Write a store of many features."""
    from subjects import regions, write_packed

    write_packed(folder / "f.safetensors", regions(1500))


def released(folder: Path) -> None:
    """Write weights and words of a release."""
    import numpy as np

    folder.mkdir(parents=True)
    with np.load(Path(__file__).parents[1] / "importers" / "data" / "abl_base.npz") as arrays:
        weights = {name[3:]: arrays[name] for name in arrays.files if name.startswith("sd/")}
    np.savez(folder / "model.npz", **weights)
    (folder / "words.txt").write_text("\n".join([*(f"w{number}" for number in range(49)), "UNK"]) + "\n")


def scaled(folder: Path) -> None:
    """Write scenes and a run that captions them."""
    drawn(folder, 24)
    Fork(
        f"train scenes.ngsan --out {folder}/run {TINY} model.geometry_dim=4 training.epochs=1 "
        "training.batch_size=4 training.eval_beam_size=1 data.train=12 data.validation=3".split()
    ).wait()


KINDS = {
    "train": Kind(TRAIN, captioned),
    "extract": Kind(
        "extract {0}/images --extractor scenes --batch-size 4 --shard-size 8 --out {1}/f.safetensors", drawn
    ),
    "convert": Kind("convert {0}/f.safetensors {1}/f.hdf5", stored),
    "convert to a folder": Kind("convert {0}/f.safetensors {1}/f", stored),
    "table": Kind(TABLE, lambda folder: folder.mkdir(parents=True)),
    "job": Kind(f"caption {_JOB.format('local')} --model {{0}}/run --out {{1}}/captions", scaled),
    "pool": Kind(f"caption {_JOB.format('pool')} --model {{0}}/run --out {{1}}/captions", scaled),
    "ray": Kind(f"caption {_JOB.format('ray')} --model {{0}}/run --out {{1}}/captions", scaled),
    "import": Kind(
        "import aoanet {0}/model.npz --vocabulary {0}/words.txt --out {1}/new", released, "holds a run already"
    ),
    "export": Kind("export {0}/run --format torch --out {1}/exported", scaled),
    "attention": Kind("caption {0}/images --model {0}/run --batch-size 4 --save-attention {1}/sheets", scaled),
    "captions in a file": Kind("caption {0}/images --model {0}/run --batch-size 4 --out {1}/captions.csv", scaled),
    "extract by a pool": Kind(f"extract {_JOB.format('pool')} --extractor scenes --out {{1}}/f.safetensors", scaled),
}


class Fork:
    """A fork of this process that runs one command."""

    def __init__(self, arguments: list[str]) -> None:
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(arguments)

    def _run(self, arguments: list[str]) -> None:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore in the background
            log = os.open(os.environ["KILLS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for target in (1, 2):
                os.dup2(log, target)
            from legenda.cli.main import main

            try:
                main(arguments)
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds: float = 3600) -> int | None:
        """Return the exit code, that of a signal negative; None where it still runs after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                return None
            time.sleep(0.002)


def campaign(name: str, kills: int, random: Random, folder: Path) -> Counter[str]:
    """Kill one kind of command so many times; return the signals, the runs, and those lost or different."""
    kind, counts = KINDS[name], Counter[str]()
    inputs = folder / "inputs"
    kind.prepare(inputs)
    for turn in range(2):  # the first call compiles and fills caches
        expected_folder = folder / f"expected{turn}"
        expected_folder.mkdir()
        reference = Fork(arguments(kind, inputs, expected_folder))
        code = reference.wait()
        if code != 0:
            raise SystemExit(f"{name} fails without a kill ({code}):\n{log()}")
        duration = time.monotonic() - reference.began
    expected = contents(expected_folder)
    print(f"{name}: {duration:.2f} s without a kill, {len(expected)} files", flush=True)
    while counts["SIGKILL"] + counts["SIGTERM"] < kills:
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        counts["runs"] += 1
        if not run_killed(arguments(kind, inputs, out), duration, random, counts, kills, kind.done):
            counts["lost"] += 1
        elif (found := contents(out)) != expected:
            counts["different"] += 1
            print(f"{name}: different: {differences(expected, found)}", flush=True)
        print(f"{name}: {dict(counts)}", flush=True)
    return counts


def interrupt(name: str, count: int, random: Random, folder: Path) -> Counter[str]:
    """Interrupt so many calls of one kind of command; return how they ended, and those that ended badly as "lost"."""
    kind, counts = KINDS[name], Counter[str]()
    inputs = folder / "inputs"
    kind.prepare(inputs)
    reference = Fork(arguments(kind, inputs, folder / "whole"))
    if (code := reference.wait()) != 0:
        raise SystemExit(f"{name} fails without an interrupt ({code}):\n{log()}")
    duration = time.monotonic() - reference.began
    for number in range(count):
        out = folder / str(number)
        running = Fork(arguments(kind, inputs, out))
        code = running.wait(random.uniform(0, duration))
        if code is None:
            os.kill(running.pid, signal.SIGINT)
            code = running.wait()
        counts["SIGINT" if code == 128 + signal.SIGINT else f"code {code}"] += 1
        left = [path.name for path in out.parent.rglob("*.partial")]
        text = log()
        if (
            code not in (0, 128 + signal.SIGINT)
            or left
            or re.search(r"Traceback|Error|already executing|[1-9]\d* (of \d+ )?skipped", text)
        ):
            counts["lost"] += 1
            print(f"{name}: {code}, {left}: {text}", flush=True)
        shutil.rmtree(out, ignore_errors=True)
        print(f"{name}: {dict(counts)}", flush=True)
    return counts


def run_killed(
    command: list[str], duration: float, random: Random, counts: Counter[str], kills: int, done: str = "\0"
) -> bool:
    """Call a command until it is done, killed each time at a random moment; return whether it ended well."""
    for _ in range(40):
        running = Fork(command)
        number = signal.SIGTERM if random.random() < 0.25 else signal.SIGKILL
        left = counts["SIGKILL"] + counts["SIGTERM"] < kills
        code = running.wait(random.uniform(0, duration) if left else 3600)
        if code is None:
            os.kill(running.pid, number)
            code = running.wait()
            if code is not None and code != 0:
                counts[number.name] += 1
                if number == signal.SIGKILL and code != -number:
                    print(f"ended with {code} after signal {number}: {log()}", flush=True)
                    return False
                continue
        if code == 0 or (code == 2 and done in log()):
            return True
        print(f"ended with {code}: {log()}", flush=True)
        return False
    print("not done after 40 kills", flush=True)
    return False


def arguments(kind: Kind, inputs: Path, out: Path) -> list[str]:
    """Return the command line with its inputs and outputs."""
    return [part.format(inputs, out) for part in kind.command.split()]


def log() -> str:
    """Return the end of what the last command printed."""
    return Path(os.environ["KILLS_LOG"]).read_text(errors="replace")[-2000:]


@contextmanager
def cluster() -> Iterator[None]:
    """Run a cluster of Ray that RAY_ADDRESS names, unless it names one already."""
    if "RAY_ADDRESS" in os.environ:
        yield
        return
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(settings)
    code = "import ray, sys; print(ray.init(num_cpus=2, include_dashboard=False).address_info['address'], flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    os.environ["RAY_ADDRESS"] = process.stdout.readline().strip()
    try:
        yield
    finally:
        for name in (*settings, "RAY_ADDRESS"):
            del os.environ[name]
        process.stdin.close()
        process.wait()


def import_all(folder: Path) -> None:
    """Import and compile what the commands need, which forks then have."""
    import torch

    torch.set_num_threads(1)
    captioned(folder / "warm")
    from legenda.cli.main import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(TRAIN.format(folder / "warm", folder / "warm").replace("epochs=3", "epochs=1").split())


def main() -> int:
    """Kill all kinds, or one, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS, help="one kind of command")
    parser.add_argument("--kills", type=int, help="kills of each kind (default: 100 of train, 30 of the others)")
    parser.add_argument("--interrupt", action="store_true", help="interrupt each call once, instead of killing it")
    parser.add_argument("--seed", type=int, help="of the moments (default: a random one, which is printed)")
    options = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed = False
    with TemporaryDirectory(prefix="legenda-kills-") as parent:
        os.environ["KILLS_LOG"] = f"{parent}/log.txt"
        import_all(Path(parent))
        for name in KINDS if options.only is None else [options.only]:
            folder = Path(parent, name.replace(" ", "-"))
            folder.mkdir()
            kills = options.kills or (100 if name == "train" else 30)
            with cluster() if name == "ray" else nullcontext():
                end = interrupt if options.interrupt else campaign
                counts = end(name, kills, Random(f"{seed} {name}"), folder)
            failed |= bool(counts["lost"] or counts["different"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
