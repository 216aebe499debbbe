"""LSTMs: that of the decoders, with what is known beforehand computed for all words at once, and one over frames."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from legenda.errors import UserError


class WordLSTM(nn.LSTMCell):
    """An LSTM cell whose input is a word beside something that depends on the step before.

    The gates are linear in both, so the share of the words is one product for all positions of all rows (`read`), and
    a step (`advance`) multiplies only the rest. Weights are those of torch's cell with the word first in its input.
    """

    def __init__(self, word_dim: int, other_dim: int, hidden_dim: int) -> None:
        super().__init__(word_dim + other_dim, hidden_dim)
        self.word_dim = word_dim

    def parts(self) -> tuple[Float[Tensor, "gates E"], Float[Tensor, "gates O"], Float[Tensor, "gates D"]]:
        """Return the matrices of words, of the rest of the input and of the state before."""
        words, other = self.weight_ih.split([self.word_dim, self.weight_ih.shape[1] - self.word_dim], dim=1)
        return words, other, self.weight_hh

    def read(self, words: Float[Tensor, "*rows E"], matrix: Float[Tensor, "gates E"]) -> Float[Tensor, "*rows gates"]:
        """What the words add to the gates, biases included."""
        return F.linear(words, matrix, self.bias_ih + self.bias_hh)

    def advance(
        self,
        read: Float[Tensor, "*rows gates"],
        other: Float[Tensor, "*rows O"],
        hidden: Float[Tensor, "*rows D"],
        cell: Float[Tensor, "*rows D"],
        matrices: Sequence[Tensor],
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*rows D"]]:
        """Hidden state and cell after one word."""
        gates = read + F.linear(other, matrices[0]) + F.linear(hidden, matrices[1])
        enter, keep, new, leave = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell


def read_in_order(lstm: nn.LSTM, frames: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N H"]:
    """What an LSTM makes of each frame of each video, and zeros for padding, which must follow the frames.

    Raises UserError where padding stands between frames.
    """
    lengths = mask.sum(dim=1).cpu()
    if not bool(mask[:, :-1].ge(mask[:, 1:]).all()):
        raise UserError("frames are read in their order, so padding must follow them; the mask has it between them")
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]
