"""What every encoder offers: the regions of a picture become a memory."""

from __future__ import annotations

from torch import nn

from legenda.regions import Memory, Regions


class Encoder(nn.Module):
    """Turns regions into what decoders look at, once per image however many rows will look at it."""

    needs_boxes: bool = False
    """Whether it reads where the regions lie."""

    def reset_parameters(self) -> None:
        """Fills the weights anew where torch's own numbers are not the model's; called once both halves stand."""

    def place(self, regions: Regions) -> Regions:
        """The regions with boxes, where the encoder knows how regions without boxes lie; as they are otherwise."""
        return regions

    def remove_global_branch(self) -> None:
        """Leaves out what makes only the global vector, for a decoder that does not read it."""

    def forward(self, regions: Regions) -> Memory:
        """States `(B, N, D)` and, where the model has one of its own, a global vector `(B, D)`.

        Rows of padded regions may hold any finite numbers; what they held before plays no part.
        """
        raise NotImplementedError


def xavier(module: nn.Module) -> None:
    """Fills all matrices with Xavier's uniform numbers, embeddings of words apart, as the Transformer does."""
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for parameter in module.parameters():
        if parameter.dim() > 1 and id(parameter) not in embeddings:
            nn.init.xavier_uniform_(parameter)
