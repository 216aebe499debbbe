"""How the server holds under load: clients that ask at once, and how long they wait.

    python benchmarks/serve.py runs/demo/ngsan

starts `legenda serve` on a free port of this machine, asks it from 8 clients, 50 requests each, every one with a scene
of its own, and prints how many answers were lost or were not those of the picture sent, and how long they took. Without
a run folder, an NG-SAN as large as that of scenes.ngsan is served with random weights; it never ends a sentence early,
so it takes longer than a trained one. Exit code 1 where anything is lost or wrong.
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

from legenda.datasets.captions import ScenesData
from legenda.datasets.scenes import draw_scene, make_scene
from legenda.evaluation.runs import describe_data
from legenda.models import create_model
from legenda.recipes import get_recipe


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
    threads: int | None = None
    """Threads of the server (OMP_NUM_THREADS); by default torch's choice."""


@dataclass(frozen=True)
class Asked:
    """One request: the seconds until its answer and the words, or what went wrong."""

    seconds: float
    words: tuple[str, ...] | None
    problem: str = ""


def main(options: Options) -> int:
    """Prints what was measured; the exit code."""
    with tempfile.TemporaryDirectory(prefix="legenda-load-") as folder:
        run = options.run or save_untrained(Path(folder) / "ngsan")
        with serve(run, options.threads) as address:
            return report(options, *measure(options, address))


def save_untrained(folder: Path) -> Path:
    """A run folder of scenes.ngsan before any training."""
    recipe = get_recipe("scenes.ngsan")
    data = ScenesData(train=400, validation=2)  # enough to have all words
    opened = data.open(lambda _: None)
    options = {"vocab_size": len(opened.vocabulary), "feature_dim": opened.feature_dim, **recipe.options}
    model = create_model(recipe.model, **options)
    model.vocabulary = opened.vocabulary
    return model.save(folder, recipe=recipe.name, data=describe_data(data), extractor="scenes")


@contextmanager
def serve(run: Path, threads: int | None) -> Iterator[str]:
    """A server in a process of its own; gives its address and ends it."""
    environment = dict(os.environ) if threads is None else {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "legenda", "serve", str(run), "--port", "0", "--rate-limit", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://(\S+)", line)
        if not found:
            raise SystemExit(f"the server did not start; it printed {line!r}")
        yield found[1]
    finally:
        process.terminate()
        process.wait()


def measure(options: Options, address: str) -> tuple[list[Asked], list[Asked], float]:
    """Each picture asked alone, then all by all clients at once, and the seconds of the latter."""
    count = options.clients * options.requests
    pictures = [picture(number) for number in range(count)]
    alone = [ask(address, data, options.beam_size) for data in pictures]
    began = time.monotonic()
    with ThreadPoolExecutor(options.clients) as pool:
        places = [range(client, count, options.clients) for client in range(options.clients)]
        found = list(pool.map(lambda own: [ask(address, pictures[n], options.beam_size) for n in own], places))
    seconds = time.monotonic() - began
    together = {
        n: asked for own, answers in zip(places, found, strict=True) for n, asked in zip(own, answers, strict=True)
    }
    return alone, [together[number] for number in range(count)], seconds


def picture(number: int) -> bytes:
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
        return Asked(seconds, None, str(body.get("detail")))
    return Asked(seconds, tuple(body["captions"][0]["words"]))


def report(options: Options, alone: list[Asked], together: list[Asked], seconds: float) -> int:
    """Prints the measurement; 1 where anything is lost or wrong."""
    lost = [asked.problem for asked in (*alone, *together) if asked.words is None]
    wrong = sum(one.words != other.words for one, other in zip(alone, together, strict=True))
    print(f"{len(together)} requests of {options.clients} clients, beam {options.beam_size}, {os.cpu_count()} cores")
    for name, asked in (("one after the other", alone), ("at once", together)):
        middle, late, latest = np.quantile([one.seconds for one in asked], [0.5, 0.95, 1.0])
        print(f"{name:>20}: p50 {middle:.3f} s, p95 {late:.3f} s, longest {latest:.3f} s")
    print(f"{len(together) / seconds:.1f} answers a second at once; lost {len(lost)}, not as alone {wrong}")
    for problem in sorted(set(lost)):
        print(f"  {problem}")
    return 1 if lost or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
