"""Files of captions that are read: predictions and references.

Image ids are strings here, whatever they are in a file: COCO's 42 becomes "42".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legenda.data.annotations import parse_karpathy
from legenda.errors import DataError
from legenda.io import parse_json, read_text

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


def read_domains(path: str | Path) -> dict[str, list[str]]:
    """Return the ids of the images of each domain in nocaps' annotations: in-domain, near-domain and out-domain.

    Other files have none. Raise DataError for a file that cannot be read, and where only some images have a domain.
    """
    path = Path(path)
    content = _content(path, _REFERENCES)
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not any(isinstance(image, dict) and "domain" in image for image in images):
        return {}
    domains: dict[str, list[str]] = {}
    for number, image in enumerate(images):
        if not isinstance(image, dict) or not isinstance(image.get("domain"), str) or "id" not in image:
            raise DataError(f"{path}: images[{number}] has no id and domain, as others have; {_REFERENCES}")
        domains.setdefault(image["domain"], []).append(str(image["id"]))
    return dict(sorted(domains.items()))


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
