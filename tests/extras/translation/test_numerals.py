"""Numbers in words of two invented languages."""

import pytest

from legenda.extras.translation.data import orrish, tavil


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
