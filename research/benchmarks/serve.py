"""How the server holds under load: requests at once, how long they wait, and the memory of the server.

    python research/benchmarks/serve.py runs/demo/ngsan
    python research/benchmarks/serve.py --requests 1000 --burst 200

starts `legenda serve` on a free port of this machine, sends requests from 8 clients, 50 each, over up to 400 scenes,
and prints how many answers were lost or differ from those of the scene sent alone, how long they took, and how far the
memory of the server grew after the first 500 (Linux). Then `--burst` requests are sent at the same time: each must be
answered with captions or 503. Without a run folder, an NG-SAN as large as that of scenes.ngsan is served with random
weights; it never ends a sentence early, so it takes longer than a trained one; --tiny serves a smaller one. Exit code 1
where anything is lost or wrong, or where the memory grew by more than 30 MB.
"""

import http.client
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from legenda.config import to_json
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.models import create_model
from legenda.papers import get_recipe


@dataclass(frozen=True)
class Options:
    """Asks a served model from many clients at once."""

    run: tyro.conf.Positional[Path | None] = None
    """A run folder of scenes; without it a model with random weights."""
    clients: int = 8
    """How many ask at the same time, each one request after the other."""
    requests: int = 50
    """How often each of them asks."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""
    burst: int = 0
    """Requests that are sent at the same time afterwards."""
    tiny: bool = False
    """Serve a model of 16 dimensions and one layer."""
    threads: int | None = None
    """Threads of the server (OMP_NUM_THREADS); by default torch's choice."""


@dataclass(frozen=True)
class Asked:
    """One request: the seconds until its answer and the words, or what went wrong."""

    seconds: float
    words: tuple[str, ...] | None
    problem: str = ""
    status: int = 0


_IMAGES, _WARM_UP, _MAX_GROWTH_MB = 400, 500, 30
_TINY = {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16}


def main(options: Options) -> int:
    """Prints what was measured; the exit code."""
    with tempfile.TemporaryDirectory(prefix="legenda-load-") as folder:
        run = options.run or save_untrained(Path(folder) / "ngsan", _TINY if options.tiny else {})
        with serve(run, options.threads) as (address, process):
            failed = report(options, *measure(options, address, process))
            return report_burst(options, address) or failed


def save_untrained(folder: Path, smaller: dict[str, int]) -> Path:
    """A run folder of scenes.ngsan before any training."""
    recipe = get_recipe("scenes.ngsan")
    data = ScenesData(train=400, validation=2)  # enough to have all words
    opened = data.open(lambda _: None)
    options = {
        "vocab_size": len(opened.vocabulary),
        "feature_dim": opened.feature_dim,
        **recipe.model_overrides,
        **smaller,
    }
    model = create_model(recipe.model, **options)
    model.vocabulary = opened.vocabulary
    return model.save(folder, recipe=recipe.name, data=to_json(data, folder), extractor="scenes")


@contextmanager
def serve(run: Path, threads: int | None) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; gives its address and the number of the process, and ends it."""
    environment = dict(os.environ) if threads is None else {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "legenda", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://(\S+)", line)
        if not found:
            raise SystemExit(f"the server did not start; it printed {line!r}")
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait()


def measure(options: Options, address: str, process: int) -> tuple[list[Asked], list[Asked], float, list[float]]:
    """Each image sent alone, then all by all clients at once, the seconds of the latter, and the MB of the server."""
    count = options.clients * options.requests
    images = [image(number) for number in range(min(count, _IMAGES))]
    alone = [ask(address, data, options.beam_size) for data in images]
    memory: list[float] = []

    def send(number: int) -> Asked:
        if number % 50 == 0:
            memory.append(resident_megabytes(process))
        return ask(address, images[number % len(images)], options.beam_size)

    began = time.monotonic()
    with ThreadPoolExecutor(options.clients) as pool:
        together = list(pool.map(send, range(count)))
    seconds = time.monotonic() - began
    memory.append(resident_megabytes(process))
    return alone, together, seconds, memory


def resident_megabytes(process: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def image(number: int) -> bytes:
    """A scene as PNG."""
    data = io.BytesIO()
    draw_scene(make_scene("load", number)).save(data, "PNG")
    return data.getvalue()


def ask(address: str, data: bytes, beam_size: int) -> Asked:
    """One request over a connection of its own."""
    mark = uuid.uuid4().hex
    fields = f'--{mark}\r\nContent-Disposition: form-data; name="beam_size"\r\n\r\n{beam_size}\r\n'
    head = f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="scene.png"\r\n\r\n'
    form = fields.encode() + head.encode() + data + f"\r\n--{mark}--\r\n".encode()
    connection = http.client.HTTPConnection(address, timeout=60)
    began = time.monotonic()
    try:
        connection.request("POST", "/api/captions", form, {"Content-Type": f"multipart/form-data; boundary={mark}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Asked(time.monotonic() - began, None, str(error))
    finally:
        connection.close()
    seconds = time.monotonic() - began
    if answer.status != 200:
        return Asked(seconds, None, str(body.get("detail")), answer.status)
    return Asked(seconds, tuple(body["captions"][0]["words"]), status=200)


def report(options: Options, alone: list[Asked], together: list[Asked], seconds: float, memory: list[float]) -> int:
    """Prints the measurement; 1 where anything is lost or wrong, or the memory grows."""
    lost = [asked.problem for asked in (*alone, *together) if asked.words is None]
    wrong = sum(asked.words != alone[number % len(alone)].words for number, asked in enumerate(together))
    print(f"{len(together)} requests of {options.clients} clients, beam {options.beam_size}, {os.cpu_count()} cores")
    for name, asked in (("one after the other", alone), ("at once", together)):
        print_times(name, asked)
    print(f"{len(together) / seconds:.1f} answers a second at once; lost {len(lost)}, not as alone {wrong}")
    for problem in sorted(set(lost)):
        print(f"  {problem}")
    warm = memory[max(0, _WARM_UP - len(alone)) // 50 :] or memory[-1:]
    growth = max(warm) - warm[0]
    print(f"memory of the server: {warm[0]:.0f} MB after {_WARM_UP} requests, at most {growth:.1f} MB more later")
    return 1 if lost or wrong or growth > _MAX_GROWTH_MB else 0


def report_burst(options: Options, address: str) -> int:
    """Prints how many of the requests sent at the same time were answered; 1 where one had neither captions nor 503."""
    if not options.burst:
        return 0
    data = image(0)
    with ThreadPoolExecutor(options.burst) as pool:
        answers = list(pool.map(lambda _: ask(address, data, options.beam_size), range(options.burst)))
    counts = {status: sum(asked.status == status for asked in answers) for status in {a.status for a in answers}}
    print(f"{options.burst} at the same time, by status: {counts}")
    print_times("at the same time", answers)
    return 0 if set(counts) <= {200, 503} else 1


def print_times(name: str, asked: list[Asked]) -> None:
    """Prints how long requests took."""
    middle, late, latest = np.quantile([one.seconds for one in asked], [0.5, 0.95, 1.0])
    print(f"{name:>20}: p50 {middle:.3f} s, p95 {late:.3f} s, longest {latest:.3f} s")


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
