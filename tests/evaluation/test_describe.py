"""The scores in a model card."""

import pytest

from legenda.data.captions import ScenesData
from legenda.evaluation.describe import model_card
from legenda.evaluation.runs import load_run
from legenda.io import write_json
from legenda.run_folder import evaluation_path


@pytest.fixture(scope="module")
def run(make_run):
    return load_run(make_run("transformer", ScenesData(train=6, validation=3, test=2)))


def write(run, split, score, name=None, **changes):
    path = evaluation_path(run.folder, name or split)
    content = {"split": split, "beam_size": 1, "images": 3, "scores": {"BLEU-1": score}, "weights": [run.weights]}
    write_json(path, content | changes)
    return path


def test_the_card_has_scores_of_these_weights_alone(run, caplog):
    write(run, "val", 0.1)
    write(run, "val", 0.2, "val_stage1")
    write(run, "val", 0.3, "val_ensemble", runs=["a", "b"])
    write(run, "test", 0.4, weights=["crc32:00000000"])
    card = model_card(run, "somebody/scenes")
    assert [score for score in ("0.1000", "0.2000", "0.3000", "0.4000") if score in card] == ["0.1000"]
    assert "evaluation_test.json, which is of other weights" in caplog.text
