"""The file of an evaluation, and the settings with which its scores are read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from legenda.cli.table import RowRun
from legenda.data.captions import ScenesData
from legenda.errors import LegendaError
from legenda.evaluation.evaluate import caption_settings, evaluate_captions, read_scores, write_evaluation
from legenda.evaluation.runs import load_captioner_run
from legenda.models.weights import save_weights
from legenda.papers import get_recipe
from legenda.run_folder import STAGE_WEIGHTS, WEIGHTS, evaluation_path

CONFIG = {"model": {"name": "ngsan"}, "generation_config": {"max_length": 20}, "data": {"kind": "scenes", "test": 4}}


def test_scores_are_read_from_a_file_with_the_same_settings_only(tmp_path):
    settings = caption_settings(CONFIG, "test", {"beam_size": 3}, "fast")
    path = evaluation_path(tmp_path, "test")
    assert path.name == "evaluation_test.json"
    assert write_evaluation(path, {"images": 1, **settings}, "captions", {"a": "a dog"}, lambda: {"truth": 0.5}) == {
        "truth": 0.5
    }
    assert read_scores(path, settings) == {"truth": 0.5}
    longer = {**CONFIG, "generation_config": {"max_length": 30}}
    for other in (
        caption_settings(CONFIG, "val", {"beam_size": 3}, "fast"),
        caption_settings(CONFIG, "test", {"beam_size": 2}, "fast"),
        caption_settings(CONFIG, "test", {"length_penalty": 0.7}, "fast"),
        caption_settings(CONFIG, "test", {"beam_size": 3}, "auto"),
        caption_settings(CONFIG, "test", {"beam_size": 3}, "fast", {"kind": "karpathy"}),
        caption_settings(longer, "test", {"beam_size": 3}, "fast"),
    ):
        assert read_scores(path, other) is None
    path.write_text("[]")
    assert read_scores(path, settings) is None


def test_a_copied_run_keeps_its_scores_and_other_weights_have_none(make_run, tmp_path):
    run = make_run("transformer", ScenesData(train=6, validation=3, test=2))
    shutil.copyfile(run / WEIGHTS, run / STAGE_WEIGHTS.format(1))
    model = load_captioner_run(run).load_stage(1)
    evaluate_captions(model, (), model.data(), "test", {"beam_size": 1})
    copy = tmp_path / "copied"
    shutil.copytree(run, copy)
    os.utime(copy / "evaluation_test_stage1.json", (1, 1))  # copies have times in any order

    def row(folder: Path) -> RowRun:
        recipe = get_recipe("scenes.transformer").replace(name="a test")
        return RowRun("row", recipe, (folder,), {"test": ""}, {"beam_size": 1}, "fast", stage=1)

    assert row(copy).scores()
    assert row(run).scores() == row(copy).scores()
    weights = {name: value + 1 for name, value in model.model.state_dict().items()}
    save_weights(weights, copy)
    (copy / WEIGHTS).replace(copy / STAGE_WEIGHTS.format(1))
    os.utime(copy / STAGE_WEIGHTS.format(1), (0, 0))
    assert not row(copy).is_evaluated()


def test_predictions_are_written_where_scoring_fails(tmp_path):
    def fail() -> dict[str, float | None]:
        raise LegendaError("no Java")

    settings = caption_settings(CONFIG, "test", {"beam_size": 3}, "auto")
    path = evaluation_path(tmp_path, "test", ensemble=True)
    with pytest.raises(LegendaError, match="no Java"):
        write_evaluation(path, settings, "captions", {"a": "a dog"}, fail)
    written = json.loads(path.read_text())
    assert (written["scores"], written["captions"]) == (None, {"a": "a dog"})
    assert read_scores(path, settings) is None
