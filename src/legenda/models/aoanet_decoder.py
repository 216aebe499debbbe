"""AoANet's decoder and its ablations: an LSTM that looks at the regions once per word (section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import AdditiveAttention, AttentionOnAttention, AttentionOutput, MultiHeadAttention, StdLayerNorm
from legenda.decoding.decoder import Decoder
from legenda.decoding.kv_cache import gather_beams
from legenda.models.lstm import WordLSTM
from legenda.regions import Memory

if TYPE_CHECKING:
    from legenda.models.aoanet import AoANetConfig


@dataclass(frozen=True, eq=False)
class AoANetState:
    """All `(B, K, D)`: hidden state and cell of the LSTM, the context, and those of the second LSTM where there is one.

    attention: where the last word looked.
    """

    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    second: tuple[Tensor, Tensor] | None
    attention: Float[Tensor, "B K H N"] | None = None

    def reorder(self, beams: Int[Tensor, "B K"]) -> AoANetState:
        """The state of rows `beams` of each image."""
        return AoANetState(
            gather_beams(self.hidden, beams),
            gather_beams(self.cell, beams),
            gather_beams(self.context, beams),
            None if self.second is None else (gather_beams(self.second[0], beams), gather_beams(self.second[1], beams)),
            None if self.attention is None else gather_beams(self.attention, beams),
        )


class AoANetDecoder(Decoder):
    """Word and image through an LSTM, its state asks the regions, and both make the context that chooses the word."""

    supports_static_state = True

    def __init__(self, config: AoANetConfig) -> None:
        super().__init__()
        D, scaled = config.dim, config.attended_dim if config.multi_head else config.dim
        self.dim = D
        self.paper = config.reading == "paper"
        self.embedding = nn.Embedding(config.vocab_size, config.word_channels)
        self.dropout = nn.Dropout(config.dropout)
        self.context_dropout = nn.Dropout(config.dropout if config.context_dropout else 0.0)
        self.lstm = WordLSTM(config.word_channels, D, D)
        self.query_norm = StdLayerNorm(D) if config.multi_head and not self.paper else None
        self.attention = (
            MultiHeadAttention(
                D,
                config.num_heads,
                dropout=config.attention_dropout,
                inner_dim=scaled,
                output=False,
                bias=not self.paper,
            )
            if config.multi_head
            else AdditiveAttention(D, D, config.additive_dim)
        )
        query_dim = scaled if self.paper and config.multi_head else D
        self.linear = nn.Linear(scaled + D, D) if config.context == "linear" else None
        self.second_lstm = nn.LSTMCell(scaled + D, D) if config.context in ("lstm", "lstm_aoa") else None
        self.aoa = None
        if config.context == "aoa":
            self.aoa = AttentionOnAttention(scaled, query_dim, D)
        elif config.context == "lstm_aoa":
            self.aoa = AttentionOnAttention(D, D, D)
        self.output = nn.Linear(D, config.vocab_size, bias=not self.paper)

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Keys and values of the regions, shared by all rows; the additive attention's values are the regions."""
        if isinstance(self.attention, AdditiveAttention):
            pair = (self.attention.key(memory.states), memory.states)
        else:
            pair = self.attention.keys_values(memory.states, memory.states)
        return replace(memory, cross_kv=(pair,))

    def init_state(self, memory: Memory, num_rows: int) -> AoANetState:
        """All zeros."""
        zeros = memory.states.new_zeros(len(memory), num_rows, self.dim)
        return AoANetState(zeros, zeros, zeros, None if self.second_lstm is None else (zeros, zeros))

    def step(
        self, tokens: Int[Tensor, "B K"], state: AoANetState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], AoANetState]:
        """One word for each row."""
        words, *others = self.lstm.split_weights()
        state = self._advance(self._read(tokens, words), state, memory, others, need_weights=True)
        return self.output(self.dropout(state.context)), state

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Word by word, since each context enters the next step; words and output layer are read all at once."""
        state = self.init_state(memory, tokens.shape[1])
        words, *others = self.lstm.split_weights()
        contexts = []
        for read in self._read(tokens, words).unbind(dim=2):
            state = self._advance(read, state, memory, others, need_weights=False)
            contexts.append(state.context)
        return self.output(self.dropout(torch.stack(contexts, dim=2)))

    def _read(self, tokens: Int[Tensor, "*rows"], matrix: Tensor) -> Float[Tensor, "*rows gates"]:
        words = self.embedding(tokens)
        return self.lstm.input_gates(self.dropout(words if self.paper else F.relu(words)), matrix)

    def _advance(
        self, read: Tensor, state: AoANetState, memory: Memory, matrices: list[Tensor], *, need_weights: bool
    ) -> AoANetState:
        """Eqs. 12 to 14 for one position of all rows."""
        seen = memory.global_feature.unsqueeze(1) + self.context_dropout(state.context)
        hidden, cell = self.lstm.step(read, seen, state.hidden, state.cell, matrices)
        attended, looked = self._look(hidden, memory, need_weights=need_weights)
        second = None
        if self.linear is not None:
            context = F.relu(self.linear(torch.cat([attended, hidden], dim=-1)))
        elif self.second_lstm is not None and state.second is not None:
            before = tuple(part.flatten(0, 1) for part in state.second)
            after = self.second_lstm(torch.cat([attended, hidden], dim=-1).flatten(0, 1), before)
            second = (after[0].view_as(hidden), after[1].view_as(hidden))
            context = second[0] if self.aoa is None else self.aoa(second[0], hidden)
        else:
            assert self.aoa is not None
            projected = self.paper and isinstance(self.attention, MultiHeadAttention)
            context = self.aoa(attended, self.attention.query(hidden) if projected else hidden)
        attention = None if looked is None else looked.transpose(1, 2)
        return AoANetState(hidden, cell, context, second, attention)

    def _look(self, hidden: Float[Tensor, "B K D"], memory: Memory, *, need_weights: bool) -> AttentionOutput:
        keys, values = memory.cross_kv[0]
        if isinstance(self.attention, AdditiveAttention):
            return self.attention(hidden, keys, values, memory.mask)
        asked = hidden if self.query_norm is None else self.query_norm(hidden)
        return self.attention.attend(
            self.attention.queries(asked), keys, values, memory.mask, need_weights=need_weights
        )
