"""The data of a run, found by the paths in its config.json; the stage of its model, and repeated words."""

import json
import re
import shutil

import pytest

import legenda
from command_results import error_of
from legenda.data.captions import ScenesData
from legenda.errors import CheckpointError
from legenda.evaluation.runs import load_run
from legenda.models.weights import save_weights

SCENES = ScenesData(train=6, validation=4, test=2)


@pytest.fixture
def folder(noisy_photographs, make_run, tmp_path):
    """A folder with a data set and, in runs/, a run that was trained on it."""
    here = tmp_path / "project"
    shutil.copytree(noisy_photographs.folder.parent, here / "data")
    data = noisy_photographs.data.replace(
        annotations=here / "data" / "dataset.json", features=here / "data" / "features.safetensors"
    )
    (here / "runs").mkdir()
    shutil.copytree(make_run("transformer", data, folder=here / "runs" / "trained"), here / "runs" / "x")
    return here


def test_a_run_that_is_moved_alone_finds_its_data_where_they_were(folder, tmp_path):
    path = folder / "runs" / "x" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "environment": {"folder": str(path.parent)}}))
    moved = (folder / "runs" / "x").rename(tmp_path / "alone")
    assert load_run(moved).data().annotations == folder / "data" / "dataset.json"


def test_repeated_words_are_dropped_before_scoring_where_the_training_or_the_option_does(make_run, run_command):
    run = make_run("transformer", SCENES, "released", training={"eval_collapse_repeats": True})
    written = {}
    for repeats in ("auto", "keep", "collapse"):
        code, _, err = run_command(f"evaluate {run} --beam-size 1 --repeats {repeats}")
        assert code == 0, err
        written[repeats] = json.loads((run / "evaluation_val.json").read_text())
    assert [part["collapse_repeats"] for part in written.values()] == [True, False, True]
    kept, collapsed = written["keep"]["captions"], written["collapse"]["captions"]
    assert written["auto"] == written["collapse"]
    assert kept != collapsed
    assert collapsed == {image: re.sub(r"\b(\S+)( \1\b)+", r"\1", caption) for image, caption in kept.items()}


def test_the_model_of_an_earlier_stage_is_evaluated(make_run, run_command):
    run = make_run("transformer", SCENES, "stages")
    model = legenda.load(run)
    model.decoder.output.bias.data[5] += 50.0  # says one word only
    save_weights(model.state_dict(), run.parent)
    (run.parent / "model.safetensors").rename(run / "model_stage1.safetensors")
    assert run_command(f"evaluate {run} --stage 1 --beam-size 1")[0] == 0
    captions = json.loads((run / "evaluation_val_stage1.json").read_text())["captions"]
    assert {word for caption in captions.values() for word in caption.split()} == {model.vocabulary.decode([5])}
    assert not (run / "evaluation_val.json").exists()
    assert "model_stage2.safetensors does not exist; only stages before a run's last one leave such a file" in error_of(
        run_command(f"evaluate {run} --stage 2")
    )


@pytest.mark.parametrize("what", ["another model", "another width", "fewer tensors"])
def test_weights_that_do_not_fit_are_one_sentence(make_run, run_command, what):
    """Weights of an earlier stage and of the whole run are refused alike."""
    run = make_run("transformer", SCENES, what.replace(" ", "_"))
    weights = legenda.load(run).state_dict()
    if what == "another model":
        weights = legenda.load(make_run("aoanet", SCENES)).state_dict()
    elif what == "another width":
        weights = legenda.load(make_run("transformer", SCENES, options={"dim": 16})).state_dict()
    else:
        del weights["decoder.output.weight"]
    save_weights(weights, run.parent)
    for name, options in (("model_stage1.safetensors", "--stage 1"), ("model.safetensors", "")):
        shutil.copy(run.parent / "model.safetensors", run / name)
        message = error_of(run_command(f"evaluate {run} {options} --beam-size 1"))
        assert str(run / name) in message
        assert what != "fewer tensors" or "decoder.output.weight" in message
    assert not list(run.glob("evaluation*"))


@pytest.mark.parametrize("command", ["push {} somebody/model", "evaluate {}", "export {}"])
def test_a_run_that_was_stopped_before_its_first_validation_is_to_be_continued(make_run, run_command, command):
    run = make_run("transformer", SCENES, command.split()[0], training={"epochs": 3})
    (run / "model.safetensors").unlink()
    assert "`legenda train` continues" not in error_of(run_command(command.format(run)))  # it is lost
    (run / "metrics.jsonl").write_text('{"step": 20, "epoch": 1, "loss": 3.0}\n')
    assert "`legenda train` continues" in error_of(run_command(command.format(run)))


def test_a_model_without_data_and_extractor_is_evaluated_on_given_data(folder, run_command):
    run = folder / "runs" / "x"
    config = json.loads((run / "config.json").read_text())
    data = f"--annotations {folder / 'data' / 'dataset.json'} --features {folder / 'data' / 'features.safetensors'}"
    for changes in ({"extractor": None}, {"data": {"kind": "unknown"}}):
        (run / "config.json").write_text(json.dumps({**config, "data": None} | changes))
        code, _, err = run_command(f"evaluate {run} --beam-size 1 {data}")
        assert code == 0, err
        written = json.loads((run / "evaluation_val.json").read_text())
        assert written["data"]["annotations"] == "../../data/dataset.json"


def test_a_run_of_a_later_format_names_the_version_that_it_needs(make_run, run_command):
    run = make_run("transformer", ScenesData(), "later")
    config = json.loads((run / "config.json").read_text())
    later = {**config, "format_version": config["format_version"] + 1, "environment": {"legenda": "99.1"}, "model": 3}
    (run / "config.json").write_text(json.dumps(later))
    for command in ("evaluate", "inspect"):
        code, _, err = run_command(command, str(run))
        assert code == 2
        assert "legenda>=99.1" in err


@pytest.mark.parametrize("choice", [{"least_log_prob": "low"}, {"min_score": 2.0}, {"consensus": -1.0}])
def test_a_config_that_chooses_captions_by_what_is_out_of_range_is_named(make_run, tmp_path, choice):
    run = make_run("ngsan", ScenesData(train=40, validation=2))
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | choice))
    with pytest.raises(CheckpointError, match=next(iter(choice))):
        legenda.open(tmp_path / "run", device="cpu")
