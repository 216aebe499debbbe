"""The Dockerfile without Docker: its files exist, its package builds, its server starts and is healthy."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTRUCTIONS = [
    (found[1], found[2])
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if (found := re.match(r"([A-Z]+) (.*)", line))
]


def _values(instruction: str) -> list[str]:
    return [value for name, value in INSTRUCTIONS if name == instruction]


INSTALL, ADD_USER = (shlex.split(command) for command in _values("RUN")[-1].split("&&"))


def _command(instruction: str) -> list[str]:
    return json.loads(_values(instruction)[0].removeprefix("CMD "))


def test_what_it_copies_and_installs_exists():
    sources = [*shlex.split(" ".join(value.rpartition(" ")[0] for value in _values("COPY"))), "constraints.txt"]
    assert all((ROOT / source).exists() for source in sources)
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for named in re.findall(r"EXTRAS=([\w,]+)", text):
        assert set(named.split(",")) <= extras.keys()
    assert "legenda[$EXTRAS] @" in " ".join(INSTALL)


def test_the_server_is_that_of_the_command_line_and_no_root():
    from legenda.cli.options import parse
    from legenda.cli.serve import ServeOptions

    program, command, *arguments = _command("CMD")
    assert (program, command) == ("legenda", "serve")
    options = parse(ServeOptions, arguments, command)
    assert options.host == "0.0.0.0"
    assert _values("EXPOSE") == [str(options.port)]
    names = [name for name, _ in INSTRUCTIONS]
    assert names.index("USER") < names.index("CMD")
    assert ADD_USER[:3] == ["useradd", "--uid", _values("USER")[0]]


@pytest.mark.slow
def test_the_server_becomes_healthy(tmp_path, make_run):
    from legenda.data.captions import ScenesData

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run = make_run("transformer", ScenesData(train=40, validation=2))
    command = [part.replace("8000", port).replace("photo", str(run)) for part in _command("CMD")[1:]]
    health = [part.replace("8000", port) for part in _command("HEALTHCHECK")[1:]]
    server = subprocess.Popen([sys.executable, "-m", "legenda", *command], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        while subprocess.run([sys.executable, *health], stderr=subprocess.DEVNULL).returncode != 0:
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.3)
    finally:
        server.terminate()
        server.wait(20)
