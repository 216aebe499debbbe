"""Numbers in words of two invented languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.extras import translation as number_words
from legenda.extras.translation import LARGEST, orrish, tavil

numbers = st.integers(0, LARGEST)


def read_tavil(text: str) -> int:
    """The number, read by the rules alone."""
    if text == "nol":
        return 0
    total, part, digit = 0, 0, 0
    for word in text.split():
        if word in number_words._DIGITS:
            part, digit = part + digit, number_words._DIGITS.index(word)
        elif word == "hun":
            part, digit = part + 100 * digit, 0
        elif word == "den":
            part, digit = part + 10 * digit, 0
        else:
            assert word == "tus"
            total, part, digit = 1000 * (part + digit), 0, 0
    return total + part + digit


def read_orrish(text: str) -> int:
    """The same: a rank begins a part, and the first part has none."""
    if text == "vaal":
        return 0
    total, rank = 0, 0
    for word in text.split():
        if word in number_words._RANKS:
            rank = number_words._RANKS.index(word)
        elif word in number_words._ONES:
            total += number_words._ONES.index(word) * 100**rank
        else:
            total += 10 * number_words._TENS.index(word) * 100**rank
    return total


@pytest.mark.parametrize(
    ("number", "first", "second"),
    [
        (0, "nol", "vaal"),
        (7, "nai", "ontu"),
        (10, "lam den", "oskri"),
        (21, "sor den lam", "osk ebri"),
        (100, "lam hun", "ung osk"),
        (1_000, "lam tus", "ung oskri"),
        (305_021, "mir hun fel tus sor den lam", "osk ebri ung drel wem ushti"),
        (999_999, "zin hun zin den zin tus zin hun zin den zin", "ewi ewri ung ewi ewri wem ewi ewri"),
    ],
)
def test_numbers_spelled_by_hand(number, first, second):
    assert tavil(number) == first
    assert orrish(number) == second


@given(numbers)
def test_tavil_reads_back(number):
    assert read_tavil(tavil(number)) == number


@given(numbers)
def test_orrish_reads_back(number):
    assert read_orrish(orrish(number)) == number
