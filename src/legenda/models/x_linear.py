"""What X-LAN and X-Transformer share: their options, and the encoder of X-Linear attention (X-LAN, section 3.3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention.x_linear import Act, XLinearAttention, create_act
from legenda.decoding.generation_config import GenerationConfig
from legenda.errors import UserError
from legenda.models.config import ModelConfig
from legenda.models.encoder import Encoder
from legenda.models.layers import PostNormFeedForward
from legenda.regions import Memory, Regions, masked_mean


@dataclass(frozen=True, kw_only=True)
class XLinearConfig(ModelConfig):
    """The fields of both models of the paper; the defaults are those of the released X-LAN."""

    dim: int = 1024
    """Channels inside the model."""
    num_heads: int = 8
    mid_dim: int | None = None
    """Channels of B' in each head (D_c); half of the head's unless told."""
    num_layers: int = 4
    """X-Linear blocks of the encoder; 0 for none."""
    decoder_layers: int = 1
    """X-Linear blocks of the decoder, or its layers."""
    act: Act = "celu"
    """Of query, key and value inside the blocks: "celu" is the paper's ELU, "relu" goes without (Table 3)."""
    alpha: float = 1.3
    """Where the CELU levels out."""
    region_act: Act = "celu"
    """Of the region embedding."""
    region_norm: bool = False
    """Layer normalisation in the region embedding."""
    region_dropout: float = 0.5
    """Of the embedded regions."""
    mid_dropout: float = 0.1
    """Inside the blocks, of B'."""
    encoder_dropout: float = 0.5
    """Of what a block of the encoder attends to."""
    update_dropout: float = 0.3
    """Of what the attended vector adds to each region (Eq. 8), or to each word."""
    word_dropout: float = 0.5
    """Of the embedded words."""
    decoder_dropout: float = 0.5
    """Of what a block of the decoder attends to."""
    output_dropout: float = 0.5
    """Before the output layer; the release leaves it out while it samples captions to learn from rewards."""

    def __post_init__(self) -> None:
        self.require_positive("num_heads", "decoder_layers")
        self.require_probabilities(*(name for name in self.__dataclass_fields__ if name.endswith("_dropout")))
        if self.num_layers < 0:
            raise UserError(f"num_layers must be 0 or more, not {self.num_layers}")
        if self.dim % self.num_heads:
            raise UserError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.mid_channels < 1:
            raise UserError(f"mid_dim={self.mid_dim} must be at least 1; dim or mid_dim is too small for the heads")
        if self.alpha <= 0:
            raise UserError(f"alpha must be above 0, not {self.alpha}")

    @property
    def literal(self) -> bool:
        """Whether the equations are followed as printed, where the release has more."""
        return False

    @property
    def mid_channels(self) -> int:
        """Channels of B' in each head."""
        return self.dim // self.num_heads // 2 if self.mid_dim is None else self.mid_dim

    @property
    def generation_config(self) -> GenerationConfig:
        """Ended captions compete by the sum of their log-probabilities; 16 words and the end at most."""
        return GenerationConfig(max_length=17)

    def create_block(self) -> XLinearAttention:
        """One X-Linear block."""
        return XLinearAttention(
            self.dim,
            self.num_heads,
            mid_dim=self.mid_channels,
            act=self.act,
            alpha=self.alpha,
            norm=not self.literal,
            bias=not self.literal,
            dropout=self.mid_dropout,
        )


class Update(nn.Module):
    """LayerNorm(ReLU(W [attended, x]) + x): keys, values or words after a block (Eq. 8)."""

    def __init__(self, config: XLinearConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * config.dim, config.dim, bias=not config.literal)
        self.dropout = nn.Dropout(config.update_dropout)
        self.norm = nn.LayerNorm(config.dim)

    def forward(self, attended: Float[Tensor, "*#rows D"], x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """The updated x; one attended vector may stand for all x of an image, and is then multiplied once."""
        ours, theirs = self.linear.weight.split(x.shape[-1], dim=1)
        told = F.linear(attended, ours, self.linear.bias) + F.linear(x, theirs)
        return self.norm(x + self.dropout(F.relu(told)))


class XLinearLayer(nn.Module):
    """An X-Linear block asked by the image's vector (Eq. 7), and the update of keys and values (Eq. 8)."""

    def __init__(self, config: XLinearConfig, *, last: bool) -> None:
        super().__init__()
        self.attention = config.create_block()
        self.dropout = nn.Dropout(config.encoder_dropout)
        self.update_values = Update(config)
        self.update_keys = Update(config) if config.literal and not last else None

    def forward(
        self,
        attended: Float[Tensor, "B D"],
        keys: Float[Tensor, "B N D"],
        values: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"],
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B N D"], Float[Tensor, "B N D"]]:
        """The next query, keys and values; as released, the values are the keys too."""
        found = self.dropout(self.attention(attended.unsqueeze(1), keys, values, mask).values)
        values = self.update_values(found, values)
        keys = values if self.update_keys is None else self.update_keys(found, keys)
        return found.squeeze(1), keys, values


class XLinearEncoder(Encoder):
    """Region embedding, L layers asked by the mean region, and one vector of all that they attended to (Eq. 10)."""

    def __init__(self, config: XLinearConfig, *, ff_dim: int | None = None, ff_dropout: float = 0.0) -> None:
        """ff_dim: inner channels of a feed-forward layer after each layer, as X-Transformer has it; None for none."""
        super().__init__()
        D, L = config.dim, config.num_layers
        self.input = nn.Linear(config.feature_dim, D)
        self.act = create_act(config.region_act, config.alpha)
        self.norm = nn.LayerNorm(D) if config.region_norm else nn.Identity()
        self.norm_first = ff_dim is not None
        self.dropout = nn.Dropout(config.region_dropout)
        self.layers = nn.ModuleList(XLinearLayer(config, last=layer == L - 1) for layer in range(L))
        self.feed_forward = nn.ModuleList(
            PostNormFeedForward(D, ff_dim, ff_dropout) for _ in range(L) if ff_dim is not None
        )
        self.summary: nn.Linear | None = nn.Linear((L + 1) * D, D, bias=not config.literal)
        self.summary_norm: nn.Module | None = nn.Identity() if config.literal else nn.LayerNorm(D)

    def remove_global_branch(self) -> None:
        """Leaves out Eq. 10."""
        self.summary = self.summary_norm = None

    def forward(self, regions: Regions) -> Memory:
        """States `(B, N, D)`, which are the last values, and the image's vector; padded rows are finite."""
        mask = regions.mask_or_ones
        # Padding may hold anything, even NaN, which no later mask would stop.
        x = self.act(self.input(regions.features.masked_fill(~mask.unsqueeze(-1), 0.0)))
        x = self.dropout(self.norm(x)) if self.norm_first else self.norm(self.dropout(x))
        attended = masked_mean(x, mask)
        keys, seen = x, [attended]
        for index, layer in enumerate(self.layers):
            attended, keys, x = layer(attended, keys, x, mask)
            if self.feed_forward:
                keys = x = self.feed_forward[index](x)
            seen.append(attended)
        if self.summary is None or self.summary_norm is None:
            return Memory(x, mask, masked_mean(x, mask))
        return Memory(x, mask, self.summary_norm(self.summary(torch.cat(seen, dim=-1))))
