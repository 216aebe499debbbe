"""Lists of answers in the layouts of VQA's released codes."""

import json

import pytest

from legenda.errors import DataError
from legenda.text.answers import read_answers


@pytest.mark.parametrize(
    "content",
    [["", "net", "pitcher"], {"net": 1, "": 0, "pitcher": 2}, [{"net": 1, "": 0, "pitcher": 2}, {"0": ""}]],
    ids=["list", "numbers", "release"],
)
def test_answers_are_read_from_every_layout(tmp_path, content):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(content))
    assert read_answers(path).tokens == ("", "net", "pitcher")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"net": 0, "bed": 2}, "does not number its answers"),
        ({"net": "0"}, "has an answer whose id is not an integer"),
        ([], "holds no list of answers"),
        (["net", 3], "holds no list of answers"),
        (["net", "net"], "'net' is on lines 1 and 2"),
    ],
)
def test_invalid_answer_files_raise(tmp_path, content, problem):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"answers.json .*{problem}"):
        read_answers(path)
