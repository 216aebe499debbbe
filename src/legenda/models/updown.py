"""Up-Down: an attention LSTM and a language LSTM over features of regions as they are (Anderson et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from legenda.attention import AdditiveAttention
from legenda.attention.multi_head import Dropout
from legenda.config import PositiveInt, Probability
from legenda.decoding.generation import Decoder, RowState
from legenda.models.base import CaptionerConfig, Encoder
from legenda.models.layers import WordLSTM
from legenda.models.packing import LinearMap
from legenda.models.recurrent import RecurrentDecoder
from legenda.regions import Memory, Regions, masked_mean


class UpDownConfig(CaptionerConfig):
    """Options of `updown`; the defaults are the paper's sizes (section 4.1)."""

    generation: ClassVar[Mapping[str, object]] = {"no_immediate_repeat": True, "max_length": 20}
    """No word twice in a row, as in the paper."""

    dim: PositiveInt = 1000
    """Channels of both LSTMs."""
    word_dim: PositiveInt | None = None
    """Channels of a word embedding; `dim` by default."""
    additive_dim: PositiveInt = 512
    """Inner channels of the attention."""
    dropout: Probability = 0.0
    """Dropout rate of the embeddings and of the output layer's input. The paper and its release have none, with SGD and
    weight decay; trained by Adam, 0.5 is usual."""

    @property
    def memory_dim(self) -> int:
        """Channels of a region, which the encoder leaves as they are."""
        return self.feature_dim

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        return UpDownEncoder()

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return UpDownDecoder(self)


class UpDownEncoder(Encoder):
    """The features of the regions and their mean, without parameters."""

    def forward(self, regions: Regions) -> Memory:
        """Return the features, and zeros for padding."""
        mask = regions.mask_or_ones
        features = regions.features.masked_fill(~mask.unsqueeze(-1), 0.0)
        return Memory(features, mask, masked_mean(features, mask))


@dataclass(frozen=True, eq=False)
class UpDownState(RowState):
    """Hidden states and cells of the attention LSTM (1) and of the language LSTM (2), all `(B, K, D)`.

    image_gates: the part of the first gates that the global feature contributes. attention: weights of the last step
    over the regions.
    """

    shared: ClassVar[tuple[str, ...]] = ("image_gates",)

    image_gates: Float[Tensor, "B gates"]
    hidden1: Float[Tensor, "B K D"]
    cell1: Float[Tensor, "B K D"]
    hidden2: Float[Tensor, "B K D"]
    cell2: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K 1 N"] | None = None


class UpDownDecoder(RecurrentDecoder[UpDownState]):
    """Two LSTMs with additive attention between them (section 3.2)."""

    def __init__(self, config: UpDownConfig) -> None:
        super().__init__()
        dim, word_dim, region_dim = config.dim, config.word_dim or config.dim, config.memory_dim
        self.dim = dim
        self.embedding = nn.Embedding(config.vocab_size, word_dim)
        self.dropout = Dropout(config.dropout)
        self.attention_lstm = WordLSTM([word_dim, dim, region_dim], dim)
        self.attention = AdditiveAttention(dim, region_dim, config.additive_dim, bias=False)
        self.language_lstm = nn.LSTMCell(region_dim + dim, dim)
        self.output = nn.Linear(dim, config.vocab_size)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute the keys of the regions, shared by all rows; the values are the regions."""
        return replace(memory, cross_kv=(self.attention.keys_values(memory.states, memory.states),))

    def start(self, memory: Memory, num_rows: int, once: Sequence[LinearMap]) -> UpDownState:
        """Return zeros, and the gates of the global feature."""
        zeros = memory.states.new_zeros(memory.mask.shape[0], num_rows, self.dim)
        return UpDownState(once[1](memory.global_feature), zeros, zeros, zeros, zeros)

    def maps(self) -> tuple[Sequence[LinearMap], Sequence[LinearMap]]:
        """Return the maps of words and global feature to the first gates, and of second and first hidden state."""
        words, second, image, first = self.attention_lstm.linear_maps()
        return (words, image), (second, first)

    def embed(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows D"]:
        """Return the embeddings of words as input of the first LSTM."""
        return self.dropout(self.embedding(tokens))

    def read(self, state: UpDownState) -> Float[Tensor, "B K D"]:
        """Return the hidden state of the language LSTM."""
        return state.hidden2

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return the logits of hidden states."""
        return self.output(self.dropout(x))

    def recur(
        self,
        gates: Float[Tensor, "B K gates"],
        state: UpDownState,
        memory: Memory,
        maps: Sequence[LinearMap],
        *,
        need_weights: bool,  # noqa: ARG002
    ) -> UpDownState:
        """Return the state after one position of all rows, always with attention weights (Eqs. 1 to 5)."""
        gates = gates + state.image_gates.unsqueeze(1)
        hidden1, cell1 = self.attention_lstm.step(gates, state.hidden2, state.hidden1, state.cell1, maps)
        queries = self.attention.queries(hidden1)
        attended, attention = self.attention.attend(queries, *memory.cross_kv[0], memory.mask)
        assert attention is not None
        inputs = torch.cat([attended, hidden1], dim=-1).flatten(0, 1)
        previous = state.hidden2.flatten(0, 1), state.cell2.flatten(0, 1)
        hidden2, cell2 = (part.view_as(hidden1) for part in self.language_lstm(inputs, previous))
        return UpDownState(state.image_gates, hidden1, cell1, hidden2, cell2, attention.transpose(1, 2))
