"""CLIPScore and RefCLIPScore: how well captions fit their images, by a CLIP model (Hessel et al., EMNLP 2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from legenda.errors import ConfigError, DataError, first_line, import_extra
from legenda.io import coco_number
from legenda.metrics.evaluation import Scores

_PROMPT = "A photo depicts "
"""The prefix of every caption and reference (section 3)."""
_WEIGHT = 2.5
"""The factor of the cosine (section 3)."""
_BATCH = 32


class ClipModel:
    """The image and text towers of a CLIP model of transformers, with features of length 1.

    name: a model of the hub, such as openai/clip-vit-base-patch32, which the paper has, or a folder. Raise ConfigError
    where it cannot be loaded.
    """

    def __init__(self, name: str, device: torch.device | str = "cpu") -> None:
        transformers = import_extra("transformers", "vision")
        try:
            self._model: Any = transformers.CLIPModel.from_pretrained(name, dtype=torch.float32).eval().to(device)
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(name)
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(name)
        except Exception as error:  # the hub, its cache and its files raise exceptions of any type
            raise ConfigError(
                f"{name} cannot be loaded as a CLIP model ({first_line(error)}); name one of the hub or a folder"
            ) from error

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Float[Tensor, "N D"]:
        """Return the features of texts, which follow the prompt and are cut to the model's length."""
        length = self._model.config.text_config.max_position_embeddings
        prompted = [_PROMPT + text for text in texts]
        tokens = self._tokenizer(prompted, padding=True, truncation=True, max_length=length, return_tensors="pt")
        pooled = self._model.text_model(
            input_ids=tokens["input_ids"].to(self._model.device),
            attention_mask=tokens["attention_mask"].to(self._model.device),
        ).pooler_output
        return F.normalize(self._model.text_projection(pooled), dim=-1)

    @torch.inference_mode()
    def embed_images(self, images: Sequence[object]) -> Float[Tensor, "N D"]:
        """Return the features of PIL images."""
        pixels = self._processor(list(images), return_tensors="pt")["pixel_values"].to(self._model.device)
        pooled = self._model.vision_model(pixel_values=pixels).pooler_output
        return F.normalize(self._model.visual_projection(pooled), dim=-1)


@cache
def load_clip(name: str, device: str = "cpu") -> ClipModel:
    """Return a model by name on a device, loaded once."""
    return ClipModel(name, device)


def clip_score(images: Float[Tensor, "N D"], captions: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """Return 2.5 max(cos(c, v), 0) of each caption c and its image v, both of length 1 (Eq. 1)."""
    return _WEIGHT * (captions * images).sum(dim=-1).clamp(min=0)


def ref_clip_score(
    scores: Float[Tensor, " N"], captions: Float[Tensor, "N D"], references: Sequence[Float[Tensor, "R D"]]
) -> Float[Tensor, " N"]:
    """Return the harmonic mean of CLIPScore and max(max_r cos(c, r), 0) over the references r of an image (Eq. 2)."""
    nearest = torch.stack([(group @ caption).max() for caption, group in zip(captions, references, strict=True)])
    nearest = nearest.clamp(min=0)
    return 2 * scores * nearest / (scores + nearest).clamp(min=1e-12)


def add_clip_scores(
    scores: Scores[str],
    captions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    images: Mapping[str, Path],
    model: ClipModel,
    progress: Callable[[int, int], None] | None = None,
) -> Scores[str]:
    """Return the scores with "CLIPScore" and "RefCLIPScore", the mean over images, and those of each image.

    images: the file of each caption's image. progress: called with the numbers of images done and of all.
    """
    from legenda.images.files import read_image  # metrics are loaded before extractors

    names = list(scores.per_image)
    per_image = {name: dict(values) for name, values in scores.per_image.items()}
    for start in range(0, len(names), _BATCH):
        part = names[start : start + _BATCH]
        seen = model.embed_images([read_image(images[name]) for name in part])
        said = model.embed_texts([captions[name] for name in part])
        counts = [len(references[name]) for name in part]
        groups = model.embed_texts(list(chain.from_iterable(references[name] for name in part))).split(counts)
        plain = clip_score(seen, said)
        rows = zip(part, plain.tolist(), ref_clip_score(plain, said, groups).tolist(), strict=True)
        for name, value, with_references in rows:
            per_image[name] |= {"CLIPScore": value, "RefCLIPScore": with_references}
        if progress is not None:
            progress(start + len(part), len(names))
    means = {
        metric: sum(float(values[metric] or 0) for values in per_image.values()) / len(per_image)
        for metric in ("CLIPScore", "RefCLIPScore")
    }
    return replace(scores, corpus={**scores.corpus, **means}, per_image=per_image)


def find_image_files(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each image in a folder, under its id as file name without suffix or under COCO's name for it.

    Raise DataError naming an image without a file, and for two files of one id.
    """
    from legenda.images.files import check_ids, find_images, image_id

    files = find_images([folder])
    check_ids(files)
    by_id = {image_id(file): file for file in files}
    by_number: dict[str, Path] = {}
    for name, file in by_id.items():
        number = coco_number(name)
        if number is not None and (other := by_number.setdefault(number, file)) is not file:
            raise DataError(f"{other} and {file} have COCO's number {number}; leave one of them out")
    missing = [name for name in names if name not in by_id and name not in by_number]
    if missing:
        raise DataError(
            f"{folder} lacks {len(missing)} of {len(names)} images, such as {missing[0]}; name their folder"
        )
    return {name: by_id.get(name) or by_number[name] for name in names}
