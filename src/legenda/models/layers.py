"""Layers that several models share, and linear layers with weights packed for inference on a CPU.

Decoding reads all weights for every token. oneDNN, which PyTorch holds, multiplies few rows by weights in a layout of
its own 1.2 to 2.5 times as fast as `F.linear` (greedy decoding, one AMD EPYC core). The layout is a copy, so the
parameters of a frozen model are deleted: nothing can be stale. Training uses plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from legenda.attention.multi_head import Dropout
from legenda.errors import DataError

LinearMap = Callable[[Tensor], Tensor]
"""A product with a weight matrix, and the sum with a bias."""
MIN_NUMEL = 2**18
"""Weights from which a layer is packed; below, converting the input costs more than the product gains."""


class SplitLinear(nn.Module):
    """Base class of modules that multiply parts of their weights by inputs of their own."""

    packed: Sequence[LinearMap] | None = None

    def parts(self) -> Sequence[tuple[Tensor, Tensor | None]]:
        """Return weight and bias of each part."""
        raise NotImplementedError

    def linear_maps(self) -> Sequence[LinearMap]:
        """Return the products with the parts."""
        if self.packed is not None:
            return self.packed
        return [partial(F.linear, weight=weight, bias=bias) for weight, bias in self.parts()]


class PackedLinear:
    """The product `x weight^T + bias` without gradients, with a weight packed by oneDNN in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype).contiguous(), None)
        self.bias = None if bias is None else bias.detach().to(dtype, copy=True)

    def __call__(self, input: Tensor) -> Tensor:
        """Return the product in the dtype of the input."""
        x = input.to(self.dtype)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "").to(input.dtype)

    def __deepcopy__(self, memo: object) -> PackedLinear:
        return self  # nothing in it changes


def freeze_linear(model: nn.Module, dtype: torch.dtype = torch.float32, min_numel: int = MIN_NUMEL) -> None:
    """Keep the weights of a float32 model's large linear layers packed only, and delete their parameters.

    The model then computes without gradients on the CPU; it cannot be trained, saved or moved. dtype: of the packed
    weights; with bfloat16 each product is rounded once, and all other operations are computed in float32, as is the
    layer of the logits, whose rounding would change one caption in twelve.
    """
    for layer in _pack(model, dtype, min_numel):
        for module in filter(_has_weights, layer.modules()):
            for name in list(module._parameters):
                module.register_parameter(name, None)


@contextmanager
def packed_linear(model: nn.Module, min_numel: int = MIN_NUMEL) -> Iterator[None]:
    """Multiply by packed weights inside the block, which must not change them nor want gradients."""
    layers = _pack(model, torch.float32, min_numel)
    try:
        yield
    finally:
        for layer in layers:
            if isinstance(layer, SplitLinear):
                layer.packed = None
            else:
                del layer.forward


def is_frozen(model: nn.Module) -> bool:
    """Return whether parameters were deleted by `freeze_linear`."""
    return any(not list(module.parameters(recurse=False)) for module in filter(_has_weights, model.modules()))


def _pack(model: nn.Module, dtype: torch.dtype, min_numel: int) -> list[nn.Module]:
    """Pack the large layers that hold float32 weights on the CPU, and return them.

    Builds of PyTorch without MKL have fast float32 products of their own; those without oneDNN cannot pack.
    """
    layers: list[nn.Module] = []
    inner: set[nn.Module] = set()
    for name, module in model.named_modules():
        kind = torch.float32 if name.endswith("decoder.output") else dtype
        if not (torch.backends.mkldnn.is_available() and (kind != torch.float32 or torch.backends.mkl.is_available())):
            continue
        if not isinstance(module, SplitLinear) and type(module) is not nn.Linear:
            continue
        parameters = list(module.parameters())
        if module in inner or _is_packed(module) or sum(p.numel() for p in parameters) < min_numel:
            continue
        if {(p.dtype, p.device.type) for p in parameters} != {(torch.float32, "cpu")}:
            continue
        if isinstance(module, SplitLinear):
            inner.update(module.modules())
            module.packed = [PackedLinear(weight, bias, kind) for weight, bias in module.parts()]
        else:
            module.forward = PackedLinear(module.weight, module.bias, kind)
        layers.append(module)
    return layers


def _has_weights(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.LSTMCell)


def _is_packed(module: nn.Module) -> bool:
    return isinstance(vars(module).get("forward"), PackedLinear) or getattr(module, "packed", None) is not None


class FeedForward(nn.Sequential):
    """Two linear layers with a ReLU between them, applied to each position."""

    def __init__(self, dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__(nn.Linear(dim, ff_dim), nn.ReLU(), Dropout(dropout), nn.Linear(ff_dim, dim))


class Residual(nn.Module):
    """x + sublayer(x), normalized after the sum or, with `norm_first`, before the sublayer."""

    def __init__(self, dim: int, dropout: float, norm_first: bool, norm: nn.Module | None = None) -> None:
        """Create the connection; norm: `nn.LayerNorm(dim)` by default."""
        super().__init__()
        self.norm = nn.LayerNorm(dim) if norm is None else norm
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def pre(self, x: Tensor) -> Tensor:
        """Return the sublayer's input."""
        return self.norm(x) if self.norm_first else x

    def post(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of x and `y`, the sublayer's output."""
        total = x + self.dropout(y)
        return total if self.norm_first else self.norm(total)


class PostNormFeedForward(nn.Module):
    """A feed-forward network with a residual connection and layer normalization after it."""

    def __init__(self, dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__()
        self.inner = FeedForward(dim, ff_dim, dropout)
        self.residual = Residual(dim, dropout, norm_first=False)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Apply the network to each position."""
        return self.residual.post(x, self.inner(x))


def init_xavier_uniform_(module: nn.Module) -> None:
    """Initialize all matrices except embeddings from Xavier's uniform distribution, as the Transformer does."""
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for parameter in module.parameters():
        if parameter.dim() > 1 and id(parameter) not in embeddings:
            nn.init.xavier_uniform_(parameter)


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
    if not len(frames):  # which pack_padded_sequence refuses
        return lstm(frames)[0]
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames.shape[1])[0]
