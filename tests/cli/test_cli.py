"""The command line: help for every command, and one sentence for every mistake."""

import re
import subprocess
import sys

import pytest

from legenda.cli.main import COMMANDS, main
from legenda.models import list_models
from legenda.recipes import all_recipes


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    code = 0
    try:
        main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Commands run in an empty folder, and leave it empty."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_command(capsys, arguments):
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    for command, summary in COMMANDS.items():
        assert command in out
        assert summary in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys, command):
    code, out, err = call(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert f"usage: legenda {command}" in out


def test_help_of_a_recipe_lists_every_field_that_can_be_set(capsys):
    code, out, err = call(capsys, "train", "scenes.ngsan", "--help-all")
    assert (code, err) == (0, "")
    options = ("--out", "--model.norm", "--model.geometry", "--data.seed", "--training.schedule.learning-rate")
    assert all(option in out for option in options)
    assert "--model.vocab-size" not in out  # it follows from the data


def test_version(capsys):
    code, out, _ = call(capsys, "--version")
    assert code == 0
    assert out.startswith("legenda 0.")


def test_models_and_recipes_are_listed(capsys):
    code, out, _ = call(capsys, "models")
    assert code == 0
    assert "40,202,000" in out
    assert len(out.splitlines()) >= 4
    code, out, _ = call(capsys, "recipes")
    assert code == 0
    assert "scenes.ngsan" in out
    code, out, _ = call(capsys, "recipes", "scenes.ngsan")
    assert '"model": "ngsan"' in out


def test_models_and_recipes_are_filtered(capsys):
    code, out, _ = call(capsys, "models", "aoanet_b*")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["model", "aoanet_base"]
    _, out, _ = call(capsys, "models", "Grounding")
    assert {line.split()[0] for line in out.splitlines()[1:]} == set(list_models(task="grounding"))
    _, out, _ = call(capsys, "recipes", "moving")
    assert [line.split()[0] for line in out.splitlines()[:4]] == [name for name in all_recipes() if "video." in name]
    _, out, _ = call(capsys, "recipes", "coco.xlan_encoder?")
    assert out.count("coco.") == 5


def test_the_help_of_training_lists_what_matters(capsys):
    code, out, _ = call(capsys, "train", "flickr8k.ngsan", "--help")
    options = re.findall(r"^\W*(--[a-z][\w.-]*)", out, flags=re.MULTILINE)
    assert code == 0
    assert 15 <= len(options) <= 22
    assert {"--out", "--data.annotations", "--training.epochs", "--training.schedule.learning-rate"} < set(options)
    assert "--help-all lists all of them" in out
    _, out, _ = call(capsys, "train", "flickr8k.ngsan", "--help-all")
    everything = re.findall(r"^\W*(--[a-z][\w.-]*)", out, flags=re.MULTILINE)
    assert set(options) < set(everything)
    assert {"--training.betas", "--fine-tuning.self-critical.baseline"} < set(everything)


ERRORS = [
    (("trian",), "there is no such command; did you mean train?"),
    (("zzz",), f"choose from {', '.join(sorted(COMMANDS))}"),
    (("recipes", "scenes.ngsn"), "there is no recipe 'scenes.ngsn'; did you mean scenes.ngsan?"),
    (("recipes", "scenes.ngsan", "more"), "unrecognized options: more"),
    (("models", "--all"), "there is no option --all; choose from --help"),
    (("train", "scenes.gsn"), "there is no recipe 'scenes.gsn'; did you mean scenes.gsan?"),
    (("train",), "the recipe comes first, as in legenda train scenes.ngsan; legenda recipes lists them"),
    (("train", "--out", "x"), "the recipe comes first, as in legenda train scenes.ngsan"),
    (
        ("train", "scenes.ngsan", "--training.epoch", "3"),
        "no option --training.epoch; did you mean --training.epochs?",
    ),
    (("train", "scenes.ngsan", "--training.schedule.warmup", "3"), "did you mean --training.schedule.warmup-steps?"),
    (("train", "scenes.ngsan", "--model.num-head", "2"), "did you mean --model.num-heads?"),
    (("train", "scenes.ngsan", "--training.epochs", "many"), "--training.epochs"),
    (("train", "scenes.ngsan", "--training.epochs", "2.5"), "--training.epochs"),
    (("train", "scenes.ngsan", "--training.precision", "fp16"), "'32-true', 'bf16-mixed'"),
    (("train", "scenes.ngsan", "--model.norm", "batch"), "there is no norm 'batch'"),
    (("train", "scenes.ngsan", "--training.betas", "0.9"), "--training.betas"),
    (("train", "scenes.ngsan", "--training.epochs", "0"), "training.epochs must be at least 1, not 0"),
    (
        ("train", "scenes.ngsan", "--training.schedule.learning-rate", "-1"),
        "training.schedule.learning_rate must be above 0, not -1.0",
    ),
    (("train", "scenes.ngsan", "--out"), "--out"),
    (("evaluate",), "PATH"),
    (("evaluate", "nowhere"), "nowhere is not a folder with a model"),
    (("evaluate", "nowhere", "--beam-siz", "3"), "there is no option --beam-siz; did you mean --beam-size?"),
    (("evaluate", "nowhere", "--beam-size", "wide"), "--beam-size"),
    (("evaluate", "nowhere", "--algorithm", "mine"), "--test-features and --algorithm are for --submission-dir"),
    (("score",), "PREDICTIONS"),
    (("score", "a.json"), "REFERENCES"),
    (("score", "a.json", "b.json"), "a.json cannot be read"),
    (("score", "a.json", "b.json", "--metric", "BLEU"), "there is no option --metric; did you mean --metrics?"),
    (("score", "a.json", "b.json", "--resamples", "0"), "--resamples must be at least 1, not 0"),
    (("score", "a.json", "b.json", "--seed", "-1"), "--seed must be 0 or more, not -1"),
    (("caption", "a.png", "--seed", "9" * 20), "--seed must be at most 9223372036854775807, not 9"),
    (("caption", "a.png", "--diversity-penalty", "1e300"), "--diversity-penalty must be at most 9223372036854775807"),
    (("caption", "a.png", "--temperature", "nan"), "--temperature must be above 0, not nan"),
    (("extract", "a.png", "--extractor", "scenes", "--batch-size", "9" * 20), "--batch-size must be at most"),
    (("compare", "a.json", "b.json", "--num-examples", "-1"), "--num-examples must be 0 or more, not -1"),
    (("serve", "run", "--port", "65536"), "--port must be at most 65535, not 65536"),
    (("table", "ngsan.table2", "--seeds", "0"), "--seeds must be at least 1, not 0"),
    (("report", "run", "--beam-size", "0"), "--beam-size must be at least 1, not 0"),
    (("train", "scenes.ngsan", "--devices", "0"), "--devices must be at least 1, not 0"),
    (("score", "a.json", "b.json", "--references-per-image", "0"), "--references-per-image must be at least 1"),
    (("caption", "a.png"), "a.png does not exist"),
    (("caption", "--model", "nowhere"), "name at least one image, folder or pattern"),
    (("caption", "a.png", "--modl", "nowhere"), "there is no option --modl; did you mean --model?"),
    (("caption", "a.png", "--modl=nowhere"), "there is no option --modl; did you mean --model?"),
    (("caption", "a.png", "--model", "nowhere"), "a.png does not exist"),
    (("extract", "a.png"), "--extractor"),
    (("extract", "--extractor", "scenes"), "name at least one image, folder or pattern"),
    (("extract", "a.png", "--extractor", "scenes"), "a.png does not exist"),
    (("extract", "a.png", "--extractor", "scenes"), "a.png does not exist"),
    (("extract", "a.png", "--extractor", "scenes", "--batch-sise", "4"), "did you mean --batch-size?"),
    (("demo", "--run", "x"), "did you mean --runs?"),
    (("recipes", "zzz"), "there is no recipe 'zzz'; choose from aoanet.table4.aoa, "),
    (("models", "zzz"), "no model matches 'zzz'; choose from aoanet, "),
    (("train", "scenes.ngsan", "--lr", "1"), "did you mean --training.schedule.learning-rate?"),
    (("train", "scenes.ngsan", "--learning-rate", "1"), "did you mean --training.schedule.learning-rate?"),
    (("train", "scenes.ngsan", "--training.lr=1"), "did you mean --training.schedule.learning-rate?"),
    (("train", "coco.ngsan", "--fine-tuning.lr=1"), "did you mean --fine-tuning.schedule.learning-rate?"),
    (("train", "coco.xlan", "--lr", "1"), "did you mean --training.schedule.factor or --fine-tuning."),
    (("train", "scenes.ngsan", "--batch", "1"), "did you mean --training.batch-size?"),
    (("train", "coco.ngsan", "--epochs", "1"), "did you mean --training.epochs or --fine-tuning.epochs?"),
    (("train", "scenes.ngsan", "--layers", "1"), "did you mean --model.num-layers?"),
    (("train", "scenes.ngsan", "--gpus", "1"), "did you mean --devices?"),
    (("train", "scenes.ngsan", "--gpu", "1"), "did you mean --device?"),
    (("train", "scenes.ngsan", "--fp16"), "did you mean --precision or --training.precision?"),
    (("train", "scenes.ngsan", "--training.bach-size", "1"), "did you mean --training.batch-size?"),
    (("train", "scenes.ngsan", "--bach-size", "1"), "did you mean --training.batch-size?"),
    (("train", "scenes.ngsan", "--zzz"), "there is no option --zzz; legenda train scenes.ngsan --help-all lists them"),
    (("train", "--config", "nowhere.json"), "nowhere.json cannot be read"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[" ".join(arguments) for arguments, _ in ERRORS])
def test_an_error_is_one_sentence_and_exit_code_2(capsys, arguments, message):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"legenda {arguments[0]}: ")
    assert err.count("\n") == 1
    assert message in err
    assert not any(sign in err for sign in ("Traceback", "│", "╭"))


@pytest.mark.parametrize("columns", ["20", "60", "200"])
def test_a_misspelled_option_is_named_at_every_width_of_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, _, err = call(capsys, "train", "scenes.ngsan", "--training.schedule.warmup", "3")
    option = "--training.schedule.warmup"
    assert err == f"legenda train: there is no option {option}; did you mean {option}-steps?\n"


@pytest.mark.parametrize("columns", ["20", "60", "200"])
def test_nothing_of_the_frame_around_a_complaint_is_left(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, _, err = call(capsys, "recipes", "scenes.ngsan", "more")
    assert err == "legenda recipes: unrecognized options: more; see legenda recipes --help\n"


def test_an_interrupt_ends_without_a_traceback(capsys, monkeypatch):
    def interrupted(arguments: list[str]) -> None:
        raise KeyboardInterrupt(arguments)

    monkeypatch.setattr("legenda.cli.models.run", interrupted)
    code, _, err = call(capsys, "models")
    assert code == 130
    assert err.startswith("stopped")


def test_the_installed_module_answers_a_mistake_from_a_real_process():
    command = [sys.executable, "-m", "legenda", "evalute"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "legenda evalute: there is no such command; did you mean evaluate?\n"


def test_a_reader_that_leaves_early_causes_no_complaint():
    command = f"{sys.executable} -m legenda recipes | head -n 0"
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""
