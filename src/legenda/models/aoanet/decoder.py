"""AoANet's decoder and its ablations: an LSTM that attends to the regions once per token (section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import (
    AdditiveAttention,
    AttentionOnAttention,
    AttentionOutput,
    MultiHeadAttention,
    StdLayerNorm,
)
from legenda.attention.dropout import Dropout
from legenda.decoding.decoder import Decoder
from legenda.decoding.kv_cache import RowState
from legenda.models.freeze import LinearMap
from legenda.models.lstm import WordLSTM
from legenda.regions import Memory


@dataclass(frozen=True, eq=False)
class AoANetState(RowState):
    """Hidden state and cell of the LSTM, the context, and hidden state and cell of a second LSTM, all `(B, K, D)`.

    attention: weights of the last step over the regions.
    """

    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    second: tuple[Tensor, Tensor] | None
    attention: Float[Tensor, "B K H N"] | None = None


class AoANetDecoder(Decoder):
    """An LSTM over embedding, global feature and last context; attention to the regions; the context vector."""

    supports_static_state = True

    def __init__(
        self,
        *,
        vocab_size: int,
        dim: int,
        word_dim: int,
        num_heads: int | None,
        attended_dim: int,
        additive_dim: int,
        context: Literal["aoa", "lstm", "lstm_aoa", "linear"],
        as_printed: bool,
        dropout: float,
        attention_dropout: float,
        context_dropout: float,
    ) -> None:
        """Create the modules; context: as in AoANetConfig.

        num_heads: None for additive attention with `additive_dim` inner channels. attended_dim: channels of all heads.
        as_printed: the equations of the paper where the release differs. dropout: of embeddings and of the output
        layer's input; context_dropout: of the context as input of the next step.
        """
        super().__init__()
        self.dim = dim
        self.as_printed = as_printed
        self.embedding = nn.Embedding(vocab_size, word_dim)
        self.dropout = Dropout(dropout)
        self.context_dropout = Dropout(context_dropout)
        self.lstm = WordLSTM([word_dim, dim], dim)
        self.query_norm = StdLayerNorm(dim) if num_heads is not None and not as_printed else None
        self.attention = (
            AdditiveAttention(dim, dim, additive_dim)
            if num_heads is None
            else MultiHeadAttention(
                dim, num_heads, dropout=attention_dropout, inner_dim=attended_dim, output=False, bias=not as_printed
            )
        )
        query_dim = attended_dim if as_printed and num_heads is not None else dim
        self.linear = nn.Linear(attended_dim + dim, dim) if context == "linear" else None
        self.second_lstm = nn.LSTMCell(attended_dim + dim, dim) if context in ("lstm", "lstm_aoa") else None
        self.aoa = None
        if context == "aoa":
            self.aoa = AttentionOnAttention(attended_dim, query_dim, dim)
        elif context == "lstm_aoa":
            self.aoa = AttentionOnAttention(dim, dim, dim)
        self.output = nn.Linear(dim, vocab_size, bias=not as_printed)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the regions, shared by all rows; values of additive attention are the regions."""
        if isinstance(self.attention, AdditiveAttention):
            cross_kv = (self.attention.key(memory.states), memory.states)
        else:
            cross_kv = self.attention.keys_values(memory.states, memory.states)
        return replace(memory, cross_kv=(cross_kv,))

    def init_state(self, memory: Memory, num_rows: int) -> AoANetState:
        """Return zeros."""
        zeros = memory.states.new_zeros(memory.mask.shape[0], num_rows, self.dim)
        return AoANetState(zeros, zeros, zeros, None if self.second_lstm is None else (zeros, zeros))

    def step(
        self, tokens: Int[Tensor, "B K"], state: AoANetState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], AoANetState]:
        """Decode one token of each row."""
        map_words, *maps = self.lstm.linear_maps()
        state = self._recur(self._input_gates(tokens, map_words), state, memory, maps, need_weights=True)
        return self.output(self.dropout(state.context)), state

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Decode token by token; embeddings and output layer are computed for all positions at once."""
        state = self.init_state(memory, tokens.shape[1])
        map_words, *maps = self.lstm.linear_maps()
        contexts = []
        for input_gates in self._input_gates(tokens, map_words).unbind(dim=2):
            state = self._recur(input_gates, state, memory, maps, need_weights=False)
            contexts.append(state.context)
        return self.output(self.dropout(torch.stack(contexts, dim=2)))

    def _input_gates(self, tokens: Int[Tensor, "*rows"], map_words: LinearMap) -> Float[Tensor, "*rows gates"]:
        words = self.embedding(tokens)
        return map_words(self.dropout(words if self.as_printed else F.relu(words)))

    def _recur(
        self, input_gates: Tensor, state: AoANetState, memory: Memory, maps: list[LinearMap], *, need_weights: bool
    ) -> AoANetState:
        """Return the state after one position of all rows (Eqs. 12 to 14)."""
        image = memory.global_feature.unsqueeze(1) + self.context_dropout(state.context)
        hidden, cell = self.lstm.step(input_gates, image, state.hidden, state.cell, maps)
        attended, attention_weights = self._cross_attend(hidden, memory, need_weights=need_weights)
        second = None
        if self.linear is not None:
            context = F.relu(self.linear(torch.cat([attended, hidden], dim=-1)))
        elif self.second_lstm is not None and state.second is not None:
            previous = tuple(part.flatten(0, 1) for part in state.second)
            current = self.second_lstm(torch.cat([attended, hidden], dim=-1).flatten(0, 1), previous)
            second = (current[0].view_as(hidden), current[1].view_as(hidden))
            context = second[0] if self.aoa is None else self.aoa(second[0], hidden)
        else:
            assert self.aoa is not None
            projected = self.as_printed and isinstance(self.attention, MultiHeadAttention)
            context = self.aoa(attended, self.attention.query(hidden) if projected else hidden)
        attention = None if attention_weights is None else attention_weights.transpose(1, 2)
        return AoANetState(hidden, cell, context, second, attention)

    def _cross_attend(self, hidden: Float[Tensor, "B K D"], memory: Memory, *, need_weights: bool) -> AttentionOutput:
        keys, values = memory.cross_kv[0]
        if isinstance(self.attention, AdditiveAttention):
            return self.attention(hidden, keys, values, memory.mask)
        normed = hidden if self.query_norm is None else self.query_norm(hidden)
        queries = self.attention.queries(normed)
        return self.attention.attend(queries, keys, values, memory.mask, need_weights=need_weights)
