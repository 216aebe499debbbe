"""A page of photographs with captions and things: what users get.

    python research/photo/gallery.py DATA gallery.html [free]

shows the 24 validation photographs of DATA/coco_photos with the lowest numbers, each with the caption of the packaged
model, the boxes of the things that it sees, and its address. free: instead, all photographs that COCO lists without
known copyright restrictions or as works of the United States' government (its license ids 7 and 8), which may be
shown to others; most of them are training photographs, and are marked as such.
"""

import base64
import html
import io
import sys
from pathlib import Path

from PIL import ImageDraw
from vectors import load_images, open_image

import legenda
from legenda.extractors.photo.things import NAMED_SCORE
from legenda.io import write_text

FREE = (7, 8)
SHOWN = 24
PAGE = """<!doctype html><meta charset="utf-8"><title>Captions of photographs</title>
<style>body{{font-family:sans-serif;display:flex;flex-wrap:wrap;gap:1em}}figure{{width:320px;margin:0}}</style>
{figures}
"""


def main() -> None:
    """Write the page."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    entries = sorted(load_images(data, "coco"), key=lambda entry: entry["cocoid"])
    if len(sys.argv) > 3:
        entries = [entry for entry in entries if entry["license"] in FREE]
    else:
        entries = [entry for entry in entries if entry["split"] == "val"][:SHOWN]
    names = [entry["filename"] for entry in entries]
    figures = []
    results = legenda.open("photo").caption_files(names, folder=data / "coco_photos" / "images")
    for entry, result in zip(entries, results, strict=True):
        image = open_image(data, "coco", entry)
        draw = ImageDraw.Draw(image)
        for thing in result.things or ():
            if thing.score >= NAMED_SCORE:
                left, top, right, bottom = thing.box
                corners = (left * image.width, top * image.height, right * image.width, bottom * image.height)
                draw.rectangle(corners, outline="yellow")
                draw.text((corners[0] + 3, corners[1] + 1), f"{thing.label} {thing.score:.2f}", fill="yellow")
        stored = io.BytesIO()
        image.save(stored, "JPEG", quality=85)
        source = base64.b64encode(stored.getvalue()).decode()
        caption, address = html.escape(result.captions[0][0]), html.escape(entry["flickr_url"])
        seen = " (training photograph)" if entry["split"] == "train" else ""
        figures.append(
            f'<figure><img src="data:image/jpeg;base64,{source}" alt=""><figcaption>{caption}<br>'
            f'<small><a href="{address}">{entry["cocoid"]}</a>{seen}</small></figcaption></figure>'
        )
        print(f"{entry['cocoid']}{seen}: {result.captions[0][0]}", flush=True)
    write_text(out, PAGE.format(figures="\n".join(figures)))


if __name__ == "__main__":
    main()
