"""The two files that COCO's captioning server takes: captions of all of val2014 and of all of test2014."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from legenda.errors import UserError
from legenda.io import write_text

if TYPE_CHECKING:
    from legenda.datasets.captions import CaptionDataset
    from legenda.evaluation.runs import CaptionerRun

IMAGES = {"val2014": 40_504, "test2014": 40_775}
"""How many pictures each part of COCO has; the server takes all of them or nothing."""

_NAME = re.compile(r"(?:COCO_(?P<part>[a-z]+2014)_)?(?P<id>[0-9]+)")


def coco_splits(opened: "CaptionerRun", test_features: Path | None) -> "dict[str, CaptionDataset]":
    """The pictures of val2014, from the annotations and features of the run, and of test2014, from `test_features`.

    Raises UserError where the run's data is not COCO, where a picture is missing, and where one is of another part.
    """
    from legenda.datasets.annotations import read_annotations
    from legenda.datasets.captions import KarpathyData, stored_captions
    from legenda.datasets.karpathy import CaptionedImage
    from legenda.features.open import open_features

    data = opened.data()
    if not isinstance(data, KarpathyData):
        raise UserError(f"{opened.folder} was trained on scenes, and --submit is for models of COCO; name such a run")
    if test_features is None:
        raise UserError("--submit also captions test2014; name its features with --test-features")
    known = read_annotations(data.annotations)
    val = [replace(image, captions=()) for image in known if _part(PurePosixPath(image.file).stem) == "val2014"]
    _check_count("val2014", len(val), data.annotations)

    store = open_features(test_features, sizes=data.sizes)
    test = [CaptionedImage(name, name, (), "test") for name in store.ids]
    for name in store.ids:
        if coco_id(name) is None or _part(name) not in (None, "test2014"):
            raise UserError(f"{test_features} holds {name}, no picture of test2014; extract features of those alone")
    _check_count("test2014", len({coco_id(image.id) for image in test}), test_features)
    if wrong := next((image.id for image in val if coco_id(image.id) is None), None):
        raise UserError(f"{data.annotations} calls a picture of val2014 {wrong}, no id of COCO's; give it a cocoid")
    return {
        "val2014": stored_captions(val, open_features(data.features, sizes=data.sizes), data.features),
        "test2014": stored_captions(test, store, test_features),
    }


def coco_id(name: str) -> int | None:
    """The number of a picture of COCO, given as its id or as its file's name without suffix; None for other names."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found["id"])


def write_submission(folder: Path, algorithm: str, captions: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Writes the captions of each part to captions_PART_ALGORITHM_results.json; gives the paths.

    Signs in the algorithm's name that are no letter, digit or hyphen become hyphens: underscores divide a file's name.
    """
    name = re.sub(r"[^A-Za-z0-9-]+", "-", algorithm).strip("-") or "captions"
    paths = []
    for part, told in captions.items():
        entries = [{"image_id": coco_id(image), "caption": caption} for image, caption in told.items()]
        paths.append(folder / f"captions_{part}_{name}_results.json")
        write_text(paths[-1], json.dumps(entries) + "\n")
    return paths


def _part(name: str) -> str | None:
    """Which part of COCO the name of a file tells."""
    found = _NAME.fullmatch(name)
    return None if found is None else found["part"]


def _check_count(part: str, count: int, source: Path) -> None:
    if count != IMAGES[part]:
        raise UserError(
            f"{source} names {count} pictures of {part}, and COCO's server takes captions of all {IMAGES[part]} or none"
        )
