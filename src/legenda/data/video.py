"""Captioned videos: VATEX's lists and MSR-VTT's files, as captioned images whose regions are frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from legenda.data.karpathy import CaptionedImage
from legenda.errors import DataError
from legenda.io import get_field

_HINT = "name a file of MSR-VTT, such as train_val_videodatainfo.json"
_MSRVTT_SPLITS = {"train": "train", "validate": "val", "val": "val", "test": "test"}


def is_vatex(content: Any) -> bool:
    """Return whether parsed JSON is a list of VATEX's videos."""
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "videoID" in content[0]


def is_msrvtt(content: Any) -> bool:
    """Return whether parsed JSON is one of MSR-VTT's files."""
    return isinstance(content, dict) and "videos" in content and "sentences" in content


def parse_vatex(content: Sequence[Mapping[str, Any]], path: Path, split: str) -> list[CaptionedImage]:
    """Videos of one of VATEX's files with all their English captions; a test file may have none."""
    videos = []
    for number, entry in enumerate(content):
        try:
            name, captions = entry["videoID"], entry.get("enCap", [])
            if (
                not isinstance(name, str)
                or not isinstance(captions, list)
                or not all(isinstance(caption, str) for caption in captions)
            ):
                raise TypeError
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: entry {number} lacks videoID, or its enCap are no texts") from error
        videos.append(CaptionedImage(name, name, tuple(captions), split))
    return videos


def parse_msrvtt(content: Mapping[str, Any], path: Path) -> list[CaptionedImage]:
    """Videos of one of MSR-VTT's files with their captions, each in the split that it names."""
    captions: dict[str, list[str]] = {}
    for number, entry in enumerate(get_field(content, "sentences", list, str(path), _HINT)):
        try:
            if not isinstance(entry["caption"], str):
                raise TypeError
            captions.setdefault(entry["video_id"], []).append(entry["caption"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: sentences[{number}] lacks video_id or a text as caption") from error
    videos = []
    for number, entry in enumerate(get_field(content, "videos", list, str(path), _HINT)):
        try:
            name, split = entry["video_id"], _MSRVTT_SPLITS[entry["split"]]
        except (KeyError, TypeError) as error:
            known = ", ".join(_MSRVTT_SPLITS)
            raise DataError(f"{path}: videos[{number}] lacks video_id, or its split is none of {known}") from error
        videos.append(CaptionedImage(name, name, tuple(captions.pop(name, ())), split))
    if captions:
        raise DataError(f"{path} has captions of {next(iter(captions))}, which is not among its 'videos'")
    return videos
