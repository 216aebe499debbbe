"""Folders of training runs: what is refused and left alone, and what is taken."""

import dataclasses
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_runs import DATA, TRAINING, open_scenes, run

import legenda
from command_results import everything_in
from legenda.data.captions import DataModule
from legenda.errors import CheckpointError, LegendaError
from legenda.extras.vqa.data import SceneQuestionsData
from legenda.features.convert import convert
from legenda.run_folder import STATE
from legenda.tasks.base import describe_split
from legenda.text import Vocabulary
from legenda.training import TrainingConfig, is_finished
from legenda.training.checkpoint import read_progress
from legenda.training.schedules import StepDecay

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_finished_run_is_left_as_it_is(completed_run):
    before = everything_in(completed_run)
    assert run(completed_run).best_epoch == read_progress(completed_run).best_epoch
    assert before == everything_in(completed_run)


def test_a_run_goes_on_beside_what_a_killed_export_left(completed_run, tmp_path):
    shutil.copytree(completed_run, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".onnx.0123abcd.partial").mkdir()
    (tmp_path / ".onnx.0123abcd.partial" / "decoder.onnx").write_text("half")
    assert run(tmp_path).best == run(completed_run).best


def test_a_run_that_lost_its_weights_is_not_finished_and_says_how_to_begin_again(completed_run, tmp_path):
    shutil.copytree(completed_run, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model.safetensors"))
    before = everything_in(tmp_path)
    assert not is_finished(tmp_path, "a test")
    with pytest.raises(LegendaError, match=r"model\.safetensors"):
        run(tmp_path)
    assert before == everything_in(tmp_path)


OTHER_EXTRACTOR = dataclasses.replace(DATA, train=dataclasses.replace(DATA.train, extractor="another-01234567"))


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"training": TRAINING.replace(seed=5)}, "training.seed is 0 there, 5 here"),
        ({"training": TRAINING.replace(epochs=3)}, "training.epochs is 4 there, 3 here"),
        ({"training": TRAINING, "fine_tuning": TRAINING}, "fine_tuning is null there, a table here"),
        (
            {"training": TRAINING.replace(schedule=StepDecay(learning_rate=1e-3))},
            "training.schedule.learning_rate is 0.002 there, 0.001 here",
        ),
        ({"name": "gsan"}, "model.name is ngsan there, gsan here"),
        ({"ff_dim": 32}, "model.ff_dim is 16 there, 32 here"),
        ({"data": OTHER_EXTRACTOR}, "extractor.name is scenes there, another-01234567 here"),
        ({"data": open_scenes(3)}, "model.vocab_size is "),  # fewer words
    ],
)
def test_a_folder_with_other_settings_is_refused_and_left_alone(completed_run, changed, difference):
    before = everything_in(completed_run)
    with pytest.raises(LegendaError, match=rf"{difference}.*--out"):
        run(completed_run, **changed)
    assert before == everything_in(completed_run)


def test_a_folder_with_foreign_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear all")
    with pytest.raises(LegendaError, match="no run"):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_in_place_of_the_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run").write_text("dear all")
    with pytest.raises(LegendaError, match=r"run .*--out"):
        run(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "dear all"


def with_captions(change) -> DataModule:
    """The scenes with other captions for training, and the vocabulary that follows from these."""
    references = tuple(tuple(map(change, captions)) for captions in DATA.train.references)
    train = dataclasses.replace(DATA.train, references=references)
    return dataclasses.replace(
        DATA, train=train, vocabulary=Vocabulary.from_counts(train.tokenized.counts(), min_count=1)
    )


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda text: re.sub(r"\bred\b", "redd", text), r"other data \(line \d+ of vocabulary.txt is red there, redd"),
        (lambda text: " ".join(reversed(text.split())), r"other data \(data_digest.train is 24 examples, "),
    ],
)
def test_data_that_changed_are_refused_and_the_difference_named(completed_run, change, difference):
    before = everything_in(completed_run)
    with pytest.raises(LegendaError, match=difference):
        run(completed_run, data=with_captions(change))
    assert before == everything_in(completed_run)


def test_the_digest_of_a_split_covers_records_and_no_functions():
    split, again = (SceneQuestionsData(train=1, validation=1).open(lambda _: None).train for _ in range(2))
    first = dataclasses.replace(split.examples[0], text="is it another question?")
    changed = dataclasses.replace(split, examples=(first, *split.examples[1:]))
    assert describe_split(split) == describe_split(again) != describe_split(changed)
    assert describe_split(split).startswith("4 examples, sha256 ")


TINY = {
    "model": {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8},
    "training": {"epochs": 1, "batch_size": 4, "eval_beam_size": 1},
}


def feature_folder(folder: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for n in range(16):
        box = np.tile(np.float32([0.1, 0.1, 0.5, 0.5]), (3, 1))
        np.savez(folder / f"{n}.npz", feat=rng.random((3, 4), np.float32), bbox=box)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_features_that_changed_under_a_run_are_noticed(tmp_path, packed):
    table = "".join(f"{n}.jpg,a dog number {n} runs,{'val' if n > 11 else 'train'}\n" for n in range(16))
    (tmp_path / "t.csv").write_text("file,caption,split\n" + table)

    def train_on(seed: int, epochs: int) -> None:
        store = feature_folder(tmp_path / "moving", seed)
        if packed:
            store = tmp_path / "moving.safetensors"
            convert([tmp_path / "moving"], store)
        data = {"annotations": tmp_path / "t.csv", "features": store, "min_count": 1}
        training = {**TINY["training"], "epochs": epochs}
        changes = {**TINY, "training": training, "data": data}
        legenda.train("flickr8k.transformer", changes, out=tmp_path / "run", stages="first", precision="float32")

    train_on(0, 1)
    train_on(0, 2)
    with pytest.raises(CheckpointError, match=r"data_digest\.features"):
        train_on(1, 3)


@pytest.mark.parametrize("name", ["config.json", STATE])
def test_a_damaged_file_of_the_run_is_named(completed_run, tmp_path, name):
    shutil.copytree(completed_run, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_bytes((completed_run / name).read_bytes()[:50])
    with pytest.raises(LegendaError, match=name):
        run(tmp_path)


def test_features_without_boxes_are_refused_before_anything_is_written(tmp_path):
    data = dataclasses.replace(DATA, has_boxes=False)
    with pytest.raises(LegendaError, match=r"scenes.*boxes.*ngsan"):
        run(tmp_path / "run", data=data)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"label_smoothing": math.nan}, "label_smoothing"),
        ({"betas": (2.0, 0.9)}, r"betas"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be"),
    ],
)
def test_settings_that_no_training_can_follow_are_refused(wrong, message):
    with pytest.raises(LegendaError, match=message):
        TrainingConfig(**wrong)
