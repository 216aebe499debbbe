"""X-LAN: X-Linear attention in encoder and decoder (Pan et al., CVPR 2020); the encoder is in x_linear.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from legenda.attention import AttentionOutput
from legenda.attention.additive import AdditiveAttention
from legenda.attention.x_linear import Act, XLinearAttention, create_act
from legenda.decoding.decoder import Decoder
from legenda.decoding.kv_cache import gather_beams
from legenda.models.lstm import WordLSTM
from legenda.models.x_linear import XLinearConfig, XLinearEncoder
from legenda.regions import Memory


@dataclass(frozen=True, kw_only=True)
class XLanConfig(XLinearConfig):
    """Sizes and switches of X-LAN and the rows of its Table 3; the defaults are those of the released code.

    The paper prints less than the release has. `reading="paper"` takes away the normalisation and the biases inside
    the X-Linear blocks, the biases in Eqs. 8 and 10, the normalisation after Eq. 10, and the layer with
    normalisation that the release puts between attention and GLU. It gives keys and values an update of their own each
    (Eq. 8; the last layer's keys are read by nobody and have none), and the LSTM reads word, image and context side by
    side instead of word beside the sum of image and context (section 3.3.3). What is a number is in the named model
    `xlan_paper`: one head of 1,024 channels with D_c = 512 (section 4.1), the plain ELU (alpha 1), and no activation
    after the embedding of regions and words. Dropout, of which the paper says nothing, stays.
    """

    reading: Literal["released", "paper"] = "released"
    """Which of the two is followed where they differ."""
    attention: Literal["x_linear", "conventional"] = "x_linear"
    """The decoder's attention: X-Linear blocks, or the additive attention of Eq. 1 (Table 3, base)."""
    word_act: Act = "celu"
    """Of the word embedding."""
    context_dropout: float = 0.5
    """Of the context where it enters the next step."""

    @property
    def literal(self) -> bool:
        """Whether the equations are followed as printed."""
        return self.reading == "paper"

    def build_encoder(self) -> XLinearEncoder:
        """The encoder of section 3.3.2."""
        return XLinearEncoder(self)

    def build_decoder(self) -> XLanDecoder:
        """The decoder of section 3.3.3."""
        return XLanDecoder(self)


@dataclass(frozen=True, eq=False)
class XLanState:
    """Hidden state, cell and context of every row, and what the image adds to the gates of all its rows.

    attention: where the last word looked.
    """

    image: Float[Tensor, "B gates"]
    hidden: Float[Tensor, "B K D"]
    cell: Float[Tensor, "B K D"]
    context: Float[Tensor, "B K D"]
    attention: Float[Tensor, "B K H N"] | None = None

    def reorder(self, beams: Int[Tensor, "B K"]) -> XLanState:
        """The state of rows `beams` of each image."""
        return XLanState(
            self.image,
            gather_beams(self.hidden, beams),
            gather_beams(self.cell, beams),
            gather_beams(self.context, beams),
            None if self.attention is None else gather_beams(self.attention, beams),
        )


class _Matrices(NamedTuple):
    """Of the LSTM, `(gates, D)` each."""

    words: Tensor
    image: Tensor
    context: Tensor
    hidden: Tensor


class XLanDecoder(Decoder):
    """Word, image and context through an LSTM, whose state asks the regions; both make the next context."""

    supports_static_state = True

    def __init__(self, config: XLanConfig) -> None:
        super().__init__()
        D = self.dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, D)
        self.act = create_act(config.word_act, config.alpha)
        self.word_dropout = nn.Dropout(config.word_dropout)
        self.context_dropout = nn.Dropout(config.context_dropout)
        # The gates are linear: as released the context shares the weights of the image, to which it is added.
        self.lstm = WordLSTM(D, 2 * D if config.literal else D, D)
        self.attention = nn.ModuleList(
            config.create_block()
            if config.attention == "x_linear"
            else AdditiveAttention(D, D, config.num_heads * config.mid_channels)
            for _ in range(config.decoder_layers)
        )
        self.dropout = nn.Dropout(config.decoder_dropout)
        self.gather = None
        if not config.literal:
            self.gather = nn.Sequential(nn.Linear((config.decoder_layers + 1) * D, D), nn.LayerNorm(D))
        self.to_context = nn.Linear(2 * D, 2 * D)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(D, config.vocab_size)

    @property
    def _looks(self) -> list[XLinearAttention | AdditiveAttention]:
        return cast("list[XLinearAttention | AdditiveAttention]", list(self.attention))

    def precompute_cross_kv(self, memory: Memory) -> Memory:
        """Keys and values of the regions for each block, and the vector of each image, shared by all rows."""
        states = memory.states
        projected = tuple(
            attention.keys_values(states, states)
            if isinstance(attention, XLinearAttention)
            else (attention.key(states), states)
            for attention in self._looks
        )
        return Memory(states, memory.mask, memory.global_feature, projected)

    def init_state(self, memory: Memory, num_rows: int) -> XLanState:
        """All zeros, and the share of the image in the gates."""
        return self._start(memory, num_rows, self._matrices().image)

    def step(
        self, tokens: Int[Tensor, "B K"], state: XLanState, memory: Memory
    ) -> tuple[Float[Tensor, "B K V"], XLanState]:
        """One word for each row."""
        matrices = self._matrices()
        read = self._read(tokens, matrices.words) + state.image.unsqueeze(1)
        state = self._advance(read, state, memory, matrices)
        return self.output(self.output_dropout(state.context)), state

    def forward(self, tokens: Int[Tensor, "B K T"], memory: Memory) -> Float[Tensor, "B K T V"]:
        """Word by word, since each context enters the next step; words and output layer are read all at once."""
        matrices = self._matrices()
        state = self._start(memory, tokens.shape[1], matrices.image)
        read = self._read(tokens, matrices.words) + state.image[:, None, None]
        contexts = []
        for word in read.unbind(dim=2):
            state = self._advance(word, state, memory, matrices)
            contexts.append(state.context)
        return self.output(self.output_dropout(torch.stack(contexts, dim=2)))

    def _matrices(self) -> _Matrices:
        words, other, hidden = self.lstm.split_weights()
        image, *context = other.split(self.dim, dim=1)
        return _Matrices(words, image, context[0] if context else image, hidden)

    def _start(self, memory: Memory, num_rows: int, matrix: Tensor) -> XLanState:
        zeros = memory.states.new_zeros(len(memory), num_rows, self.dim)
        return XLanState(F.linear(memory.global_feature, matrix), zeros, zeros, zeros)

    def _read(self, tokens: Int[Tensor, "*rows"], matrix: Tensor) -> Float[Tensor, "*rows gates"]:
        """What the words add to the gates."""
        return self.lstm.input_gates(self.word_dropout(self.act(self.embedding(tokens))), matrix)

    def _advance(self, read: Tensor, state: XLanState, memory: Memory, matrices: _Matrices) -> XLanState:
        """One position of all rows."""
        before = self.context_dropout(state.context)
        hidden, cell = self.lstm.step(read, before, state.hidden, state.cell, (matrices.context, matrices.hidden))
        query, seen, looked = hidden, [hidden], None
        for attention, (keys, values) in zip(self._looks, memory.cross_kv, strict=True):
            found = _look(attention, query, keys, values, memory)
            query, looked = self.dropout(found.values), found.weights
            seen.append(query)
        attended = query if self.gather is None else self.gather(torch.cat(seen, dim=-1))
        context = F.glu(self.to_context(torch.cat([attended, hidden], dim=-1)))
        return XLanState(state.image, hidden, cell, context, None if looked is None else looked.transpose(1, 2))


def _look(
    attention: XLinearAttention | AdditiveAttention,
    query: Float[Tensor, "B K D"],
    keys: Tensor,
    values: Tensor,
    memory: Memory,
) -> AttentionOutput:
    if isinstance(attention, XLinearAttention):
        return attention.attend(attention.queries(query), keys, values, memory.mask)
    return attention(query, keys, values, memory.mask)
