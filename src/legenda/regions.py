"""Regions, the model's input for a batch of images, and Memory, the encoder's output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data._utils.collate import default_collate_fn_map

from legenda.errors import DataError

__all__ = ["Memory", "Regions", "masked_mean"]

_MARGIN = 0.01
"""How far corners of boxes may lie outside 0..1, as those of half precision or of a detector that does not clip do."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of B images, padded to the same number N.

    PyTorch takes them as it takes a tensor: they are a pytree of their tensors, which torch.export reads, and a
    DataLoader joins them into one batch, pins and moves them.

    features: feature vectors, `(B, N, D)`.
    boxes: `(B, N, 4)` as x1 y1 x2 y2 in 0..1 of the image, or None when unknown.
    mask: `(B, N)` bool, True for regions and False for padding; None stands for all True.
    global_feature: a vector of the whole image, `(B, D)`, for models that read one (AoANet's "fc" features), or None.

    Raises DataError when shapes disagree, a dtype is wrong, boxes are in pixels, or an image has no region at all. The
    last two depend on values, so they are checked on the CPU only, and not while the model is compiled or exported.
    """

    features: Float[Tensor, "B N D"]
    boxes: Float[Tensor, "B N 4"] | None = None
    mask: Bool[Tensor, "B N"] | None = None
    global_feature: Float[Tensor, "B D"] | None = None

    def __post_init__(self) -> None:
        if self.features.dim() != 3:
            raise DataError(f"features need the shape (images, regions, dim), not {tuple(self.features.shape)}")
        if not self.features.is_floating_point():
            raise DataError(f"features need a floating-point dtype, not {self.features.dtype}; use features.float()")
        size = self.features.shape[:2]
        if size[1] == 0:
            raise DataError("every image needs at least one region; these features have none")
        if self.boxes is not None and self.boxes.shape != (*size, 4):
            raise DataError(f"boxes need the shape {(*size, 4)} to match the features, not {tuple(self.boxes.shape)}")
        if self.mask is None:
            object.__setattr__(self, "mask", torch.ones(size, dtype=torch.bool, device=self.features.device))
        elif self.mask.shape != size or self.mask.dtype != torch.bool:
            raise DataError(
                f"mask needs the shape {tuple(size)} and type bool, True where a region is real, not "
                f"{tuple(self.mask.shape)} and {self.mask.dtype}"
            )
        if self.boxes is not None and not self.boxes.is_floating_point():
            raise DataError(
                f"boxes need a floating-point dtype, not {self.boxes.dtype}; give x1 y1 x2 y2 in 0..1 of the image"
            )
        if not torch.compiler.is_compiling() and self.features.device.type == "cpu":  # no synchronization with a GPU
            self._check_values()
        vector = self.global_feature
        if vector is not None and not vector.is_floating_point():
            raise DataError(f"global_feature needs a floating-point dtype, not {vector.dtype}")
        if vector is not None and (vector.dim() != 2 or len(vector) != size[0]):
            raise DataError(f"global_feature needs the shape ({size[0]}, dim), not {tuple(vector.shape)}")

    def _check_values(self) -> None:
        has_regions = self.mask_or_ones.any(dim=1)
        if not bool(has_regions.all()):
            empty = int((~has_regions).nonzero()[0])
            raise DataError(f"every image needs at least one region, but the mask leaves none to image {empty}")
        if self.boxes is not None:
            is_inside = (self.boxes >= -_MARGIN) & (self.boxes <= 1 + _MARGIN)  # False for NaN
            outside = self.boxes[self.mask_or_ones & ~is_inside.all(dim=-1)]
            if len(outside):
                raise DataError(
                    f"boxes need x1 y1 x2 y2 in 0..1 of the image, not {outside[0].tolist()}; divide boxes in pixels "
                    "by the width and height of the image"
                )

    @staticmethod
    def from_numpy(features: np.ndarray, boxes: np.ndarray | None = None, mask: np.ndarray | None = None) -> Regions:
        """Return the regions of NumPy arrays as float32: of a batch `(B, N, D)`, or of one image `(N, D)`.

        boxes `(B, N, 4)` or `(N, 4)` and mask `(B, N)` or `(N,)` are optional. Memory is shared where the type allows.
        """
        arrays = [None if array is None else torch.from_numpy(array) for array in (features, boxes, mask)]
        if features.ndim == 2:
            arrays = [None if array is None else array.unsqueeze(0) for array in arrays]
        x, corners, real = arrays
        assert x is not None
        return Regions(x.float(), None if corners is None else corners.float(), real)

    @staticmethod
    def from_grid(
        features: Float[Tensor, "B cells D"], height: int, width: int, mask: Bool[Tensor, "B cells"] | None = None
    ) -> Regions:
        """Return the regions of a grid of `height` x `width` cells in row-major order, each with its box."""
        if features.shape[1] != height * width:
            raise DataError(f"a grid of {height} x {width} needs {height * width} cells, not {features.shape[1]}")
        cell = torch.arange(height * width, device=features.device)
        y, x = cell // width, cell % width
        corners = torch.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], dim=-1)
        return Regions(features, corners.expand(features.shape[0], -1, -1), mask)

    @staticmethod
    def stack(batches: Sequence[Regions]) -> Regions:
        """Return one batch of several, padded to the largest N; the mask is False for padding."""
        longest = max(regions.features.shape[1] for regions in batches)
        boxes = [regions.boxes for regions in batches if regions.boxes is not None]
        vectors = [regions.global_feature for regions in batches if regions.global_feature is not None]
        for name, parts in (("boxes", boxes), ("global_feature", vectors)):
            if parts and len(parts) != len(batches):
                raise DataError(f"some images have {name} and some have none; give it for all of them or for none")

        def pad(values: Tensor) -> Tensor:
            missing = longest - values.shape[1]
            return torch.cat([values, values.new_zeros(values.shape[0], missing, *values.shape[2:])], dim=1)

        return Regions(
            torch.cat([pad(regions.features) for regions in batches]),
            torch.cat([pad(corners) for corners in boxes]) if boxes else None,
            torch.cat([pad(regions.mask_or_ones) for regions in batches]),
            torch.cat(vectors) if vectors else None,
        )

    @property
    def mask_or_ones(self) -> Bool[Tensor, "B N"]:
        """The mask, all True where none was given."""
        assert self.mask is not None
        return self.mask

    def __len__(self) -> int:
        return self.features.shape[0]

    def __getitem__(self, index: slice | Tensor) -> Regions:
        """Return the images selected by a slice or an index tensor."""
        return self._map(lambda values: values[index])

    def to(self, *args: torch.device | torch.dtype | Tensor | str | int, **kwargs: object) -> Regions:
        """Return the regions on another device, and all but the mask in another floating-point dtype.

        The arguments are those of `torch.nn.Module.to`: device, dtype, non_blocking, or a tensor that has both. Raise
        TypeError for a dtype that is not floating-point.
        """
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)  # pyrefly: ignore
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"features and boxes need a floating-point dtype, not {dtype}")
        return self._map(lambda x: x.to(device, dtype if x.is_floating_point() else None, non_blocking))

    def pin_memory(self) -> Regions:
        """Return the regions in page-locked memory, from which copies to a GPU can be asynchronous."""
        return self._map(lambda values: values.pin_memory())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Regions:
        optional = (None if x is None else change(x) for x in (self.boxes, self.mask, self.global_feature))
        return Regions(change(self.features), *optional)


def _flatten(regions: Regions) -> tuple[list[Tensor], tuple[str, ...]]:
    names = [field.name for field in fields(Regions) if getattr(regions, field.name) is not None]
    return [getattr(regions, name) for name in names], tuple(names)


def _flatten_with_keys(regions: Regions) -> tuple[list[tuple[Any, Tensor]], tuple[str, ...]]:
    values, names = _flatten(regions)
    return [(pytree.GetAttrKey(name), value) for name, value in zip(names, values, strict=True)], names


def _unflatten(values: Iterable[object], names: tuple[str, ...]) -> Regions:
    regions = object.__new__(Regions)  # unchecked, as the leaves may be anything: shapes, names, gradients
    vars(regions).update({field.name: None for field in fields(Regions)}, **dict(zip(names, values, strict=True)))
    return regions


pytree.register_pytree_node(
    Regions,
    _flatten,
    _unflatten,
    serialized_type_name="legenda.Regions",
    flatten_with_keys_fn=_flatten_with_keys,
)


def _collate(batch: Sequence[Regions], *, collate_fn_map: object = None) -> Regions:  # noqa: ARG001
    return Regions.stack(batch)


default_collate_fn_map[Regions] = _collate


def as_regions(inputs: Regions | Tensor) -> Regions:
    """Return regions as they are, and a tensor of features `(B, N, D)` as regions without boxes.

    Raise DataError for anything else.
    """
    if isinstance(inputs, Regions):
        return inputs
    if not isinstance(inputs, Tensor):
        raise DataError(
            f"a model reads legenda.Regions or a tensor of features (images, regions, dim), not {type(inputs).__name__}"
        )
    return Regions(inputs)


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's output for B images, computed once and shared by the K rows of an image.

    states: encoded regions `(B, N, D)`; mask: `(B, N)`, True for regions; global_feature: a vector of the whole image
    `(B, D)`, in most models `masked_mean(states, mask)`;
    cross_kv: for each decoder layer the keys and values of cross-attention `(B, H, N, d)`.
    """

    states: Float[Tensor, "B N D"]
    mask: Bool[Tensor, "B N"]
    global_feature: Float[Tensor, "B D"]
    cross_kv: tuple[tuple[Tensor, Tensor], ...] = ()

    def __post_init__(self) -> None:
        check_mask(self.mask)

    def __len__(self) -> int:
        return self.states.shape[0]

    def __getitem__(self, index: slice | Tensor) -> Memory:
        """Return the memory of the images selected by a slice or an index tensor."""
        states, mask, global_feature = (part[index] for part in (self.states, self.mask, self.global_feature))
        cross_kv = tuple((keys[index], values[index]) for keys, values in self.cross_kv)
        return replace(self, states=states, mask=mask, global_feature=global_feature, cross_kv=cross_kv)

    def contiguous(self) -> Memory:
        """Return the same memory with contiguous keys and values, as every decoding step reads them."""
        return replace(self, cross_kv=tuple((k.contiguous(), v.contiguous()) for k, v in self.cross_kv))


def check_mask(mask: Tensor | None) -> None:
    """Raise DataError for a mask that is not boolean; numbers would be added to scores, or mean the opposite."""
    if mask is not None and mask.dtype != torch.bool:
        raise DataError(
            f"a mask needs the type bool, True for what is kept, not {mask.dtype}; give mask > 0, for instance"
        )


def mask_zero_features(regions: Regions) -> Regions:
    """Mask the regions whose features are all 0, which released stores hold as padding.

    An image with no other regions keeps them.
    """
    nonzero = regions.mask_or_ones & (regions.features != 0).any(dim=-1)
    return replace(regions, mask=nonzero | (regions.mask_or_ones & ~nonzero.any(dim=1, keepdim=True)))


def first_regions(regions: Regions, count: int) -> Regions:
    """Return the first `count` regions of each image in their order; padding, wherever it stands, follows them."""
    mask = regions.mask_or_ones
    order = (~mask).byte().argsort(dim=1, stable=True)[:, :count]
    images = torch.arange(len(order), device=order.device).unsqueeze(1)
    boxes = None if regions.boxes is None else regions.boxes[images, order]
    return Regions(regions.features[images, order], boxes, mask[images, order], regions.global_feature)


def hide_regions(regions: Regions, rate: float) -> Regions:
    """Return the regions with each masked with probability `rate`; an image that would have none keeps all."""
    mask = regions.mask_or_ones
    kept = mask & (torch.rand(mask.shape, device=mask.device) >= rate)
    return replace(regions, mask=torch.where(kept.any(dim=1, keepdim=True), kept, mask))


def at_least_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x in float32, or as it is in float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def masked_mean(x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B D"]:
    """Return the mean over the regions where the mask is True; padding may hold any value, NaN included."""
    check_mask(mask)
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).to(x.dtype)
