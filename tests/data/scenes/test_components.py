"""Connected components are those of SciPy, in the same order."""

import numpy as np
import pytest

from legenda.data.scenes.pixels import find_components


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.6, 1.0])
def test_components_are_those_of_scipy(share):
    ndimage = pytest.importorskip("scipy.ndimage", reason="needs SciPy to compare with")
    random = np.random.default_rng(int(share * 100))
    for shape in [(1, 1), (1, 9), (9, 1), (3, 4), (20, 31), (64, 64)]:
        filled = random.random(shape) < share
        labels, sizes, slices = find_components(filled)
        expected, count = ndimage.label(filled, structure=np.ones((3, 3)))
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_array_equal(sizes, np.bincount(expected.ravel(), minlength=count + 1))
        assert slices == ndimage.find_objects(expected)


def test_a_spiral_is_one_component():
    """The worst case: roots pass through every turn."""
    side = 41
    filled = np.zeros((side, side), bool)
    row = column = 0
    steps = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    for turn, length in enumerate([side - 1, *(part for n in range(side - 1, 1, -2) for part in (n, n))]):
        for _ in range(length):
            filled[row, column] = True
            row, column = row + steps[turn % 4][0], column + steps[turn % 4][1]
    labels, sizes, _ = find_components(filled)
    assert labels.max() == 1
    assert sizes[1] == filled.sum()
