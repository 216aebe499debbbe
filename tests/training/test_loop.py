"""Training runs: to the end, killed at any moment and resumed, refused where they do not belong."""

import dataclasses
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from small_runs import DATA, TRAINING, assert_same, outcome, run, stop_and_resume

import legenda
from legenda.data.captions import CaptionDataset
from legenda.errors import DataError, LegendaError
from legenda.regions import Regions
from legenda.run_folder import HISTORY, STATE, TRACE
from legenda.training import is_finished
from legenda.training import loop as loop_module
from legenda.training.checkpoint import TENSORBOARD_FOLDER, read_history, read_progress
from legenda.training.schedules import StepDecay

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_run_leaves_a_model_its_history_and_its_state(completed_run):
    assert outcome(completed_run)["files"] == [
        "config.json",
        HISTORY,
        "model.safetensors",
        TENSORBOARD_FOLDER,
        STATE,
        "vocabulary.txt",
    ]
    history = read_history(completed_run)
    assert [record["step"] for record in history if "loss" in record] == [20]
    assert [record["step"] for record in history if "validation" in record] == [6, 12, 18, 24]
    config = json.loads((completed_run / "config.json").read_text())
    assert config["model"]["name"] == "ngsan"
    assert config["model"]["dim"] == 16
    assert config["training"]["schedule"]["warmup_steps"] == 3
    assert (config["name"], config["extractor"]) == ("a test", {"name": "scenes"})
    assert (read_progress(completed_run).epoch, read_progress(completed_run).step) == (4, 24)
    assert is_finished(completed_run, "a test")
    model = legenda.load(completed_run)
    assert len(model.caption(DATA.validation.read(np.arange(2)))) == 2


def test_the_kept_model_is_the_best_of_the_validations(tmp_path):
    trained = run(tmp_path / "run", TRAINING.replace(monitor="BLEU-1"))
    scores = [record["validation"]["BLEU-1"] for record in read_history(tmp_path / "run") if "validation" in record]
    assert trained.best == max(scores)
    assert trained.best_epoch == 1 + scores.index(max(scores))
    assert trained.seconds > 0


def test_the_same_settings_give_the_same_weights_and_another_seed_others(completed_run, tmp_path):
    run(tmp_path / "again")
    assert_same(outcome(completed_run), outcome(tmp_path / "again"))
    run(tmp_path / "other", TRAINING.replace(seed=1))
    assert outcome(tmp_path / "other")["weights"] != outcome(completed_run)["weights"]


def test_epochs_of_a_number_of_steps_take_each_example_once_before_any_again(tmp_path):
    seen: list[np.ndarray] = []
    read = DATA.train.read
    data = replace(DATA, train=replace(DATA.train, read=lambda positions: seen.append(positions) or read(positions)))
    run(tmp_path / "run", TRAINING.replace(epochs=3, steps_per_epoch=4), data)  # 24 examples are 6 steps of 4
    records = read_history(tmp_path / "run")
    assert [record["step"] for record in records if "validation" in record] == [4, 8, 12]
    first, second = (np.concatenate(seen[start : start + 6]) for start in (0, 6))
    assert sorted(first) == sorted(second) == list(range(24))
    assert list(first) != list(second)


def test_the_weights_that_a_run_starts_with_stay_its_model_until_others_are_better(completed_run, tmp_path):
    spoiled = TRAINING.replace(epochs=1, schedule=StepDecay(learning_rate=1.0, warmup_steps=0))
    trained = run(tmp_path / "run", spoiled, init_from=completed_run)
    start, end = (record for record in read_history(tmp_path / "run") if "validation" in record)
    assert (start["step"], end["step"], trained.best_epoch) == (0, 6, 0)
    assert trained.best == start["validation"]["CIDEr-D"] > end["validation"]["CIDEr-D"]
    for name, tensor in legenda.load(completed_run).state_dict().items():
        assert torch.equal(legenda.load(tmp_path / "run").state_dict()[name], tensor)


@pytest.mark.parametrize(
    ("name", "call", "done"),
    [
        ("write_json", 1, True),  # config.json without vocabulary.txt
        pytest.param("init_run_dir", 1, True, marks=pytest.mark.slow),  # and with it
        ("cross_entropy", 5, True),  # after the first saved state
        ("generate_captions", 1, False),  # an epoch trained, not validated
        # a better model kept, its score not yet in a state
        pytest.param("save_weights", 1, True, marks=pytest.mark.slow),
        # the validation of step 12, where checkpoint_every and the end of an epoch meet
        pytest.param("add_record", 2, True, marks=pytest.mark.slow),
        # the loss of step 20, on a step with a saved state
        pytest.param("add_record", 4, True, marks=pytest.mark.slow),
        pytest.param("save_state", 12, False, marks=pytest.mark.slow),  # all done, the end not saved
    ],
)
def test_a_stopped_run_ends_as_one_that_was_never_stopped(completed_run, tmp_path, monkeypatch, name, call, done):
    folder = tmp_path / "run"
    stop_and_resume(monkeypatch, name, call, lambda: run(folder), done=done)
    assert_same(outcome(completed_run), outcome(folder))


def test_a_state_is_saved_within_an_epoch_and_at_its_end_before_and_after_validation(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(
        loop_module, "save_state", lambda _, now, *__, **___: saved.append((now.epoch, now.step_in_epoch, now.step))
    )
    run(tmp_path / "run")
    first, last = [(0, 4, 4), (0, 6, 6), (1, 0, 6), (1, 2, 8)], [(3, 2, 20), (3, 6, 24), (4, 0, 24)]
    assert saved == [*first, (1, 6, 12), (2, 0, 12), (2, 4, 16), (2, 6, 18), (3, 0, 18), *last]


@pytest.mark.parametrize("resumed", [False, True])
def test_what_a_killed_write_left_is_tolerated_and_cleared_when_the_run_goes_on(completed_run, tmp_path, resumed):
    if resumed:
        shutil.copytree(completed_run, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".config.json.abc.partial").write_text("{")
    run(tmp_path)
    run(tmp_path)
    assert_same(outcome(completed_run), outcome(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == outcome(completed_run)["files"]


def test_more_epochs_continue_a_finished_run_as_if_it_had_not_ended(completed_run, tmp_path):
    folder = tmp_path / "run"
    run(folder, TRAINING.replace(epochs=3))
    environment = json.loads((folder / "config.json").read_text())["environment"]
    assert is_finished(folder, "a test")
    result = run(folder)
    assert_same(outcome(completed_run), outcome(folder))
    assert json.loads((folder / "config.json").read_text())["environment"] == environment
    assert result.best == run(completed_run).best


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_state(tmp_path):
    def broken(positions: np.ndarray) -> Regions:
        regions = DATA.train.read(positions)
        bad = torch.from_numpy(positions == 13)[:, None, None]
        return Regions(regions.features.masked_fill(bad, float("nan")), regions.boxes, regions.mask)

    split = CaptionDataset(DATA.train.ids, DATA.train.references, broken, "broken features", "scenes")
    with pytest.raises(
        LegendaError,
        match=r"step \d.*failed_batch\.safetensors",
    ):
        run(tmp_path / "run", TRAINING.replace(checkpoint_every=1), dataclasses.replace(DATA, train=split))
    state = safetensors.torch.load_file(tmp_path / "run" / STATE)
    assert all(tensor.isfinite().all() for name, tensor in state.items() if name.startswith("model."))
    with safetensors.safe_open(tmp_path / "run" / "failed_batch.safetensors", framework="pt") as file:
        assert DATA.train.ids[13] in file.metadata()["examples"].split("\n")
        assert file.get_tensor("features").isnan().any()
        assert len(file.get_tensor("captions")) == TRAINING.batch_size


def test_a_callback_hears_the_history_and_ends_training_which_may_go_on(completed_run, tmp_path):
    heard = []

    def stop(record):
        heard.append(record)
        return record["step"] == 12

    stopped = run(tmp_path / "run", callback=stop)
    assert (
        heard
        == [record for record in read_history(completed_run) if record["step"] <= 12]
        == read_history(stopped.folder)
    )
    assert stopped.best == max(record["validation"][stopped.monitor] for record in heard)
    assert not is_finished(stopped.folder, "a test")
    run(tmp_path / "run", callback=heard.append)
    assert_same(outcome(completed_run), outcome(tmp_path / "run"))


def test_a_callback_that_ends_training_within_the_first_epoch_leaves_a_scored_model(
    completed_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop_module, "_LOG_EVERY_N_STEPS", 4)
    stopped = run(tmp_path / "run", callback=lambda record: "loss" in record)
    first, second = read_history(stopped.folder)
    assert (first["step"], second["step"], second["validation"][stopped.monitor]) == (4, 4, stopped.best)
    assert len(legenda.load(stopped.folder).caption(DATA.validation.read(np.arange(2)))) == 2
    monkeypatch.undo()
    run(tmp_path / "run")
    ended = [outcome(folder) for folder in (completed_run, tmp_path / "run")]
    for part in ("weights", "state"):
        assert ended[0][part] == ended[1][part]


def test_a_callback_that_ends_training_with_an_epoch_without_evaluation_leaves_a_scored_model(tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "_LOG_EVERY_N_STEPS", 6)
    stopped = run(tmp_path, TRAINING.replace(eval_every=2), callback=lambda _: True)
    assert [record["step"] for record in read_history(tmp_path)] == [6, 6]
    assert (stopped.best_epoch, read_progress(tmp_path).step_in_epoch) == (1, 0)


def test_validation_captions_without_words_are_named_before_anything_is_written(tmp_path):
    references = (("...",), *DATA.validation.references[1:])
    data = replace(DATA, validation=replace(DATA.validation, references=references, tokenize=None))
    with pytest.raises(DataError, match=str(DATA.validation.ids[0])):
        run(tmp_path / "run", data=data)
    assert not (tmp_path / "run").exists()


def test_the_steps_that_are_profiled_leave_a_trace_and_change_nothing(completed_run, tmp_path):
    run(tmp_path / "run", profile_steps=3)
    events = json.loads((tmp_path / "run" / TRACE).read_text())["traceEvents"]
    assert sum(event["name"].startswith("ProfilerStep") for event in events if "dur" in event) == 3
    assert any("addmm" in event["name"] for event in events)
    (tmp_path / "run" / TRACE).unlink()
    assert_same(outcome(completed_run), outcome(tmp_path / "run"))
