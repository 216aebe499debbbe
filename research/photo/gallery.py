"""A page of photographs with captions and things: what users get.

    python research/photo/gallery.py DATA gallery.html
    python research/photo/gallery.py DATA docs/gallery.md SKIMAGE

The first shows the 24 validation photographs of DATA/coco_photos with the lowest numbers, each with the caption of the
packaged model, the boxes of the things that it sees, and its address. The second shows what may be shown to others:
all photographs there that COCO lists without known copyright restrictions or as works of the United States' government
(its license ids 7 and 8; most are training photographs, and marked as such), and the everyday photographs in SKIMAGE,
the folder skimage/data of scikit-image's wheel, that its documentation releases as CC0 or into the public domain. The
pictures are written beside the page, into a folder of its name.
"""

import html
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from coco import read_photographs
from PIL import Image, ImageDraw

import legenda
from legenda.images import read_image
from legenda.io import write_text
from legenda.photo.regions import NAMED_SCORE, Thing

FREE = (7, 8)
SHOWN = 24
SKIMAGE = ("astronaut.png", "camera.png", "chelsea.png", "clock_motion.png", "coffee.png", "coins.png", "rocket.jpg")
SIDE = 320
HEADS = {
    ".html": """<!doctype html><meta charset="utf-8"><title>Captions of photographs</title>
<style>body{font-family:sans-serif;display:flex;flex-wrap:wrap;gap:1em}figure{width:320px;margin:0}</style>
""",
    ".md": """# Gallery

Captions by the [packaged model](reference/photo.md), right and wrong ones alike, with the things that it detects.

The photographs were chosen by number, not by hand: of 5,820 photographs of COCO all that are without known copyright
restrictions (license 7 in its annotations; none has license 8, works of the United States' government), and the
everyday photographs that come with scikit-image. The model was trained on those marked "training photograph".

`python research/photo/gallery.py DATA docs/gallery.md SKIMAGE` makes this page.

""",
}


def main() -> None:
    """Write the page and its pictures."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    skimage = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    notes = dict(choose(data, skimage))
    figures = []
    for path, result in zip(notes, legenda.open("photo").caption_files([str(path) for path in notes]), strict=True):
        caption = result.captions[0].text
        draw_things(path, result.captions[0].things or ()).save(folder / f"{path.stem}.jpg", quality=80)
        source = f"{folder.name}/{path.stem}.jpg"
        figures.append(
            f'<figure><img src="{source}" alt="{path.stem}"><figcaption>{html.escape(caption)}<br>'
            f"<small>{notes[path]}</small></figcaption></figure>"
        )
        print(f"{path.stem}: {caption}", flush=True)
    write_text(out, HEADS[out.suffix] + "\n".join(figures) + "\n")


def choose(data: Path, skimage: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the photographs, each with its origin as HTML."""
    entries = sorted(read_photographs(data), key=lambda entry: entry["cocoid"])
    validation = [e for e in entries if e["split"] == "val" and e["folder"].parent.name == "coco_photos"]
    free = [entry for entry in entries if entry["license"] in FREE]
    for entry in validation[:SHOWN] if skimage is None else free:
        origin = f'<a href="{html.escape(entry["flickr_url"])}">COCO {entry["cocoid"]}</a>'
        note = ", training photograph" if entry["split"] == "train" else ""
        yield entry["folder"] / entry["filename"], origin + note
    for name in () if skimage is None else SKIMAGE:
        yield skimage / name, f"scikit-image, {name}"


def draw_things(path: Path, things: Sequence[Thing]) -> Image.Image:
    """Return a small picture of a photograph with the boxes of the things of good score."""
    image = read_image(path)
    image.thumbnail((SIDE, SIDE))
    draw = ImageDraw.Draw(image)
    for thing in things:
        if thing.score >= NAMED_SCORE:
            left, top, right, bottom = thing.box
            corners = (left * image.width, top * image.height, right * image.width - 1, bottom * image.height - 1)
            draw.rectangle(corners, outline="yellow")
            draw.text((corners[0] + 3, corners[1] + 1), f"{thing.label} {thing.score:.2f}", fill="yellow")
    return image


if __name__ == "__main__":
    main()
