"""The tokens of captions of different lengths without their padding, which Transformers compute all at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Positions:
    """The real positions of rows of tokens `(B, K, T)`, which padding follows in each row.

    Packed tensors hold these positions alone, `(P, ...)`, row by row. Attention needs them by row or by image, which
    adds zeros; all other layers are applied to each position.
    """

    def __init__(self, shape: torch.Size, real: Bool[Tensor, "B K T"] | None = None) -> None:
        """shape: of the tokens; real: True for tokens and False for padding, by default all are real."""
        self.shape, (_, K, T) = shape, shape
        self.longest, self.most = T, K * T
        """The tokens of the longest row, and of the image with most."""
        self.packed: Tensor | None = None
        if real is None:
            return
        self.packed = packed = real.flatten().nonzero().squeeze(1)
        counts = real.flatten(1).sum(dim=1)
        lengths = real.sum(dim=-1)
        self.longest, self.most = torch.stack([lengths.max(), counts.max()]).tolist() if packed.numel() else (1, 1)
        self._by_row = packed // T * self.longest + packed % T
        image = packed // (K * T)
        first = counts.cumsum(dim=0) - counts
        self._by_image = image * self.most + torch.arange(len(packed), device=packed.device) - first[image]

    def pack(self, x: Tensor) -> Tensor:
        """Return the real positions."""
        x = x.flatten(0, 2)
        return x if self.packed is None else x.index_select(0, self.packed)

    def unpack(self, x: Tensor) -> Tensor:
        """Return the positions as `(B, K, T, ...)` where all are real, and else packed as they are."""
        return x.unflatten(0, self.shape) if self.packed is None else x

    def by_row(self, x: Tensor) -> Tensor:
        """Return each row padded to the longest."""
        return self._pad(x, self.shape[0] * self.shape[1], self.longest, "_by_row")

    def by_image(self, x: Tensor) -> Tensor:
        """Return all rows of each image one after the other, padded to the image with most tokens."""
        return self._pad(x, self.shape[0], self.most, "_by_image")

    def from_rows(self, x: Tensor) -> Tensor:
        """Return the packed positions of `by_row`."""
        x = x.flatten(0, 1)
        return x if self.packed is None else x.index_select(0, self._by_row)

    def from_images(self, x: Tensor) -> Tensor:
        """Return the packed positions of `by_image`."""
        x = x.flatten(0, 1)
        return x if self.packed is None else x.index_select(0, self._by_image)

    def attend(
        self,
        attention: Any,
        query: Float[Tensor, "P D"],
        x: Float[Tensor, "P D"],
        mask: Bool[Tensor, "B K *T T"] | None,
    ) -> Float[Tensor, "P D"]:
        """Return causal self-attention of each row; mask: which tokens later ones, or each one, attend to."""
        if mask is not None:
            mask = mask.flatten(0, 1)[..., : self.longest]
            mask = mask if mask.dim() == 2 else mask[:, : self.longest]
        x = x.unsqueeze(1)  # heads are split where each position is a row by itself: (P, H, 1, d)
        queries = attention.queries(query.unsqueeze(1))
        queries = tuple(map(self._heads, queries)) if isinstance(queries, tuple) else self._heads(queries)
        keys, values = map(self._heads, attention.keys_values(x, x))
        return self.from_rows(attention.attend(queries, keys, values, mask, is_causal=True).values)

    def pairs(self, mask: Bool[Tensor, "B K T"]) -> tuple[Int[Tensor, " M"], Int[Tensor, " M"]]:
        """Return the packed positions of query and key of all pairs in causal self-attention, by the query."""
        place = self._by_row % self.longest
        keys = self.pack(mask.unsqueeze(2).expand(*self.shape, -1))[:, : self.longest]
        i, j = (keys & (torch.arange(self.longest, device=mask.device) <= place.unsqueeze(1))).nonzero(as_tuple=True)
        return i, i - place[i] + j

    def _heads(self, x: Float[Tensor, "P H 1 d"]) -> Float[Tensor, "rows H longest d"]:
        return self.by_row(x.squeeze(2)).transpose(1, 2).contiguous()

    def _pad(self, x: Tensor, count: int, size: int, slots: str) -> Tensor:
        if self.packed is None:
            return x.unflatten(0, (count, size))
        padded = x.new_zeros(count * size, *x.shape[1:]).index_copy(0, getattr(self, slots), x)
        return padded.unflatten(0, (count, size))
