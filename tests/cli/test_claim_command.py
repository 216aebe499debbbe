"""`legenda claim`: a tiny claim from its runs to its page, stopped and resumed."""

import json

import pytest

from legenda.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

TINY = """
title = "T"
question = "Q?"
source = "S"
world = "W"
[data]
train = 12
validation = 3
test = 18
[model]
dim = 8
num_heads = 2
num_layers = 1
ff_dim = 8
[training]
epochs = 1
batch_size = 6
eval_beam_size = 1
[fine_tuning]
epochs = 1
[[arms]]
key = "xe"
label = "XE"
recipe = "scenes.transformer"
[[arms]]
key = "sc"
label = "SC"
recipe = "scenes.transformer"
model = { distance = "manhattan" }
fine_tuning = { objective = "self_critical" }
[[measures]]
key = "truth"
label = "truth"
[[measures]]
key = "noise"
label = "noise"
probe = "gradient_noise"
[[measures]]
key = "diversity"
label = "diversity"
probe = "sample_diversity"
[[measures]]
key = "length"
label = "length"
probe = "mean_length"
[[comparisons]]
arm = "sc"
against = "xe"
measure = "truth"
predicted = "higher"
"""


def test_a_claim_is_trained_resumed_and_reported(tmp_path, monkeypatch, capfd):
    (tmp_path / "own").mkdir()
    claim = tmp_path / "own" / "tiny.toml"
    claim.write_text(TINY, encoding="utf-8")
    monkeypatch.setattr("legenda.claims.gradient.NUM_BATCHES", 3)
    monkeypatch.setattr("legenda.claims.gradient.BATCH_SIZE", 4)
    line = ["claim", str(claim), "--out", str(tmp_path), "--seeds"]
    main([*line, "1"])
    first = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert len(first) == 2
    one = json.loads((tmp_path / "tiny.json").read_text())
    main([*line, "2"])
    assert {path: path.stat().st_mtime_ns for path in first} == first  # not trained again
    two = json.loads((tmp_path / "tiny.json").read_text())
    assert two["core_hours"] >= one["core_hours"] > 0
    for arm in ("xe", "sc"):
        assert two["arms"][arm]["seeds"]["0"]["truth"] == one["arms"][arm]["seeds"]["0"]["truth"]
        assert list(two["arms"][arm]["seeds"]) == ["0", "1"]
        assert two["arms"][arm]["steps"] == 4
    assert two["arms"]["xe"]["seeds"]["1"]["noise"] is None
    assert two["arms"]["sc"]["seeds"]["1"]["noise"] is not None
    assert 0 <= two["arms"]["sc"]["seeds"]["1"]["diversity"] <= 1
    assert "No verdict" in (tmp_path / "tiny.md").read_text()
    assert str(tmp_path / "tiny.md") in capfd.readouterr().out
