"""Word vectors that do not fit a model are refused in one sentence."""

from pathlib import Path

import pytest

from default_data import write_default_data


@pytest.mark.parametrize("recipe", ["vqa2.mcan_small", "refcoco.mcan"])
def test_word_vectors_of_another_width(run_command, tmp_path, monkeypatch, recipe):
    monkeypatch.chdir(tmp_path)
    write_default_data(tmp_path)
    Path("glove.txt").write_text("the 1 2 3\nwhat 4 5 6\n")
    code, _, err = run_command(f"train {recipe} --out new data.vectors=glove.txt")
    assert code == 2
    assert "the word vectors have 3 dimensions but mcan" in err
    assert "takes 300; give others with data.vectors=FILE, or set model.word_dim=3" in err.splitlines()[-1]
