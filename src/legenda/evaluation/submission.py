"""The files that COCO's and EvalAI's servers take."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from legenda.data.annotations import COCO_NAME, CaptionedImage, coco_id, read_annotations
from legenda.data.captions import CaptionDataset, KarpathyData, stored_captions
from legenda.data.features.readers import open_features
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import CaptionerRun
from legenda.extras.vqa import write_vqa_results
from legenda.io import write_text

IMAGE_COUNTS = {"val2014": 40_504, "test2014": 40_775}
"""The number of images of each part of COCO; the server takes captions of all of them or none."""


def coco_splits(run: CaptionerRun, test_features: Path | None) -> dict[str, CaptionDataset]:
    """Return val2014, from the annotations and features of the run, and test2014, from `test_features`.

    Raise LegendaError where the run's data is not COCO, an image is missing, or an image is of another part.
    """
    data = run.data()
    if not isinstance(data, KarpathyData):
        raise ConfigError(f"--submission-dir is for models of COCO, but {run.folder} was trained on other data")
    if test_features is None:
        raise ConfigError("--submission-dir also captions test2014; name its features with --test-features")
    images = read_annotations(data.annotations)
    val = [replace(image, captions=()) for image in images if _part(PurePosixPath(image.file).stem) == "val2014"]
    _check_count("val2014", len(val), data.annotations)

    store = open_features(test_features, sizes=data.sizes)
    test = [CaptionedImage(name, name, (), "test") for name in store.ids]
    for name in store.ids:
        if coco_id(name) is None or _part(name) not in (None, "test2014"):
            raise DataError(
                f"{test_features} holds {name}, which is not an image of test2014; extract features of test2014 only"
            )
    _check_count("test2014", len({coco_id(image.id) for image in test}), test_features)
    if wrong := [image.id for image in val if coco_id(image.id) is None]:
        raise DataError(
            f"{data.annotations} gives an image of val2014 the id {wrong[0]}, not one of COCO; add a cocoid"
        )
    return {
        "val2014": stored_captions(val, data.open_store()),
        "test2014": stored_captions(test, store),
    }


def write_submission(folder: Path, algorithm: str, captions: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Write the captions of each part to captions_PART_ALGORITHM_results.json and return the paths.

    Characters of `algorithm` other than letters, digits and hyphens become hyphens, as underscores separate the fields
    of the file name.
    """
    name = _field(algorithm)
    paths = []
    for part, by_image in captions.items():
        entries = [{"image_id": coco_id(image), "caption": caption} for image, caption in by_image.items()]
        paths.append(folder / f"captions_{part}_{name}_results.json")
        write_text(paths[-1], json.dumps(entries) + "\n")
    return paths


def write_answers(folder: Path, algorithm: str, split: str, answers: Mapping[str, str]) -> Path:
    """Write the answers of a split of VQA v2 to v2_OpenEnded_mscoco_PART_ALGORITHM_results.json and return the path."""
    part = f"{split}2015" if split.startswith("test") else f"{split}2014"
    path = folder / f"v2_OpenEnded_mscoco_{part}_{_field(algorithm)}_results.json"
    write_vqa_results(path, answers)
    return path


def _field(algorithm: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", algorithm).strip("-") or "captions"


def _part(name: str) -> str | None:
    """Return the part of COCO in the name of an image file."""
    match = COCO_NAME.fullmatch(name)
    return None if match is None else match["part"]


def _check_count(part: str, count: int, source: Path) -> None:
    if count != IMAGE_COUNTS[part]:
        raise DataError(
            f"{source} names {count} images of {part}, but COCO's server takes captions of all {IMAGE_COUNTS[part]} "
            "or none"
        )
