"""`legenda evaluate`: captions and scores of a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from legenda.apps.options import parse
from legenda.errors import UserError
from legenda.files import write_json


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
    from legenda.training.validation import describe_images, score_captions

    opened = open_run(options.run)
    split = opened.data().split(options.split)
    wanted = opened.config.get("extractor")
    if split.extractor != wanted:
        raise UserError(
            f"{split.source} was made by the extractor {split.extractor}, but {options.run} was trained on features of "
            f"{wanted}; put the features of that extractor in their place"
        )
    captions = describe_images(opened.model, split, beam_size=options.beam_size)
    scores = score_captions(captions, split)
    path = write_evaluation(options.run, options.split, options.beam_size, captions, scores)
    for name, value in scores.items():
        print(f"{name:<8} {'none' if value is None else f'{value:.4f}'}")
    print(f"{len(split)} images of {options.split}, beam {options.beam_size}; captions in {path}")


def write_evaluation(
    folder: Path, split: str, beam_size: int, captions: Mapping[str, str], scores: Mapping[str, float | None]
) -> Path:
    """Keeps captions and scores of a split in the run folder, and says in which file."""
    path = folder / f"evaluation_{split}.json"
    settings = {"split": split, "images": len(captions), "beam_size": beam_size}
    write_json(path, {**settings, "scores": scores, "captions": captions})
    return path
