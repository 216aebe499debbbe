"""The interface of encoders: regions of images to a memory."""

from __future__ import annotations

from torch import nn

from legenda.regions import Memory, Regions


class Encoder(nn.Module):
    """Map regions to the memory that decoders attend to, once per image for any number of rows."""

    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""

    def reset_parameters(self) -> None:
        """Initialize the parameters where PyTorch's defaults are not the model's; called after construction."""

    def with_default_boxes(self, regions: Regions) -> Regions:
        """Return the regions with boxes, where they have none and the encoder has a default for them."""
        return regions

    def remove_global_branch(self) -> None:
        """Delete the parameters of the global feature alone, for a decoder that does not read it."""

    def forward(self, regions: Regions) -> Memory:
        """Return states `(B, N, D)` and a global feature `(B, D)`.

        States of padding are finite, and values of padding in `regions` have no influence, NaN included.
        """
        raise NotImplementedError
