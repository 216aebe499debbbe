"""LSTMs: a cell whose input gates are computed for all tokens at once, and a masked pass over frames."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from legenda.errors import DataError
from legenda.models.freeze import LinearMap, SplitLinear


class WordLSTM(nn.LSTMCell, SplitLinear):
    """An LSTM cell whose input is a token's embedding, concatenated with inputs that depend on the image or the step.

    The gates are linear in all of them, so the part of the embeddings is one product for all positions of all rows, and
    `step` computes the rest. Weights are those of `nn.LSTMCell` with the embedding first.
    """

    def __init__(self, input_dims: Sequence[int], hidden_dim: int) -> None:
        """Create the weights; input_dims: the width of the embedding, and those of the other inputs."""
        super().__init__(sum(input_dims), hidden_dim)
        self.input_dims = list(input_dims)

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return the weights `(gates, width)` of the embedding (with the biases), the other inputs and the state."""
        words, *others = self.weight_ih.split(self.input_dims, dim=1)
        return [(words, self.bias_ih + self.bias_hh), *((weight, None) for weight in (*others, self.weight_hh))]

    def step(
        self,
        input_gates: Float[Tensor, "*rows gates"],
        other: Float[Tensor, "*rows O"],
        hidden: Float[Tensor, "*rows D"],
        cell: Float[Tensor, "*rows D"],
        maps: Sequence[LinearMap],
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
        """Return hidden state and cell after one token; maps: of the other input and of the hidden state to gates."""
        gates = input_gates + maps[0](other) + maps[1](hidden)
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell


def run_packed_lstm(lstm: nn.LSTM, frames: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N H"]:
    """Return the LSTM's output for each frame of each video, and zeros for padding, which must follow the frames.

    Raise DataError where padding stands between frames.
    """
    lengths = mask.sum(dim=1).cpu()
    if not bool(mask[:, :-1].ge(mask[:, 1:]).all()):
        raise DataError("padding must follow the frames of a video, but this mask has padding between frames")
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]
