"""Files of captions: predictions and references read, captions written, and the files that evaluation servers take.

Image ids are strings here, whatever they are in a file: COCO's 42 becomes "42".
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from legenda.data.annotations import CaptionedImage, parse_karpathy, read_annotations
from legenda.data.captions import CaptionDataset, KarpathyData, stored_captions
from legenda.data.features.readers import open_features
from legenda.data.vqa import write_vqa_results
from legenda.errors import ConfigError, DataError
from legenda.evaluation.runs import CaptionerRun
from legenda.extractors.photo.things import Thing
from legenda.io import parse_json, read_text, write_text
from legenda.terminal import escape_controls

_RESULTS = 'give a list of {"image_id", "caption"} as for COCO, or an object {id: caption}'
_REFERENCES = "give COCO's or Karpathy's annotations, or an object {id: [captions]}"


def read_predictions(path: str | Path) -> dict[str, list[str]]:
    """Return the captions of each image in a file of predictions, JSON or gzipped JSON, in the file's order.

    The file holds a list of objects with `image_id` and `caption`, as COCO's server takes it, or an object from ids to
    one caption or to a list of several, or what `legenda evaluate` writes. A caption may be empty.
    Raise DataError, naming the file and the image, for an id that occurs twice and for a caption that is not text.
    """
    path = Path(path)
    content = _content(path, _RESULTS)
    if isinstance(content, dict) and isinstance(content.get("captions"), dict):
        content = content["captions"]
    if isinstance(content, dict):
        predictions = {name: _captions(path, name, value, _RESULTS) for name, value in content.items()}
    elif isinstance(content, list):
        predictions = {}
        for number, entry in enumerate(content):
            name, caption = _entry(path, f"entry {number}", entry, _RESULTS)
            if name in predictions:
                raise DataError(f"{path} has more than one caption for image {name}; leave one")
            predictions[name] = [caption]
    else:
        raise DataError(f"{path} holds a JSON {type(content).__name__}; {_RESULTS}")
    if not predictions:
        raise DataError(f"{path} holds no captions; {_RESULTS}")
    return predictions


def read_single_predictions(path: str | Path) -> dict[str, str]:
    """Return the caption of each image as `read_predictions` does; raise DataError for an image with several."""
    groups = read_predictions(path)
    if several := [image for image, group in groups.items() if len(group) > 1]:
        raise DataError(f"{path} has several captions for image {several[0]}; only one can be compared")
    return {image: group[0] for image, group in groups.items()}


def read_references(path: str | Path, *, split: str | None = None) -> dict[str, list[str]]:
    """Return the references of each image in a file, JSON or gzipped JSON, in the file's order.

    The file is COCO's annotations (captions_val2014.json), or in Karpathy's layout (dataset_coco.json), or an object
    from ids to lists of captions. Images without references are left out.
    split: only the images of train, val or test; only Karpathy's layout has splits.
    Raise DataError, naming the file and the image, for what is missing or not text, and where there are no references.
    """
    path = Path(path)
    content = _content(path, _REFERENCES)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a JSON {type(content).__name__}; {_REFERENCES}")
    references: dict[str, list[str]] = {}
    if isinstance(content.get("images"), list) and "annotations" not in content:
        for image in parse_karpathy(content, path):
            if split in (None, image.split) and image.captions:
                references[image.id] = list(image.captions)
    elif split is not None:
        raise DataError(f"{path} does not say which images are of the split {split}; only Karpathy's layout does")
    elif isinstance(content.get("annotations"), list):
        for number, entry in enumerate(content["annotations"]):
            name, caption = _entry(path, f"annotations[{number}]", entry, _REFERENCES)
            references.setdefault(name, []).append(caption)
    else:
        references = {name: _captions(path, name, value, _REFERENCES) for name, value in content.items()}
    if not references:
        where = "" if split is None else f" for the split {split}"
        raise DataError(f"{path} holds no references{where}; {_REFERENCES}")
    return references


def _content(path: Path, hint: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return a JSON object as a dict; raise DataError for a repeated key, which `json` itself ignores."""
        content: dict[str, Any] = {}
        for key, value in pairs:
            if key in content:
                raise DataError(f"{path} cannot be read ({key} occurs twice); {hint}")
            content[key] = value
        return content

    return parse_json(read_text(path, hint), path, hint, object_pairs_hook=unique)


def _captions(path: Path, name: str, value: Any, hint: str) -> list[str]:
    captions = value if isinstance(value, list) else [value]
    if not captions:
        raise DataError(f"{path} has no caption for image {name}; {hint}")
    return [_text(path, name, caption, hint) for caption in captions]


def _entry(path: Path, where: str, entry: Any, hint: str) -> tuple[str, str]:
    if not isinstance(entry, Mapping) or "image_id" not in entry or "caption" not in entry:
        raise DataError(f"{path}: {where} has no 'image_id' and 'caption'; {hint}")
    name = entry["image_id"]
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise DataError(f"{path}: the 'image_id' of {where} is {type(name).__name__}; give a number or text")
    return str(name), _text(path, str(name), entry["caption"], hint)


def _text(path: Path, name: str, caption: Any, hint: str) -> str:
    if not isinstance(caption, str):
        raise DataError(f"{path}: the caption of image {name} is {type(caption).__name__}, not text; {hint}")
    return caption


Format = Literal["text", "json", "csv", "coco"]


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image, best first, each with the score the search ranked it by, or why there are none.

    things: what the extractor `photo` sees, best first; None for other extractors.
    """

    image: str
    captions: tuple[tuple[str, float], ...] = ()
    error: str | None = None
    things: tuple[Thing, ...] | None = None


def format_captions(results: Iterable[ImageCaptions], output_format: Format) -> Iterator[str]:
    """Yield the lines of an output, without line ends, each as soon as its image is captioned.

    text: image, its control characters and line feeds as escapes, and caption, with the score where an image has
    several; json: a list of objects with `image`, `captions` and, with the extractor `photo`, `things`; csv: image,
    rank, score and caption, with a header; coco: a list of objects with `image_id` and `caption`. Raise ConfigError for
    an image whose name is not one of COCO's.
    """
    if output_format == "text":
        yield from _text_lines(results)
    elif output_format == "csv":
        yield from _csv_lines(results)
    else:
        yield from _json_lines(map(_coco_entry if output_format == "coco" else json_entry, results))


def _text_lines(results: Iterable[ImageCaptions]) -> Iterator[str]:
    for result in results:
        name = escape_controls(result.image).replace("\n", "\\n")
        for caption, score in result.captions:
            prefix = f"{score:.3f} " if len(result.captions) > 1 else ""
            yield f"{name}: {prefix}{caption}"


def _csv_lines(results: Iterable[ImageCaptions]) -> Iterator[str]:
    yield "image,rank,score,caption"
    for result in results:
        for rank, (caption, score) in enumerate(result.captions, start=1):
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow([result.image, rank, f"{score:.6f}", caption])
            yield line.getvalue()


def _json_lines(entries: Iterable[dict[str, object]]) -> Iterator[str]:
    """Yield one JSON list, an entry a line."""
    pending = "["
    for entry in entries:
        if pending != "[":
            yield pending + ","
        pending = ("[" if pending == "[" else " ") + json.dumps(entry, ensure_ascii=False)
    yield pending + "]"


def json_entry(result: ImageCaptions) -> dict[str, object]:
    """Return the captions of an image with their scores, and its things with boxes and scores, for JSON."""
    captions = [{"caption": caption, "score": round(score, 6)} for caption, score in result.captions]
    entry: dict[str, object] = {"image": result.image, "captions": captions}
    return entry if result.things is None else {**entry, "things": [vars(thing) for thing in result.things]}


def check_coco_names(names: Iterable[str]) -> None:
    """Raise ConfigError unless all file names are those of COCO images, each with its own id."""
    images: dict[int, str] = {}
    for name in names:
        first = images.setdefault(_coco_id(name), name)
        if first is not name:
            raise ConfigError(
                f"{first} and {name} have the COCO id {_coco_id(name)}; leave one of them out, or use --format json"
            )


def _coco_id(name: str) -> int:
    image_id = coco_id(Path(name).stem)
    if image_id is None:
        raise ConfigError(f"{name} is not the name of a COCO image, which ends in its id; use --format json")
    return image_id


def _coco_entry(result: ImageCaptions) -> dict[str, object]:
    return {"image_id": _coco_id(result.image), "caption": result.captions[0][0]}


IMAGE_COUNTS = {"val2014": 40_504, "test2014": 40_775}
"""The number of images of each part of COCO; the server takes captions of all of them or none."""

_NAME = re.compile(r"(?:COCO_(?P<part>[a-z]+2014)_)?(?P<id>[0-9]+)")


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


def coco_id(name: str) -> int | None:
    """Return the id of a COCO image, given its id or file name without suffix as text; None for other names."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match["id"])


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
    match = _NAME.fullmatch(name)
    return None if match is None else match["part"]


def _check_count(part: str, count: int, source: Path) -> None:
    if count != IMAGE_COUNTS[part]:
        raise DataError(
            f"{source} names {count} images of {part}, but COCO's server takes captions of all {IMAGE_COUNTS[part]} "
            "or none"
        )
