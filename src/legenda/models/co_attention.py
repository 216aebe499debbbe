"""The co-attention backbone that MCAN's models for question answering and grounding share (Yu et al., CVPR 2019).

Self-attention among the tokens of a text, self-attention among regions, and attention from regions to tokens. The
self-attention among regions takes all attention options: NG-SAN (section 6.3) and MD-SAN (section VI) replace this one
only, since tokens have no boxes, and more would exceed MD-SAN's number of parameters (Table XIV).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.attention import (
    Geometry,
    MultiHeadAttention,
    PairGeometry,
    StdLayerNorm,
    create_pair_geometry,
    create_self_attention,
)
from legenda.attention.dropout import Dropout
from legenda.errors import DataError
from legenda.models.co_attention_config import CoAttentionConfig
from legenda.models.layers import FeedForward, Residual
from legenda.models.model import Model
from legenda.regions import Regions, mask_zero_features
from legenda.run_files import VOCABULARY
from legenda.text.vocabulary import QuestionVocabulary, encode_tokens

PAD_ID = 0
"""The id that pads questions."""


class StdResidual(Residual):
    """norm(x + sublayer(x)) with the layer normalization of MCAN's release."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__(dim, dropout, norm_first=False, norm=StdLayerNorm(dim))


@dataclass(frozen=True, eq=False)
class QuestionTokens:
    """The tokens of a question as keys and values of attention.

    keys: the states, or zeros where a question has no token: all scores are then equal, so every padded position gets
    the same weight, as in the release. attention_mask: True for keys that may be attended to.
    """

    states: Float[Tensor, "B L D"]
    keys: Float[Tensor, "B L D"]
    attention_mask: Bool[Tensor, "B L"]

    @staticmethod
    def from_states(states: Float[Tensor, "B L D"], token_mask: Bool[Tensor, "B L"]) -> QuestionTokens:
        """Return keys and mask of states; token_mask: True for tokens, False for padding."""
        is_empty = ~token_mask.any(dim=1, keepdim=True)
        return QuestionTokens(states, states.masked_fill(is_empty.unsqueeze(-1), 0.0), token_mask | is_empty)


class SelfAttentionLayer(nn.Module):
    """Self-attention among tokens and a feed-forward network ("SA")."""

    def __init__(self, dim: int, num_heads: int, *, ff_dim: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dim, num_heads, dropout=dropout, bias=bias)
        self.feed_forward = FeedForward(dim, ff_dim, dropout)
        self.attention_residual = StdResidual(dim, dropout)
        self.feed_forward_residual = StdResidual(dim, dropout)

    def forward(self, x: Float[Tensor, "B L D"], token_mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Return the states of the tokens after this layer."""
        tokens = QuestionTokens.from_states(x, token_mask)
        x = self.attention_residual.post(x, self.attention(x, tokens.keys, x, tokens.attention_mask).values)
        return self.feed_forward_residual.post(x, self.feed_forward(x))


class GuidedAttentionLayer(nn.Module):
    """Self-attention among regions, attention from regions to tokens, and a feed-forward network ("SGA")."""

    def __init__(
        self, attention: nn.Module, dim: int, num_heads: int, *, ff_dim: int, dropout: float, bias: bool
    ) -> None:
        """Create the layer; attention: that among regions."""
        super().__init__()
        self.attention = attention
        self.cross_attn = MultiHeadAttention(dim, num_heads, dropout=dropout, bias=bias)
        self.feed_forward = FeedForward(dim, ff_dim, dropout)
        self.attention_residual = StdResidual(dim, dropout)
        self.cross_attn_residual = StdResidual(dim, dropout)
        self.feed_forward_residual = StdResidual(dim, dropout)

    def forward(
        self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"], geometry: Geometry, question: QuestionTokens
    ) -> Float[Tensor, "B N D"]:
        """Return the states of the regions after this layer."""
        x = self.attention_residual.post(x, self.attention(x, x, x, mask, geometry).values)
        attended = self.cross_attn(x, question.keys, question.states, question.attention_mask).values
        x = self.cross_attn_residual.post(x, attended)
        return self.feed_forward_residual.post(x, self.feed_forward(x))


@dataclass(frozen=True, eq=False)
class CoAttentionOutput:
    """States of tokens and regions; the masks are False for padding."""

    tokens: Float[Tensor, "B L D"]
    token_mask: Bool[Tensor, "B L"]
    regions: Float[Tensor, "B N D"]
    region_mask: Bool[Tensor, "B N"]


class CoAttention(nn.Module):
    """The backbone: an LSTM and self-attention over the tokens, then regions guided by the last layer's tokens.

    Regions whose features are all 0 count as padding, as in the release, unless an image has no others.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        feature_dim: int,
        word_dim: int,
        dim: int,
        num_heads: int,
        num_layers: int,
        ff_dim: int,
        dropout: float,
        bias: bool,
        create_attention: Callable[[int], nn.Module],
        create_geometry: Callable[[], PairGeometry],
    ) -> None:
        """Create the layers; bias: whether the projections of all attentions have one.

        create_attention: returns the attention among regions of a layer, counted from 0. create_geometry: returns the
        module that computes the geometry of all layers.
        """
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, word_dim)
        self.lstm = nn.LSTM(word_dim, dim, batch_first=True)
        self.input = nn.Linear(feature_dim, dim)
        self.words = nn.ModuleList(
            SelfAttentionLayer(dim, num_heads, ff_dim=ff_dim, dropout=dropout, bias=bias) for _ in range(num_layers)
        )
        self.regions = nn.ModuleList(
            GuidedAttentionLayer(create_attention(layer), dim, num_heads, ff_dim=ff_dim, dropout=dropout, bias=bias)
            for layer in range(num_layers)
        )
        self.geometry = create_geometry()

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttentionOutput:
        """Return the states of tokens and regions; question: token ids, padded with `PAD_ID`."""
        token_mask = question.ne(PAD_ID)
        states, _ = self.lstm(self.embedding(question))
        for layer in self.words:
            states = layer(states, token_mask)
        regions = mask_zero_features(regions)
        mask = regions.mask_or_ones
        x = self.input(regions.features.masked_fill(~mask.unsqueeze(-1), 0.0))
        tokens = QuestionTokens.from_states(states, token_mask)
        for layer, geometry in zip(self.regions, self.geometry(regions), strict=True):
            x = layer(x, mask, geometry, tokens)
        return CoAttentionOutput(states, token_mask, x, mask)


class AttentionPool(nn.Module):
    """Attention pooling: concatenated sums, weighted by a small network, and a linear layer ("AttFlat")."""

    def __init__(self, dim: int, pool_dim: int, pooled_dim: int, *, glimpses: int, dropout: float) -> None:
        """Create the networks; pool_dim: inner channels of the scores, pooled_dim: channels of the pooled vector."""
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, pool_dim), nn.ReLU(), Dropout(dropout), nn.Linear(pool_dim, glimpses))
        self.linear = nn.Linear(dim * glimpses, pooled_dim)

    def forward(self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Return the pooled vector; all positions get the same weight where the mask is empty."""
        scores = self.score(x)
        weights = scores.masked_fill(~mask.unsqueeze(-1), torch.finfo(scores.dtype).min).softmax(dim=1)
        return self.linear(torch.einsum("bng,bnd->bgd", weights, x).flatten(1))


class CoAttentionModel(Model):
    """A model of texts and regions on the backbone."""

    vocabulary: QuestionVocabulary | None = None

    def __init__(self, config: CoAttentionConfig, *, bias: bool = True) -> None:
        super().__init__()
        self.config = config
        self.needs_boxes = config.needs_boxes
        self.backbone = _create_backbone(config, bias)

    def attend(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttentionOutput:
        """Return the output of the backbone.

        Raise DataError when the features do not have feature_dim channels, or boxes are missing that the model needs.
        """
        width = regions.features.shape[-1]
        if width != self.config.feature_dim:
            raise DataError(
                f"the features have {width} channels but {self.name or 'this model'} needs {self.config.feature_dim}; "
                "use features of the extractor it was trained with"
            )
        if self.needs_boxes and regions.boxes is None:
            raise DataError(
                f"{self.name or 'this model'} needs boxes for its geometry; give Regions(features, boxes) or choose a "
                "model without geometry, such as mcan"
            )
        return self.backbone(regions, question)

    def ids(self, texts: Sequence[Sequence[str]]) -> Int[Tensor, "B L"]:
        """Return the ids of tokenized texts, truncated or padded to `config.max_text_length`, on the model's device.

        Raise CheckpointError where the model has no vocabulary.
        """
        vocabulary = self.require_vocabulary()
        device = self.backbone.embedding.weight.device
        return encode_tokens(texts, vocabulary, self.config.max_text_length).to(device)

    def load_vocabulary(self, folder: Path) -> None:
        """Read the vocabulary of questions."""
        self.vocabulary = QuestionVocabulary.load(folder / VOCABULARY)


def create_pool(config: CoAttentionConfig, glimpses: int = 1) -> AttentionPool:
    """Return a pooling of `glimpses` weighted sums."""
    return AttentionPool(config.dim, config.pool_dim, config.pooled_dim, glimpses=glimpses, dropout=config.dropout)


def _create_backbone(config: CoAttentionConfig, bias: bool) -> CoAttention:
    """Return the backbone; bias: whether the projections of all attentions have one."""
    return CoAttention(
        **config.values_of(
            "vocab_size", "feature_dim", "word_dim", "dim", "num_heads", "num_layers", "ff_dim", "dropout"
        ),
        bias=bias,
        create_attention=lambda layer: create_self_attention(
            config, config.dim, config.num_heads, layer=layer, dropout=config.dropout, bias=bias
        ),
        create_geometry=lambda: create_pair_geometry(config, config.num_layers),
    )
