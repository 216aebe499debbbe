"""The file of an evaluation, and the settings with which its scores are read."""

import json

import pytest

from legenda.compute import SearchOptions
from legenda.errors import LegendaError
from legenda.evaluation.results import caption_settings, evaluation_path, read_scores, write_evaluation

CONFIG = {"model": {"name": "ngsan", "generation_config": {"max_length": 20}}, "data": {"kind": "scenes", "test": 4}}


def test_scores_are_read_from_a_file_with_the_same_settings_only(tmp_path):
    settings = caption_settings(CONFIG, "test", SearchOptions(beam_size=3), "fast")
    path = evaluation_path(tmp_path, "test")
    assert path.name == "evaluation_test.json"
    assert write_evaluation(path, {"images": 1, **settings}, "captions", {"a": "a dog"}, lambda: {"truth": 0.5}) == {
        "truth": 0.5
    }
    assert read_scores(path, settings) == {"truth": 0.5}
    longer = {**CONFIG, "model": {"name": "ngsan", "generation_config": {"max_length": 30}}}
    for other in (
        caption_settings(CONFIG, "val", SearchOptions(beam_size=3), "fast"),
        caption_settings(CONFIG, "test", SearchOptions(beam_size=2), "fast"),
        caption_settings(CONFIG, "test", SearchOptions(length_penalty=0.7), "fast"),
        caption_settings(CONFIG, "test", SearchOptions(beam_size=3), "auto"),
        caption_settings(CONFIG, "test", SearchOptions(beam_size=3), "fast", {"kind": "karpathy"}),
        caption_settings(longer, "test", SearchOptions(beam_size=3), "fast"),
    ):
        assert read_scores(path, other) is None
    path.write_text("[]")
    assert read_scores(path, settings) is None


def test_predictions_are_written_where_scoring_fails(tmp_path):
    def fail() -> dict[str, float | None]:
        raise LegendaError("no Java")

    settings = caption_settings(CONFIG, "test", SearchOptions(beam_size=3), "auto")
    path = evaluation_path(tmp_path, "test", ensemble=True)
    with pytest.raises(LegendaError, match="no Java"):
        write_evaluation(path, settings, "captions", {"a": "a dog"}, fail)
    written = json.loads(path.read_text())
    assert (written["scores"], written["captions"]) == (None, {"a": "a dog"})
    assert read_scores(path, settings) is None
