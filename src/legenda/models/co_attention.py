"""Words and regions that look at each other: the backbone that MCAN's models for questions and for grounding share.

Self-attention among the words of a text, self-attention among regions, and attention from regions to words (Yu et al.,
CVPR 2019). The attention among regions takes all options of the house. NG-SAN (section 6.3) and MD-SAN (section VI)
replace it and leave the others: words have no places in a picture, and MD-SAN's number of parameters (Table XIV) has
room for no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from legenda.attention import (
    AttentionConfig,
    Geometry,
    MultiHeadAttention,
    StdLayerNorm,
    create_pair_geometry,
    create_self_attention,
)
from legenda.errors import UserError
from legenda.models.layers import FeedForward, Residual
from legenda.models.model import Config, Model
from legenda.regions import Regions, mask_zero_features
from legenda.run_files import VOCABULARY
from legenda.text.encoding import encode_tokens
from legenda.text.vocabulary import QuestionVocabulary

PAD_ID = 0
"""The id that fills up questions."""


@dataclass(frozen=True, kw_only=True)
class CoAttentionConfig(AttentionConfig, Config):
    """Sizes of the words and regions that look at each other; the options of attention are those among the regions."""

    feature_dim: int = 2048
    """Channels of a region feature."""
    word_dim: int = 300
    """Channels of a word's embedding."""
    dim: int = 512
    """Channels inside the model."""
    num_heads: int = 8
    num_layers: int = 6
    """Layers among the words, and as many among the regions."""
    ff_dim: int = 2048
    """Inner channels of the feed-forward layers."""
    pool_dim: int = 512
    """Inner channels of what weighs words and regions for their sum."""
    pooled_dim: int = 1024
    """Channels of a whole question and a whole picture."""
    max_text_length: int = 14
    """Words of the longest question; longer ones are cut."""
    dropout: float = 0.1
    """Of attention weights, of what each sub-layer adds, and inside feed-forward layers and pooling."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim", "max_text_length")

    def __post_init__(self) -> None:
        sizes = ("feature_dim", "word_dim", "dim", "num_heads", "num_layers", "ff_dim", "pool_dim", "pooled_dim")
        self.require_positive(*sizes, "max_text_length", "geometry_dim")
        self.require_probabilities("dropout")
        if self.dim % self.num_heads:
            raise UserError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.geometry == "absolute":
            raise UserError("geometry='absolute' belongs to the Transformer; choose query, key or content")
        self.check(self.dim)


class StdResidual(Residual):
    """norm(x + sub-layer(x)) with the layer normalisation of MCAN's release."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__(dim, dropout, norm_first=False, norm=StdLayerNorm(dim))


@dataclass(frozen=True, eq=False)
class Words:
    """The words of a question as keys of attention.

    keys: the words, or zeros where a question has none: all scores are then alike, and every padded place counts the
    same, as in the release; mask: which keys count.
    """

    states: Float[Tensor, "B L D"]
    keys: Float[Tensor, "B L D"]
    mask: Bool[Tensor, "B L"]

    @staticmethod
    def of(states: Float[Tensor, "B L D"], heard: Bool[Tensor, "B L"]) -> Words:
        """heard: which are words, not padding."""
        silent = ~heard.any(dim=1, keepdim=True)
        return Words(states, states.masked_fill(silent.unsqueeze(-1), 0.0), heard | silent)


class WordLayer(nn.Module):
    """Self-attention among words and a feed-forward layer ("SA")."""

    def __init__(self, config: CoAttentionConfig, *, bias: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.dim, config.num_heads, dropout=config.dropout, bias=bias)
        self.feed_forward = FeedForward(config.dim, config.ff_dim, config.dropout)
        self.attention_residual = StdResidual(config.dim, config.dropout)
        self.feed_forward_residual = StdResidual(config.dim, config.dropout)

    def forward(self, x: Float[Tensor, "B L D"], heard: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """The words after this layer."""
        words = Words.of(x, heard)
        x = self.attention_residual.post(x, self.attention(x, words.keys, x, words.mask).values)
        return self.feed_forward_residual.post(x, self.feed_forward(x))


class RegionLayer(nn.Module):
    """Self-attention among regions, attention from regions to words, and a feed-forward layer ("SGA")."""

    def __init__(self, config: CoAttentionConfig, layer: int, *, bias: bool) -> None:
        super().__init__()
        self.attention = create_self_attention(
            config, config.dim, config.num_heads, layer=layer, dropout=config.dropout, bias=bias
        )
        self.guided = MultiHeadAttention(config.dim, config.num_heads, dropout=config.dropout, bias=bias)
        self.feed_forward = FeedForward(config.dim, config.ff_dim, config.dropout)
        self.attention_residual = StdResidual(config.dim, config.dropout)
        self.guided_residual = StdResidual(config.dim, config.dropout)
        self.feed_forward_residual = StdResidual(config.dim, config.dropout)

    def forward(
        self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"], geometry: Geometry, words: Words
    ) -> Float[Tensor, "B N D"]:
        """The regions after this layer."""
        x = self.attention_residual.post(x, self.attention(x, x, x, mask, geometry).values)
        x = self.guided_residual.post(x, self.guided(x, words.keys, words.states, words.mask).values)
        return self.feed_forward_residual.post(x, self.feed_forward(x))


@dataclass(frozen=True, eq=False)
class CoAttended:
    """Words and regions that have looked at each other; the masks are True where they are real."""

    words: Float[Tensor, "B L D"]
    heard: Bool[Tensor, "B L"]
    regions: Float[Tensor, "B N D"]
    mask: Bool[Tensor, "B N"]


class CoAttention(nn.Module):
    """The backbone: an LSTM and self-attention over the words, then regions guided by the last layer's words.

    Regions whose features are all 0 count as padding, as in the release, unless a picture has no others.
    """

    def __init__(self, config: CoAttentionConfig, *, bias: bool = True) -> None:
        """bias: whether the projections of all attentions have one."""
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.word_dim)
        self.lstm = nn.LSTM(config.word_dim, config.dim, batch_first=True)
        self.input = nn.Linear(config.feature_dim, config.dim)
        self.words = nn.ModuleList(WordLayer(config, bias=bias) for _ in range(config.num_layers))
        self.regions = nn.ModuleList(RegionLayer(config, layer, bias=bias) for layer in range(config.num_layers))
        self.geometry = create_pair_geometry(config, config.num_layers)

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttended:
        """question: ids of the words, filled up with `PAD_ID`."""
        heard = question.ne(PAD_ID)
        words, _ = self.lstm(self.embedding(question))
        for layer in self.words:
            words = layer(words, heard)
        regions = mask_zero_features(regions)
        mask = regions.mask_or_ones
        x = self.input(regions.features.masked_fill(~mask.unsqueeze(-1), 0.0))
        said = Words.of(words, heard)
        for layer, geometry in zip(self.regions, self.geometry(regions), strict=True):
            x = layer(x, mask, geometry, said)
        return CoAttended(words, heard, x, mask)


class AttentionPool(nn.Module):
    """One vector of many: sums that a small network weighs, side by side, and a linear layer ("AttFlat")."""

    def __init__(self, config: CoAttentionConfig, glimpses: int = 1) -> None:
        super().__init__()
        self.score = nn.Sequential(
            nn.Linear(config.dim, config.pool_dim),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.pool_dim, glimpses),
        )
        self.linear = nn.Linear(config.dim * glimpses, config.pooled_dim)

    def forward(self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """All places weigh the same where the mask leaves none."""
        scores = self.score(x)
        weights = scores.masked_fill(~mask.unsqueeze(-1), torch.finfo(scores.dtype).min).softmax(dim=1)
        return self.linear(torch.einsum("bng,bnd->bgd", weights, x).flatten(1))


class CoAttentionModel(Model):
    """A model of words and regions on the backbone."""

    vocabulary: QuestionVocabulary | None = None

    def __init__(self, config: CoAttentionConfig, *, bias: bool = True) -> None:
        super().__init__()
        self.config = config
        self.needs_boxes = config.needs_boxes
        self.backbone = CoAttention(config, bias=bias)

    def attend(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttended:
        """The backbone's words and regions.

        Raises UserError when the features have another width than the model's, or boxes are missing that it needs.
        """
        width = regions.features.shape[-1]
        if width != self.config.feature_dim:
            raise UserError(
                f"the features have {width} channels but {self.name or 'this model'} reads {self.config.feature_dim}; "
                "use features of the extractor it was trained with"
            )
        if self.needs_boxes and regions.boxes is None:
            raise UserError(
                f"{self.name or 'this model'} needs boxes for its geometry; give Regions(features, boxes) or choose a "
                "model without geometry, such as mcan"
            )
        return self.backbone(regions, question)

    def ids(self, texts: Sequence[Sequence[str]]) -> Int[Tensor, "B L"]:
        """The ids of tokenized texts, cut and filled up to `config.max_text_length`, on the model's device.

        Raises UserError when the model has no vocabulary.
        """
        if self.vocabulary is None:
            raise UserError("this model has no vocabulary, so it cannot read words; set model.vocabulary first")
        device = self.backbone.embedding.weight.device
        return encode_tokens(texts, self.vocabulary, self.config.max_text_length).to(device)

    def load_vocabulary(self, folder: Path) -> None:
        """The words of questions."""
        self.vocabulary = QuestionVocabulary.load(folder / VOCABULARY)
