"""Core-hours of claims, and the steps to a score."""

import json

import pytest

from legenda import DataError
from legenda.claims.results import CoreHours, steps_to_reach
from legenda.cli.main import main
from legenda.io import write_json


def test_core_hours_are_counted_after_each_run_so_that_a_killed_claim_loses_at_most_one(tmp_path, monkeypatch):
    write_json(tmp_path / "core_hours.json", {"absent": 1.0, "relations": 2})
    seconds = iter([5.0, 41.0, 95.0, 95.0])
    monkeypatch.setattr("os.times", lambda: (0.0, 0.0, next(seconds), 0.0, 0.0))
    counted = []

    def run_parallel(_work, _environments, after_job):
        for _ in range(2):
            after_job()
            counted.append(json.loads((tmp_path / "core_hours.json").read_text())["absent"])
        return {}

    monkeypatch.setattr("legenda.cli._parallel.run_parallel", run_parallel)
    main(["claim", "absent", "--arms", "base", "--seeds", "2", "--out", str(tmp_path)])
    assert [*counted, json.loads((tmp_path / "absent.json").read_text())["core_hours"]] == [1.01, 1.025, 1.025]
    assert json.loads((tmp_path / "core_hours.json").read_text())["relations"] == 2


def test_steps_count_from_where_the_score_stays():
    scores = [0.2, 0.9, 0.8, None, 0.95, 0.9]
    history = [{"step": 10 * n, "validation": {"truth": value}} for n, value in enumerate(scores, start=1)]
    assert steps_to_reach([{"step": 5, "loss": 1.0}, *history], "truth", 0.9) == 50
    assert steps_to_reach(history[:3], "truth", 0.9) is None


@pytest.mark.parametrize("content", [5, [], {"relations": "x"}, {"relations": None}])
def test_damaged_core_hours_are_one_sentence(tmp_path, content):
    write_json(tmp_path / "core_hours.json", content)
    with pytest.raises(DataError, match="delete it to count from 0"):
        CoreHours(tmp_path, "relations")


def test_claims_with_one_folder_keep_the_core_hours_of_each_other(tmp_path, monkeypatch):
    seconds = iter([0.0, 0.0, 3600.0, 7200.0, 9000.0])
    monkeypatch.setattr("os.times", lambda: (0.0, 0.0, next(seconds), 0.0, 0.0))
    first, second = CoreHours(tmp_path, "relations"), CoreHours(tmp_path, "absent")
    assert [second.count(), first.count(), second.count()] == [1.0, 2.0, 2.5]
    assert json.loads((tmp_path / "core_hours.json").read_text()) == {"relations": 2.0, "absent": 2.5}
