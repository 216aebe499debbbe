"""MCAN: co-attention of regions and the tokens of a text, for questions and expressions (Yu et al., CVPR 2019).

Self-attention among the tokens of a text, self-attention among regions, and attention from regions to tokens. The
self-attention among regions takes all attention options: NG-SAN (section 6.3) and MD-SAN (section VI) replace this one
only, since tokens have no boxes, and more would exceed MD-SAN's number of parameters (Table XIV).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from legenda.attention import AttentionConfig, Geometry, MultiHeadAttention, PairGeometry, StdLayerNorm
from legenda.attention.geometry import BOX_EMBEDDINGS
from legenda.attention.multi_head import Dropout
from legenda.config import Count, PositiveInt, Probability
from legenda.errors import CheckpointError, ConfigError
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary, encode_tokens, tokenize_question
from legenda.models.base import Model, ModelConfig, TokenFiles, inference
from legenda.models.layers import FeedForward, Residual
from legenda.regions import Regions, mask_zero_features
from legenda.run_folder import ANSWERS, VOCABULARY

C = TypeVar("C", bound="CoAttentionConfig")
_PAD_ID = 0
"""The id that pads questions."""


class CoAttentionConfig(AttentionConfig, ModelConfig):
    """Sizes of the backbone; the attention options are those of the self-attention among regions."""

    feature_dim: PositiveInt = 2048
    """Channels of a region feature."""
    word_dim: PositiveInt = 300
    """Channels of a word embedding."""
    dim: PositiveInt = 512
    """Channels inside the model."""
    num_heads: Count = 8
    num_layers: Count = 6
    """Layers of the text encoder, and of the region encoder."""
    ff_dim: PositiveInt = 2048
    """Inner channels of the feed-forward networks."""
    pool_dim: PositiveInt = 512
    """Inner channels of the networks that score tokens and regions for pooling."""
    pooled_dim: PositiveInt = 1024
    """Channels of the pooled question and of the pooled image."""
    max_text_length: Count = 14
    """Texts are truncated to this many tokens."""
    dropout: Probability = 0.1
    """Dropout rate of attention weights and each sublayer's output, and inside feed-forward networks and pooling."""

    projection_bias: ClassVar[bool] = True
    """Whether the projections of all attentions have a bias."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim", "max_text_length")

    @model_validator(mode="after")
    def _check_co_attention(self) -> CoAttentionConfig:
        if self.dim % self.num_heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}")
        if self.geometry in BOX_EMBEDDINGS:
            raise ConfigError(f"geometry={self.geometry!r} is for the Transformer; choose query, key or content")
        self.check(self.dim, self.num_layers)
        return self


def _std_residual(config: CoAttentionConfig) -> Residual:
    """Return norm(x + sublayer(x)) with the layer normalization of MCAN's release."""
    return Residual(config.dim, config.dropout, norm_first=False, norm=StdLayerNorm(config.dim))


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

    def __init__(self, config: CoAttentionConfig) -> None:
        super().__init__()
        dim, dropout = config.dim, config.dropout
        self.attention = MultiHeadAttention(dim, config.num_heads, dropout=dropout, bias=config.projection_bias)
        self.feed_forward = FeedForward(dim, config.ff_dim, dropout)
        self.attention_residual = _std_residual(config)
        self.feed_forward_residual = _std_residual(config)

    def forward(self, x: Float[Tensor, "B L D"], token_mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Return the states of the tokens after this layer."""
        tokens = QuestionTokens.from_states(x, token_mask)
        x = self.attention_residual.post(x, self.attention(x, tokens.keys, x, tokens.attention_mask).values)
        return self.feed_forward_residual.post(x, self.feed_forward(x))


class GuidedAttentionLayer(nn.Module):
    """Self-attention among regions, attention from regions to tokens, and a feed-forward network ("SGA")."""

    def __init__(self, config: CoAttentionConfig, layer: int) -> None:
        """Create the layer, counted from 0."""
        super().__init__()
        dim, num_heads, dropout, bias = config.dim, config.num_heads, config.dropout, config.projection_bias
        self.attention = config.build_attention(dim, num_heads, layer=layer, dropout=dropout, bias=bias)
        self.cross_attn = MultiHeadAttention(dim, num_heads, dropout=dropout, bias=bias)
        self.feed_forward = FeedForward(dim, config.ff_dim, dropout)
        self.attention_residual = _std_residual(config)
        self.cross_attn_residual = _std_residual(config)
        self.feed_forward_residual = _std_residual(config)

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

    def __init__(self, config: CoAttentionConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.word_dim)
        self.lstm = nn.LSTM(config.word_dim, config.dim, batch_first=True)
        self.input = nn.Linear(config.feature_dim, config.dim)
        self.words = nn.ModuleList(SelfAttentionLayer(config) for _ in range(config.num_layers))
        self.regions = nn.ModuleList(GuidedAttentionLayer(config, layer) for layer in range(config.num_layers))
        self.geometry = PairGeometry(config, config.num_layers)

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttentionOutput:
        """Return the states of tokens and regions; question: token ids, padded with `_PAD_ID`."""
        token_mask = question.ne(_PAD_ID)
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

    def __init__(self, config: CoAttentionConfig, glimpses: int = 1) -> None:
        """Create the networks; glimpses: number of weighted sums."""
        super().__init__()
        dim, pool_dim = config.dim, config.pool_dim
        self.score = nn.Sequential(
            nn.Linear(dim, pool_dim), nn.ReLU(), Dropout(config.dropout), nn.Linear(pool_dim, glimpses)
        )
        self.linear = nn.Linear(dim * glimpses, config.pooled_dim)

    def forward(self, x: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Return the pooled vector; all positions get the same weight where the mask is empty."""
        scores = self.score(x)
        weights = scores.masked_fill(~mask.unsqueeze(-1), torch.finfo(scores.dtype).min).softmax(dim=1)
        return self.linear(torch.einsum("bng,bnd->bgd", weights, x).flatten(1))


class CoAttentionModel(Model[C, QuestionVocabulary]):
    """A model of texts and regions on the backbone."""

    token_files: ClassVar[TokenFiles] = {"vocabulary": (VOCABULARY, QuestionVocabulary.load)}

    def __init__(self, config: C) -> None:
        super().__init__()
        self.config = config
        self.needs_boxes = config.needs_boxes
        self.backbone = CoAttention(config)

    def attend(self, regions: Regions, question: Int[Tensor, "B L"]) -> CoAttentionOutput:
        """Return the output of the backbone; raise DataError for regions that do not fit the model."""
        self.check_regions(regions)
        return self.backbone(regions, question)

    def ids(self, texts: Sequence[Sequence[str]]) -> Int[Tensor, "B L"]:
        """Return the ids of tokenized texts, truncated or padded to `config.max_text_length`, on the model's device.

        Raise CheckpointError where the model has no vocabulary.
        """
        return encode_tokens(texts, self.require_vocabulary(), self.config.max_text_length).to(self.device)


class McanConfig(CoAttentionConfig):
    """MCAN as released (MILVLG/mcan-vqa); the defaults are its small model.

    The large one has dim=1024, num_heads=16, ff_dim=4096 and pooled_dim=2048.
    """

    answers: PositiveInt = 3129
    """Number of answers; VQA-v2 has this many that annotators gave more than eight times."""
    glimpses: Count = 1
    """Weighted sums of the tokens, and of the regions, that are concatenated."""

    derived: ClassVar[tuple[str, ...]] = (*CoAttentionConfig.derived, "answers")

    def build(self) -> Model:
        """Return a new model with random weights."""
        return Mcan(self)


class Mcan(CoAttentionModel[McanConfig]):
    """The backbone, attention pooling of question and image, and a logit for each answer."""

    answers: AnswerVocabulary | None = None
    """The answer of each logit."""
    token_files: ClassVar[TokenFiles] = {
        **CoAttentionModel.token_files,
        "answers": (ANSWERS, AnswerVocabulary.load),
    }

    def __init__(self, config: McanConfig) -> None:
        super().__init__(config)
        self.pool_words = AttentionPool(config, config.glimpses)
        self.pool_regions = AttentionPool(config, config.glimpses)
        self.norm = StdLayerNorm(config.pooled_dim)
        self.output = nn.Linear(config.pooled_dim, config.answers)

    def forward(self, regions: Regions, question: Int[Tensor, "B L"]) -> Float[Tensor, "B A"]:
        """Return the logits of all answers; the sigmoid of each predicts the annotators' agreement with it."""
        states = self.attend(regions, question)
        pooled_question = self.pool_words(states.tokens, states.token_mask)
        pooled = pooled_question + self.pool_regions(states.regions, states.region_mask)
        return self.output(self.norm(pooled))

    def answer(self, regions: Regions, questions: Sequence[str]) -> list[str]:
        """Return the most probable answer to each question, one question per image, in evaluation mode.

        Raise LegendaError when the model has no vocabulary or no answers.
        """
        return [answer for answer, _ in self.answer_with_probability(regions, questions)]

    def answer_with_probability(self, regions: Regions, questions: Sequence[str]) -> list[tuple[str, float]]:
        """Return the answers of `answer`, each with the sigmoid of its logit."""
        if self.answers is None:
            raise ConfigError("this model has no list of answers; set model.answers first")
        question = self.ids([tokenize_question(text) for text in questions])
        with inference(self) as model:
            logits, best = model(regions, question).max(dim=-1)
        answers = [self.answers.tokens[number] for number in best.tolist()]
        return list(zip(answers, logits.sigmoid().tolist(), strict=True))

    def load_vocabulary(self, folder: Path) -> None:
        """Read both; raise CheckpointError where the number of answers differs from the model's."""
        super().load_vocabulary(folder)
        if self.answers is not None and len(self.answers) != self.config.answers:
            raise CheckpointError(
                f"{folder / ANSWERS} has {len(self.answers)} answers but the model has {self.config.answers}; "
                "use the file that was saved with it"
            )
