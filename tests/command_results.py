"""Small inputs and runs of commands, and what commands leave behind: their error messages, files and reports."""

import json
import re
from pathlib import Path

import numpy as np
from PIL import Image

from legenda.cli.main import main

TINY = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8 model.geometry_dim=4"
SHORT = "training.epochs=1 training.batch_size=4 training.captions_per_image=2 training.eval_beam_size=1"
SCENES = "data.train=12 data.validation=3 data.test=4"
"""Options of `train` for a model of scenes within a second."""


def write_captioned_images(folder: Path, count: int, split: str | None = None) -> Path:
    """Write noisy images and a table with two captions of each; return the table, with splits if one is named."""
    lines = [f"file,caption{',split' if split else ''}"]
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        for caption in ("a noisy picture", f"the noise number {number}"):
            lines.append(f"{number}.png,{caption}{f',{split}' if split else ''}")
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")
    return folder / "captions.csv"


def error_of(result: tuple[int, str, str]) -> str:
    """Return the error message of a command that failed with code 2; lines of progress may precede it."""
    code, out, err = result
    assert (code, out) == (2, "")
    *before, sentence = err.splitlines()
    assert sentence.startswith("legenda ")
    assert all(line.startswith(("drawing ", "reading ")) or line.endswith((" pictures", " images")) for line in before)
    return sentence


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def report_data(*arguments: object) -> dict:
    """Call `legenda report` and return the data in the page that it writes; the last argument is the page."""
    main(["report", *map(str, arguments[:-1]), "--out", str(arguments[-1])])
    match = re.search(r'id="page-data">(.*?)</script>', Path(str(arguments[-1])).read_text("utf-8"), re.DOTALL)
    assert match
    return json.loads(match[1])
