"""How a sentence names what was meant."""

import pytest

from legenda.errors import did_you_mean


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("trian", "did you mean train?"),
        ("evalute", "did you mean evaluate?"),
        ("zzz", "choose from caption, evaluate, train"),
        ("", "choose from caption, evaluate, train"),
    ],
)
def test_the_nearest_word_is_named_or_all_of_them_in_order(word, expected):
    assert did_you_mean(word, ("train", "evaluate", "caption")) == expected
    assert did_you_mean(word, iter({"evaluate": 1, "caption": 2, "train": 3})) == expected
