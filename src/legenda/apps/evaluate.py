"""`legenda evaluate`: captions and scores of a split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from legenda.apps.options import parse


@dataclass(frozen=True)
class Options:
    """Captions a split of the run's data, scores it, and writes both to evaluation_SPLIT.json in the run folder."""

    run: tyro.conf.Positional[Path]
    """A run folder."""
    split: Literal["train", "val", "test"] = "val"
    """Which images."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""


def run(arguments: Sequence[str]) -> None:
    """Prints the scores and writes the file."""
    options = parse(Options, arguments, "evaluate")
    from legenda.apps.runs import open_run
    from legenda.files import write_json
    from legenda.training.validation import describe_images, score_captions

    opened = open_run(options.run)
    split = opened.data().split(options.split)
    captions = describe_images(opened.model, split, beam_size=options.beam_size)
    scores = score_captions(captions, split)
    path = options.run / f"evaluation_{options.split}.json"
    settings = {"split": options.split, "images": len(split), "beam_size": options.beam_size}
    write_json(path, {**settings, "scores": scores, "captions": captions})
    for name, value in scores.items():
        print(f"{name:<8} {'none' if value is None else f'{value:.4f}'}")
    print(f"{len(split)} images of {options.split}, beam {options.beam_size}; captions in {path}")
