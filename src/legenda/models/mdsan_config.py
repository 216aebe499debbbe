"""Options of MD-SAN and of the Meshed Transformer that its release is based on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from legenda.attention.registries import ATTENTIONS, DISTANCES
from legenda.config import Count, PositiveInt
from legenda.models.transformer.config import TransformerConfig


class MdsanConfig(TransformerConfig):
    """Options of `mdsan` and its ablations; the defaults are those of the released code."""

    encoder_class: ClassVar[str] = "legenda.models.mdsan:MdsanEncoder"
    decoder_class: ClassVar[str] = "legenda.models.mdsan:MdsanDecoder"

    num_layers: Count = 3
    """Layers of the encoder, and of the decoder."""
    distance: Annotated[str, DISTANCES] = "manhattan"
    """Distance by which the scores are rescaled (Eq. 6 and Table VII)."""
    branches: int = 3
    """Attentions that are averaged (Eq. 9)."""
    drop_branch: float = 0.4
    """Probability of dropping each of several branches in training (Eqs. 10 and 11)."""
    reading: Literal["released", "paper"] = "released"
    """released: a residual connection and layer normalization inside each branch, two of them around each attention of
    the decoder, and positional encodings that are random and not trained. paper: one of them around each attention, and
    sinusoids."""
    positions: PositiveInt = 55
    """Rows of the table of positions: the largest number of tokens, and one; the first row is not used."""
    pad_token_id: int | None = None
    """Token that pads captions, to which no other one attends; None for no such token."""
    zero_rows_are_padding: bool = True
    """Whether regions whose features are all 0 are masked, besides those that the mask excludes."""

    @property
    def branch_norm(self) -> bool:
        """Whether each branch has a residual connection and layer normalization."""
        return self.reading == "released" if self.branch_residual is None else self.branch_residual

    def encoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the encoder."""
        return {
            **super().encoder_arguments(),
            "last_norm": self.norm_first,
            **self.values_of("grid_size", "zero_rows_are_padding"),
        }

    def decoder_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the decoder."""
        released = self.reading == "released"
        return {
            **super().decoder_arguments(),
            "double_norm": released,
            "last_norm": self.norm_first,
            "output_bias": False,
            "pad_token_id": self.pad_token_id,
            "max_positions": self.positions,
            "random_positions": released,
        }


class MeshedConfig(MdsanConfig):
    """Options of `meshed`: those of MD-SAN, with memory slots, single branches and no distances by default."""

    encoder_class: ClassVar[str] = "legenda.models.meshed:MeshedEncoder"
    decoder_class: ClassVar[str] = "legenda.models.meshed:MeshedDecoder"

    attention: Annotated[str, ATTENTIONS] = "memory"
    """memory (with `memory_slots`) or another attention."""
    distance: Annotated[str, DISTANCES] = "none"
    """Distance by which the scores are rescaled."""
    branches: int = 1
    """Attentions that are averaged."""
    drop_branch: float = 0.0
    """Probability of dropping each of several branches in training."""
    reading: Literal["released", "paper"] = "paper"
    """paper: one residual connection and layer normalization around each attention; released: as in MD-SAN."""
