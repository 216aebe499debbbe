"""From a scene to pixels, and from the pixels of any such picture back to regions."""

import math

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from legenda.data.scenes.world import COLOURS, Scene, Thing
from legenda.errors import UserError

SIDE = 224
"""Pixels of a drawn picture's side."""
PATCH = 8
"""Every found thing becomes a patch of PATCH x PATCH pixels, whatever its size."""
FEATURE_DIM = PATCH * PATCH * 3

_PACK = np.array([65536, 256, 1])
_LEAST_PIXELS = 12
_CONTRAST = 30


def draw_scene(scene: Scene) -> Image.Image:
    """The picture of a scene, RGB, SIDE x SIDE, drawn with hard edges."""
    picture = Image.new("RGB", (SIDE, SIDE), scene.ground)
    brush = ImageDraw.Draw(picture)
    for thing in scene.things:
        _draw(brush, thing, scene.ground)
    return picture


def _draw(brush: ImageDraw.ImageDraw, thing: Thing, ground: tuple[int, int, int]) -> None:
    left, top, right, bottom = (round(edge * SIDE) for edge in thing.box)
    right, bottom = right - 1, bottom - 1
    width, height = right - left, bottom - top
    colour = COLOURS[thing.colour]

    def at(*corners: tuple[float, float]) -> list[tuple[float, float]]:
        return [(left + x * width, top + y * height) for x, y in corners]

    match thing.shape:
        case "circle":
            brush.ellipse((left, top, right, bottom), fill=colour)
        case "square":
            brush.rectangle((left, top, right, bottom), fill=colour)
        case "triangle":
            brush.polygon(at((0.5, 0), (1, 1), (0, 1)), fill=colour)
        case "diamond":
            brush.polygon(at((0.5, 0), (1, 0.5), (0.5, 1), (0, 0.5)), fill=colour)
        case "star":
            brush.polygon(at(*_STAR), fill=colour)
        case "cross":
            brush.rectangle((*at((0, 1 / 3))[0], *at((1, 2 / 3))[0]), fill=colour)
            brush.rectangle((*at((1 / 3, 0))[0], *at((2 / 3, 1))[0]), fill=colour)
        case "ring":
            brush.ellipse((left, top, right, bottom), fill=colour)
            brush.ellipse((*at((0.27, 0.27))[0], *at((0.73, 0.73))[0]), fill=ground)
        case "frame":
            brush.rectangle((left, top, right, bottom), fill=colour)
            brush.rectangle((*at((0.25, 0.25))[0], *at((0.75, 0.75))[0]), fill=ground)
        case unknown:
            raise ValueError(f"no brush draws a {unknown}")


def _star_corners() -> tuple[tuple[float, float], ...]:
    """A five-pointed star stretched to fill the unit square."""
    turns = [math.pi * (i / 5 - 0.5) for i in range(10)]
    corners = [(r * math.cos(t), r * math.sin(t)) for r, t in zip([1.0, 0.4] * 5, turns, strict=True)]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return tuple(((x - min(xs)) / (max(xs) - min(xs)), (y - min(ys)) / (max(ys) - min(ys))) for x, y in corners)


_STAR = _star_corners()


def find_things(picture: Image.Image) -> tuple[np.ndarray, np.ndarray]:
    """Regions of a picture of things on a plain ground: features `(n, FEATURE_DIM)` and boxes `(n, 4)`.

    The ground is the commonest colour along the border; what stands out from it falls into connected components.
    Each component's crop, with everything else blanked out, is resized to PATCH x PATCH and given relative to the
    ground, so its features tell neither size, nor place, nor neighbours; the boxes, in 0..1, tell where it lies.
    Raises UserError when nothing stands out.
    """
    pixels = np.asarray(picture.convert("RGB"))
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).astype(np.int32)
    codes, counts = np.unique(border @ _PACK, return_counts=True)
    ground = codes[counts.argmax()] // _PACK % 256
    standing_out = _differs(pixels, ground)
    labels, _ = ndimage.label(standing_out, structure=np.ones((3, 3)))
    height, width = labels.shape
    features, boxes = [], []
    for number, place in enumerate(ndimage.find_objects(labels), start=1):
        own = labels[place] == number
        if own.sum() < _LEAST_PIXELS:
            continue
        rows, columns = place
        features.append(_patch(pixels[place], own, ground))
        boxes.append((columns.start / width, rows.start / height, columns.stop / width, rows.stop / height))
    if not features:
        raise UserError("the picture shows nothing on a plain ground; give one like those that `legenda demo` draws")
    return np.stack(features), np.asarray(boxes, dtype=np.float32)


def _differs(pixels: np.ndarray, ground: np.ndarray) -> np.ndarray:
    """Where any channel is further than _CONTRAST from the ground."""
    lower, upper = ground - _CONTRAST, ground + _CONTRAST
    outside = [(pixels[..., c] < lower[c]) | (pixels[..., c] > upper[c]) for c in range(3)]
    return outside[0] | outside[1] | outside[2]


def _patch(crop: np.ndarray, own: np.ndarray, ground: np.ndarray) -> np.ndarray:
    alone = np.where(own[..., None], crop, ground).astype(np.uint8)
    small = Image.fromarray(alone).resize((PATCH, PATCH), Image.Resampling.BILINEAR)
    return ((np.asarray(small, dtype=np.float32) - ground) / 128.0).astype(np.float32).reshape(-1)


def extract(pictures: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """The extractor of scenes, of the same form as a user's own: features and boxes of each picture."""
    return [find_things(picture) for picture in pictures]
