"""X-LAN: X-Linear attention in encoder and decoder (Pan et al., CVPR 2020); the encoder is in x_linear.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import AdditiveAttention, AttentionOutput, XLinearAttention
from legenda.attention.dropout import Dropout
from legenda.attention.x_linear import Act, create_act
from legenda.config import Probability
from legenda.decoding.decoder import Decoder, RowState
from legenda.models.freeze import LinearMap
from legenda.models.layers import WordLSTM
from legenda.models.x_linear import XLinearConfig
from legenda.regions import Memory


class XLanConfig(XLinearConfig):
    """Options of X-LAN and the rows of its Table 3; the defaults are those of the released code.

    `variant="paper"` follows the equations as printed: no normalization and no biases in the X-Linear blocks, no biases
    in Eqs. 8 and 10, no normalization after Eq. 10, and no layer with normalization between attention and GLU. Keys and
    values have separate updates (Eq. 8; the last layer's keys are not read and have none), and the LSTM reads the
    concatenation of embedding, global feature and context instead of the embedding and the sum of the other two
    (section 3.3.3). By default it has one head of 1,024 channels with D_c = 512 (section 4.1), the plain ELU (alpha
    1), and no activation after the embedding of regions and tokens. Dropout, which the paper does not mention, stays.
    """

    paper_defaults: ClassVar[Mapping[str, Any]] = {
        "num_heads": 1,
        "alpha": 1.0,
        "region_act": "none",
        "word_act": "none",
    }

    variant: Literal["released", "paper"] = "released"
    """Whether the released code or the paper is followed where they differ."""
    attention: Literal["x_linear", "conventional"] = "x_linear"
    """The decoder's attention: X-Linear blocks, or the additive attention of Eq. 1 (Table 3, base)."""
    word_act: Act = "celu"
    """Of the token embedding."""
    context_dropout: Probability = 0.5
    """Of the context as input of the next step."""

    @property
    def is_released(self) -> bool:
        """Whether the released code is followed where the paper differs."""
        return self.variant == "released"

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        return XLanDecoder(self)

    def build_attention(self) -> XLinearAttention | AdditiveAttention:
        """Return a new attention of the decoder with random weights."""
        if self.attention == "x_linear":
            return self.build_block()
        return AdditiveAttention(self.dim, self.dim, self.num_heads * self.mid_channels)


@dataclass(frozen=True, eq=False)
class XLanState(RowState):
    """Hidden state, cell and context of every row.

    image_gates: the part of the gates that the global feature contributes. attention: weights of the last step over the
    regions.
    """

    shared: ClassVar[tuple[str, ...]] = ("image_gates",)

    image_gates: Float[Tensor, "B gates"]
    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K H N"] | None = None


class _GateMaps(NamedTuple):
    """Linear maps of the LSTM's inputs to its gates."""

    words: LinearMap
    image: LinearMap
    context: LinearMap
    hidden: LinearMap


class XLanDecoder(Decoder):
    """An LSTM over embedding, global feature and context; attention queried by its state; the next context by GLU."""

    supports_static_state = True

    def __init__(self, config: XLanConfig) -> None:
        super().__init__()
        dim, num_layers = config.dim, config.decoder_layers
        self.dim = dim
        self.embedding = nn.Embedding(config.vocab_size, dim)
        self.act = create_act(config.word_act, config.alpha)
        self.word_dropout = Dropout(config.word_dropout)
        self.context_dropout = Dropout(config.context_dropout)
        # as released the LSTM reads the sum of global feature and context, so both have the same weights
        self.lstm = WordLSTM([dim, dim] if config.is_released else [dim, dim, dim], dim)
        self.attention = nn.ModuleList(config.build_attention() for _ in range(num_layers))
        self.dropout = Dropout(config.decoder_dropout)
        self.concat = None
        if config.is_released:
            self.concat = nn.Sequential(nn.Linear((num_layers + 1) * dim, dim), nn.LayerNorm(dim))
        self.to_context = nn.Linear(2 * dim, 2 * dim)
        self.output_dropout = Dropout(config.output_dropout)
        self.output = nn.Linear(dim, config.vocab_size)

    @property
    def _attentions(self) -> list[XLinearAttention | AdditiveAttention]:
        return cast("list[XLinearAttention | AdditiveAttention]", list(self.attention))

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Compute keys and values of the regions for each block, shared by all rows."""
        states = memory.states
        cross_kv = tuple(
            attention.keys_values(states, states)
            if isinstance(attention, XLinearAttention)
            else (attention.key(states), states)
            for attention in self._attentions
        )
        return replace(memory, cross_kv=cross_kv)

    def init_state(self, memory: Memory, num_rows: int) -> XLanState:
        """Return zeros, and the gates of the global feature."""
        return self._init_state(memory, num_rows, self._gate_maps())

    def step(
        self, tokens: Int[Tensor, "B K"], state: XLanState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], XLanState]:
        """Decode one token of each row."""
        maps = self._gate_maps()
        input_gates = self._input_gates(tokens, maps) + state.image_gates.unsqueeze(1)
        state = self._recur(input_gates, state, memory, maps)
        return self.output(self.output_dropout(state.context)), state

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Decode token by token; embeddings and output layer are computed for all positions at once."""
        maps = self._gate_maps()
        state = self._init_state(memory, tokens.shape[1], maps)
        input_gates = self._input_gates(tokens, maps) + state.image_gates[:, None, None]
        contexts = []
        for gates in input_gates.unbind(dim=2):
            state = self._recur(gates, state, memory, maps)
            contexts.append(state.context)
        return self.output(self.output_dropout(torch.stack(contexts, dim=2)))

    def _gate_maps(self) -> _GateMaps:
        words, image, *context, hidden = self.lstm.linear_maps()
        return _GateMaps(words, image, context[0] if context else image, hidden)

    def _init_state(self, memory: Memory, num_rows: int, maps: _GateMaps) -> XLanState:
        zeros = memory.states.new_zeros(memory.mask.shape[0], num_rows, self.dim)
        return XLanState(maps.image(memory.global_feature), zeros, zeros, zeros)

    def _input_gates(self, tokens: Int[Tensor, "*rows"], maps: _GateMaps) -> Float[Tensor, "*rows gates"]:
        return maps.words(self.word_dropout(self.act(self.embedding(tokens))))

    def _recur(self, input_gates: Tensor, state: XLanState, memory: Memory, maps: _GateMaps) -> XLanState:
        """Return the state after one position of all rows."""
        context = self.context_dropout(state.context)
        recurrent = (maps.context, maps.hidden)
        hidden, cell = self.lstm.step(input_gates, context, state.hidden, state.cell, recurrent)
        query, outputs, attention_weights = hidden, [hidden], None
        for attention, (keys, values) in zip(self._attentions, memory.cross_kv, strict=True):
            attended = _cross_attend(attention, query, keys, values, memory)
            query, attention_weights = self.dropout(attended.values), attended.weights
            outputs.append(query)
        attended = query if self.concat is None else self.concat(torch.cat(outputs, dim=-1))
        context = F.glu(self.to_context(torch.cat([attended, hidden], dim=-1)))
        shown = None if attention_weights is None else attention_weights.transpose(1, 2)
        return XLanState(state.image_gates, hidden, cell, context, shown)


def _cross_attend(
    attention: XLinearAttention | AdditiveAttention,
    query: Float[Tensor, "B K D"],
    keys: Tensor,
    values: Tensor,
    memory: Memory,
) -> AttentionOutput:
    if isinstance(attention, XLinearAttention):
        return attention.attend(attention.queries(query), keys, values, memory.mask)
    return attention(query, keys, values, memory.mask)
