"""Attention drawn over pictures: what is bright, what is dark, what is red."""

import numpy as np
from PIL import Image
from scipy import ndimage

from legenda.photo.regions import Thing
from legenda.pipeline import GeneratedCaption, ImageCaptions
from legenda.report.overlay import average_heads, blank_canvas, boxes_sheet, draw_overlay, draw_words

RED = (224, 0, 43)
PAPER = (250, 249, 246)
LEFT, RIGHT = [0.1, 0.3, 0.4, 0.7], [0.6, 0.3, 0.9, 0.7]


def _grey(width: int = 200, height: int = 100) -> Image.Image:
    return Image.new("RGB", (width, height), (200, 200, 200))


def _red(picture: Image.Image) -> np.ndarray:
    return (np.asarray(picture) == RED).all(axis=-1)


def test_the_strongest_region_is_red_and_bright_and_the_rest_is_dark():
    shown = draw_overlay(_grey(), [LEFT, RIGHT], [0.2, 0.8])
    pixels = np.asarray(shown).astype(int)
    assert shown.size == (200, 100)
    assert pixels[50, 150].tolist() == [200, 200, 200]
    assert pixels[95, 100, 0] < 70  # outside all regions: 0.72 of the shade
    assert 70 < pixels[50, 50, 0] < 150  # a quarter of the way from dark to bright
    rows, columns = np.nonzero(_red(shown))
    assert rows.size > 0
    assert columns.min() >= 115  # nothing of the left region
    assert columns.max() <= 184


def test_a_region_that_is_the_whole_image_counts_only_alone():
    both = draw_overlay(_grey(), [LEFT, RIGHT, [0, 0, 1, 1]], [0.1, 0.2, 0.7])
    assert (np.asarray(both) == np.asarray(draw_overlay(_grey(), [LEFT, RIGHT], [0.1, 0.2]))).all()
    assert _red(draw_overlay(_grey(), [[0, 0, 1, 1]], [0.7])).any()


def test_heads_are_averaged_or_chosen():
    attention = np.arange(12.0).reshape(2, 2, 3)
    assert average_heads(attention).tolist() == [[1.5, 2.5, 3.5], [7.5, 8.5, 9.5]]
    assert average_heads(attention, 1).tolist() == [[3, 4, 5], [9, 10, 11]]


def test_a_sheet_has_the_picture_and_a_tile_for_each_word():
    attention = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    sheet = draw_words(_grey(), [LEFT, RIGHT], ["a", "red", "x" * 200], attention, title="t", side=200, columns=2)
    assert sheet.size == (2 * 210 + 10, 2 * (100 + 26 + 10) + 26 + 36)
    _, frames = ndimage.label(ndimage.binary_closing(_red(sheet), iterations=3))
    assert frames >= 3  # one red frame a word


def test_a_blank_canvas_shows_where_regions_lie():
    canvas = np.asarray(blank_canvas([LEFT]))
    different = (canvas != PAPER).any(axis=-1)
    rows, columns = np.nonzero(different)
    assert (columns.min(), columns.max()) == (38, 153)
    assert (rows.min(), rows.max()) == (86, 201)
    assert not different[144, 100]  # only its outline


def test_things_of_one_class_have_one_color_whatever_their_scores():
    boxes = (0.1, 0.3, 0.4, 0.9), (0.6, 0.3, 0.9, 0.9)
    things = tuple(Thing("dog", score, box) for score, box in zip((1.0, 0.53), boxes, strict=True))
    caption = GeneratedCaption((), (), 0.0, 0.0, np.zeros((0, 1, 0)), np.zeros((0, 4)), things)
    sheet = boxes_sheet(ImageCaptions("a.png", (caption,), pixels=_grey(200, 200)))
    first, second = (sheet.getpixel((round(200 * box[0]), 120)) for box in boxes)
    assert first == second != _grey().getpixel((0, 0))
