"""Every command line of the documentation parses, and every option that it names exists."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

import legenda.cli
from legenda.cli import options
from legenda.cli.main import COMMANDS, main
from legenda.cli.train import TrainOptions
from legenda.papers import get_recipe
from legenda.recipes import recipe_to_toml
from legenda.text import Vocabulary
from test_docs import FILES, PAGES, README


def _commands() -> Iterator[tuple[str, str]]:
    """Yield page and command line of every `legenda` command in a bash block, or in `code` with an option."""
    for page, text in PAGES.items():
        for block in re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.search(r"(?:^|-m )legenda (.*)", line)
                if found and "examples/" not in line:
                    yield page, re.split("  #| > ", found[1])[0]
        for code in re.findall(r"(?<!`)`legenda ([a-z]+ [^`]*)`(?!`)", text):
            if not re.search(r"\b[A-Z]{3,}\b|\.\.\.", code):
                yield page, code


COMMAND_LINES = sorted({line: page for page, line in _commands()}.items())


class _ParsedError(Exception):
    """The options were parsed, and the command must not run."""


@pytest.fixture
def parse_only(monkeypatch, tmp_path):
    """Call a command line that stops once its options are parsed."""
    monkeypatch.chdir(tmp_path)
    for name, block in FILES.items():
        Path(name).write_text(block, encoding="utf-8")
    Path("runs/xe-ngsan-0").mkdir(parents=True)
    Vocabulary.build([["a"]], min_count=1).save("runs/xe-ngsan-0/vocabulary.txt")
    stop = _stop_after(options.parse)
    names = [found.name for found in pkgutil.iter_modules(legenda.cli.__path__, "legenda.cli.")]
    for module in list(map(importlib.import_module, names)):  # all before the first is changed
        if hasattr(module, "parse"):
            monkeypatch.setattr(module, "parse", stop)

    def call(line: str) -> None:
        arguments = shlex.split(line.replace("$DATA", ""))
        if "--config" in arguments:
            recipe = recipe_to_toml(get_recipe("scenes.ngsan"))
            Path(arguments[arguments.index("--config") + 1]).write_text(recipe, encoding="utf-8")
        if "--init-from" in arguments:
            folder = Path(arguments[arguments.index("--init-from") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            known = arguments[1] if "--plugin" not in arguments else "scenes.ngsan"
            model = {"name": get_recipe(known).model}
            (folder / "config.json").write_text(json.dumps({"model": model}), encoding="utf-8")
        main(arguments)

    return call


def _stop_after(parse):
    def parse_and_stop(*arguments, **options):
        parsed = parse(*arguments, **options)
        if isinstance(parsed, TrainOptions):
            parsed.recipe()
        raise _ParsedError

    return parse_and_stop


@pytest.mark.parametrize("line", [line for line, _ in COMMAND_LINES])
@pytest.mark.usefixtures("forget_plugins")
def test_commands_parse(line, parse_only, capsys):
    code = 0
    try:
        parse_only(line)
    except _ParsedError:
        pass
    except SystemExit as stop:
        code = stop.code
    assert not code, f"{dict(COMMAND_LINES)[line]}: {capsys.readouterr().err}"


def test_every_command_is_in_the_readme():
    named = set(re.findall(r"^    legenda (\w+)", README, flags=re.MULTILINE))
    assert named == set(COMMANDS)


@cache
def options_of(command: str) -> frozenset[str]:
    """Return the options that the whole help of a command lists."""
    with redirect_stdout(StringIO()) as out, suppress(SystemExit):
        main([command, "--help-all"])
    return frozenset(re.findall(r"--[a-z][\w.-]*\w", out.getvalue()))


def test_every_option_exists():
    known = {
        "--help", "--help-all", "--plugin", "--output", "--nproc-per-node", "--nnodes", "--node-rank",
        "--master-addr", "--add-opens", "--extra-index-url", "--build-arg",
    }  # fmt: skip
    known = known.union(*map(options_of, COMMANDS))
    for page, text in PAGES.items():
        own = re.sub(r"^.*python research/.*$", "", text, flags=re.MULTILINE)
        for option in re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", own):
            assert option in known, f"{page}: {option}"
