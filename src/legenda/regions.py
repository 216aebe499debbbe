"""Regions, what a picture is to a model, and Memory, what an encoder hands to a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from legenda.errors import UserError


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of B pictures, padded to the same number N.

    features: what each region looks like, `(B, N, D)`.
    boxes: where it lies, `(B, N, 4)` as x1 y1 x2 y2 in 0..1 of the picture, or None when unknown.
    mask: `(B, N)` bool, True where the region is real; given as None it becomes all True.
    pooled: a vector of the whole picture, `(B, D)`, for the models that read one (AoANet's "fc" features); None where
    the mean of the regions serves.

    Raises UserError when the shapes disagree or a picture has no region at all.
    """

    features: Float[Tensor, "B N D"]
    boxes: Float[Tensor, "B N 4"] | None = None
    mask: Bool[Tensor, "B N"] | None = None
    pooled: Float[Tensor, "B D"] | None = None

    def __post_init__(self) -> None:
        if self.features.dim() != 3:
            raise UserError(f"features need the shape (images, regions, dim), not {tuple(self.features.shape)}")
        size = self.features.shape[:2]
        if self.features.shape[1] == 0:
            raise UserError("every picture needs at least one region; these features have none")
        if self.boxes is not None and self.boxes.shape != (*size, 4):
            raise UserError(f"boxes need the shape {(*size, 4)} to match the features, not {tuple(self.boxes.shape)}")
        if self.mask is None:
            object.__setattr__(self, "mask", torch.ones(size, dtype=torch.bool, device=self.features.device))
        elif self.mask.shape != size or self.mask.dtype != torch.bool:
            raise UserError(f"mask needs the shape {tuple(size)} and type bool, True where a region is real")
        # On another device the answer would have to be waited for, and what lies there came from here.
        elif self.mask.device.type == "cpu" and not bool(self.mask.any(dim=1).all()):
            empty = int((~self.mask.any(dim=1)).nonzero()[0])
            raise UserError(f"every picture needs at least one region, but the mask leaves none to picture {empty}")
        if self.pooled is not None and (self.pooled.dim() != 2 or len(self.pooled) != size[0]):
            raise UserError(f"pooled needs the shape ({size[0]}, dim), not {tuple(self.pooled.shape)}")

    @staticmethod
    def from_grid(
        features: Float[Tensor, "B cells D"],
        rows: int,
        columns: int,
        mask: Bool[Tensor, "B cells"] | None = None,
    ) -> Regions:
        """Regions of a grid of `rows` x `columns` cells, read line by line; every cell gets its box."""
        if features.shape[1] != rows * columns:
            raise UserError(f"a grid of {rows} x {columns} needs {rows * columns} cells, not {features.shape[1]}")
        cell = torch.arange(rows * columns, device=features.device)
        top, left = cell // columns, cell % columns
        corners = torch.stack([left / columns, top / rows, (left + 1) / columns, (top + 1) / rows], dim=-1)
        return Regions(features, corners.expand(features.shape[0], -1, -1), mask)

    @staticmethod
    def stack(pictures: Sequence[Regions]) -> Regions:
        """One batch of several; shorter ones are padded with regions that the mask marks as not real."""
        longest = max(picture.features.shape[1] for picture in pictures)
        boxed = [picture.boxes is not None for picture in pictures]
        if any(boxed) and not all(boxed):
            raise UserError("some pictures have boxes and some have none; give boxes for all of them or for none")

        def padded(values: Tensor) -> Tensor:
            missing = longest - values.shape[1]
            return torch.cat([values, values.new_zeros(values.shape[0], missing, *values.shape[2:])], dim=1)

        boxes = [padded(picture.boxes) for picture in pictures if picture.boxes is not None]
        pooled = [picture.pooled for picture in pictures if picture.pooled is not None]
        return Regions(
            torch.cat([padded(picture.features) for picture in pictures]),
            torch.cat(boxes) if boxes else None,
            torch.cat([padded(picture.mask_or_ones) for picture in pictures]),
            torch.cat(pooled) if len(pooled) == len(pictures) else None,
        )

    @property
    def mask_or_ones(self) -> Bool[Tensor, "B N"]:
        """The mask, which is never None once the object stands."""
        assert self.mask is not None
        return self.mask

    def __len__(self) -> int:
        return self.features.shape[0]

    def __getitem__(self, index: slice | Tensor) -> Regions:
        """The pictures named by a slice or an index tensor."""
        boxes = None if self.boxes is None else self.boxes[index]
        pooled = None if self.pooled is None else self.pooled[index]
        return Regions(self.features[index], boxes, self.mask_or_ones[index], pooled)

    def to(self, device: torch.device | str) -> Regions:
        """The same on another device."""
        boxes = None if self.boxes is None else self.boxes.to(device)
        pooled = None if self.pooled is None else self.pooled.to(device)
        return Regions(self.features.to(device), boxes, self.mask_or_ones.to(device), pooled)


@dataclass(frozen=True, eq=False)
class Memory:
    """What an encoder hands over for B pictures, computed once and shared by all rows of an image.

    states: encoded regions `(B, N, D)`; mask: `(B, N)`, True where real; pooled: a global vector `(B, D)` or None;
    keys_values: for each decoder layer the projected keys and values `(B, H, N, d)`.
    """

    states: Float[Tensor, "B N D"]
    mask: Bool[Tensor, "B N"]
    pooled: Float[Tensor, "B D"] | None = None
    keys_values: tuple[tuple[Tensor, Tensor], ...] = ()

    @property
    def summary(self) -> Float[Tensor, "B D"]:
        """The global vector: `pooled`, or the mean of the real regions' states where the encoder gives none."""
        return masked_mean(self.states, self.mask) if self.pooled is None else self.pooled

    def __len__(self) -> int:
        return self.states.shape[0]

    def __getitem__(self, index: slice | Tensor) -> Memory:
        """The memory of the pictures named by a slice or an index tensor."""
        return replace(
            self,
            states=self.states[index],
            mask=self.mask[index],
            pooled=None if self.pooled is None else self.pooled[index],
            keys_values=tuple((keys[index], values[index]) for keys, values in self.keys_values),
        )

    def contiguous(self) -> Memory:
        """The same with every head's keys and values in one piece, as a decoder reads them at each word."""
        return replace(self, keys_values=tuple((k.contiguous(), v.contiguous()) for k, v in self.keys_values))


def mask_zero_features(regions: Regions) -> Regions:
    """The regions with those masked whose features are all 0, as releases pad; a picture of nothing else keeps them."""
    something = regions.mask_or_ones & (regions.features != 0).any(dim=-1)
    return replace(regions, mask=torch.where(something.any(dim=1, keepdim=True), something, regions.mask_or_ones))


def masked_mean(x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B D"]:
    """The mean over the real regions of each image; what padding holds plays no part."""
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).to(x.dtype)
