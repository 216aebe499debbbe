"""The command line: help for every command, and one sentence for every mistake."""

import os
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

import legenda
from legenda.cli.main import COMMANDS, main
from legenda.cli.options import fields_of, parse
from legenda.config import descriptions
from legenda.errors import DataError
from legenda.io import atomic_write, partial_folder
from legenda.models import describe_model
from legenda.papers import all_recipes, all_tables
from legenda.training import TrainingConfig


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Commands run in an empty folder, and leave it empty."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["", "--help", "-h", "help"])
def test_help_names_every_command(run_command, line):
    code, out, err = run_command(line)
    assert (code, err) == (0, "")
    for command, summary in COMMANDS.items():
        assert command in out
        assert summary in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run_command, command):
    code, out, err = run_command(command, "--help")
    assert (code, err) == (0, "")
    assert f"usage: legenda {command}" in out


@pytest.mark.parametrize("command", ["caption", "serve", "train", "evaluate", "score", "report", "compare", "extract"])
def test_help_shows_examples_and_what_people_use(run_command, command):
    module = import_module(f"legenda.cli.{command}")
    (kind,) = (part for part in vars(module).values() if hasattr(part, "usual"))
    _, out, _ = run_command(command, "--help")
    for example in kind.examples:
        assert f"legenda {command} {example}" in out
        parse(kind, shlex.split(example), command)  # raises for an option that does not exist
    assert out.count("\n  --") == len(kind.usual) == 6
    code, everything, _ = run_command(command, "--help-all")
    assert code == 0
    names = (name for name, field in fields_of(kind).items() if not field.metadata)
    assert all(f"--{name.replace('_', '-')}" in everything for name in names)


def test_a_recipe_is_printed_with_the_description_of_every_field(run_command):
    code, out, err = run_command("recipes", "scenes.ngsan")
    assert (code, err) == (0, "")
    recipe = tomllib.loads(out)
    assert recipe["model"]["norm"] == "in"
    assert recipe["training"]["schedule"]["learning_rate"] == 3e-3
    assert "vocab_size" not in recipe["model"]  # it follows from the data
    comments = " ".join(line.removeprefix("# ") for line in out.splitlines() if line.startswith("#"))
    for kind in (describe_model("ngsan").config, TrainingConfig):
        texts = descriptions(kind)
        assert texts
        for name, text in texts.items():
            # they follow from the data
            assert name in ("vocab_size", "feature_dim", "backbone") or " ".join(text.split()) in comments


def test_version(run_command):
    code, out, _ = run_command("--version")
    assert code == 0
    assert out == f"legenda {legenda.__version__}\n"


def test_models_and_recipes_are_listed(run_command):
    code, out, _ = run_command("models")
    assert code == 0
    assert "40,202,000" in out
    assert len(out.splitlines()) >= 4
    code, out, _ = run_command("recipes")
    assert code == 0
    names = {line.split()[0] for line in out.splitlines() if "  " in line}
    tables = {name.rpartition(".")[0] for name in all_recipes()} & set(all_tables())
    assert names == {f"{table}.*" for table in tables} | {
        name for name in all_recipes() if name.rpartition(".")[0] not in tables
    }


ERRORS = [
    ("trian", "there is no such command; did you mean train?"),
    ("zzz", f"choose from {', '.join(sorted(COMMANDS))}"),
    ("recipes scenes.ngsn", "did you mean scenes.ngsan?"),
    ("models zzz", "no model matches 'zzz'"),
    ("train", "the recipe comes first"),
    ("train --config nowhere.toml", "nowhere.toml cannot be read"),
    ("train scenes.ngsan training.epoch=3", "did you mean epochs?"),
    ("train scenes.ngsan epochs=3", "did you mean training.epochs?"),
    ("train scenes.ngsan learning_rate=3", "did you mean training.schedule.learning_rate?"),
    ("train scenes.ngsan trainig.epochs=3", "did you mean training?"),
    ("train scenes.ngsan model.vocab_size=2", "model.vocab_size follows from the data"),
    ("train scenes.ngsan training.epochs", "write KEY=VALUE"),
    ("train scenes.ngsan --gpus 1", "there is no option --gpus"),
    ("train scenes.ngsan training.precision=16", "'float32', 'bf16'"),
    ("train scenes.ngsan model.norm=batch", "there is no norm 'batch'"),
    ("train scenes.ngsan training=3", "training takes fields"),
    ("evaluate nowhere", "nowhere is not a folder with a model"),
    ("evaluate nowhere --algorithm mine", "--test-features and --algorithm are for --submission-dir"),
    ("score a.json b.json", "a.json cannot be read"),
    ("caption a.png --temperature nan", "--temperature must be"),
    ("serve run --port 65536", "--port must be"),
    ("export run --max-length -3", "--max-length must be greater than or equal to 1, not -3"),
    ("caption a.png", "a.png does not exist"),
    ("extract --extractor scenes", "name at least one image, folder or pattern"),
]


@pytest.mark.parametrize(("line", "message"), ERRORS)
def test_an_error_is_one_sentence_and_exit_code_2(run_command, line, message):
    code, out, err = run_command(line)
    assert (code, out) == (2, "")
    assert err.startswith(f"legenda {line.split()[0]}: ")
    assert err.count("\n") == 1
    assert message in err
    assert not any(sign in err for sign in ("│", "╭"))


def test_an_interrupt_ends_without_a_traceback(run_command, tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugins") / "slow.py"
    plugin.write_text("raise KeyboardInterrupt")
    code, _, err = run_command(f"models --plugin {plugin}")
    assert code == 130
    assert err.startswith("stopped")


def test_the_installed_module_answers_a_mistake_from_a_real_process():
    command = [sys.executable, "-m", "legenda", "evalute"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "legenda evalute: there is no such command; did you mean evaluate?\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_causes_no_complaint(monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = f"{sys.executable} -m legenda --help | head -n 0"
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("swallowed", [None, ValueError, DataError])
def test_a_signal_ends_a_command_and_leaves_nothing(tmp_path, monkeypatch, capsys, number, swallowed):
    def work(*_) -> None:
        with atomic_write(tmp_path / "a"), partial_folder(tmp_path / "b"):
            try:
                os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                if swallowed is None:
                    raise
                raise swallowed("generator already executing") from None

    monkeypatch.setattr("legenda.cli.main._run", work)
    before = signal.signal(number, signal.SIG_DFL)  # a shell ignores SIGINT for what runs in its background
    with pytest.raises(SystemExit) as ended:
        main(["caption"])
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == "stopped\n"
    assert not list(tmp_path.iterdir())
    assert signal.signal(number, before) == signal.SIG_DFL


def test_an_output_that_is_not_utf8_is_refused(tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["score", "a.json", "b.json", "--out", "caf\udce9.json"])
    assert ended.value.code == 2
    assert not list(tmp_path.iterdir())
