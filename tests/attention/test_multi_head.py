"""Multi-head attention against torch's own, and its slots against loops over every head, query and key."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from legenda.attention import Geometry, MultiHeadAttention

DIM, HEADS, SIZE = 8, 2, 4
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [1, 0, 0, 0, 0]]).bool()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Shift(nn.Module):
    """A norm that reads the mask: takes the mean of the real rows away."""

    def forward(self, x, mask):
        real = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        return x - (x * real.unsqueeze(-1)).sum(dim=1, keepdim=True) / real.sum(dim=1)[:, None, None]


class Bias(nn.Module):
    """A score bias that reads queries, keys and geometry."""

    def forward(self, query, key, geometry):
        own = query.sum(dim=-1)[:, None, :, None] + 2 * key.sum(dim=-1)[:, None, None, :]
        return own * geometry.distance.unsqueeze(1) * torch.tensor([1.0, -1.0], dtype=query.dtype)[None, :, None, None]


class Rescale(nn.Module):
    """A positive factor for every score, as in distance-sensitive attention."""

    def forward(self, scores, geometry):
        return scores * geometry.distance.abs().unsqueeze(1)


SLOTS = {"query_norm": Shift, "key_norm": Shift, "score_bias": Bias, "rescale": Rescale}
FILLED = [slots for size in (0, 1, 2, 4) for slots in itertools.combinations(SLOTS, size)]


def build(*slots, **options):
    torch.manual_seed(3)
    attention = MultiHeadAttention(DIM, HEADS, **{slot: SLOTS[slot]() for slot in slots}, **options).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.5)
    return attention.eval()


def by_loops(attention, query, key, value, mask, geometry, is_causal):
    """Values and weights from the definition, one score at a time."""
    q, k = attention.query(query), attention.key(key)
    if attention.query_norm is not None:
        q = attention.query_norm(q, mask)
    if attention.key_norm is not None:
        k = attention.key_norm(k, mask)
    v = attention.value(value)
    bias = None if attention.score_bias is None else attention.score_bias(query, key, geometry)
    B, T, S = len(query), query.shape[1], key.shape[1]
    weights = torch.zeros(B, HEADS, T, S, dtype=torch.float64)
    heads = torch.zeros(B, T, DIM, dtype=torch.float64)
    for b, h, i in itertools.product(range(B), range(HEADS), range(T)):
        part = slice(h * SIZE, (h + 1) * SIZE)
        seen = [j for j in range(S) if (mask is None or mask[b, j]) and not (is_causal and j > i)]
        scores = {}
        for j in seen:
            score = float(q[b, i, part] @ k[b, j, part])
            score = (score + (0.0 if bias is None else float(bias[b, h, i, j]))) / math.sqrt(SIZE)
            scores[j] = score * (1.0 if attention.rescale is None else abs(float(geometry.distance[b, i, j])))
        total = sum(math.exp(score) for score in scores.values())
        for j in seen:
            weights[b, h, i, j] = math.exp(scores[j]) / total
            heads[b, i, part] += weights[b, h, i, j] * v[b, j, part]
    return attention.output(heads), weights


@torch.no_grad()
@pytest.mark.parametrize("slots", FILLED, ids=lambda slots: "+".join(slots) or "none")
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "padded"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["free", "is_causal"])
def test_every_slot_by_loops(slots, mask, is_causal):
    attention = build(*slots)
    inputs, geometry = [draw(3, 5, DIM, seed=seed) for seed in (0, 2, 3)], Geometry(distance=draw(3, 5, 5, seed=1))
    values, weights = by_loops(attention, *inputs, mask, geometry, is_causal)
    shown = attention(*inputs, mask, geometry, is_causal=is_causal, need_weights=True)
    torch.testing.assert_close(shown.weights, weights)
    torch.testing.assert_close(shown.values, values)
    torch.testing.assert_close(attention(*inputs, mask, geometry, is_causal=is_causal).values, values)


class CalledFunctions(TorchFunctionMode):
    """The names of PyTorch's functions that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("slots", "needs_gradient", "fused"),
    [((), True, True), (("score_bias",), False, True), (("score_bias",), True, False), (("rescale",), False, False)],
)
def test_torch_s_kernel_computes_what_it_can(slots, needs_gradient, fused):
    """A bias too, but on CPUs none that learns."""
    x, geometry = draw(3, 5, DIM), Geometry(distance=draw(3, 5, 5, seed=1))
    with torch.set_grad_enabled(needs_gradient), CalledFunctions() as called:
        build(*slots)(x.requires_grad_(needs_gradient), x, x, MASK, geometry)
    assert called.names.count("scaled_dot_product_attention") == fused


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_a_gpu_s_kernel_teaches_a_bias(dtype, error):
    attention, mask = build().to("cuda", dtype), torch.ones(3, 49, dtype=torch.bool, device="cuda")
    mask[1, 40:] = False
    torch.manual_seed(0)
    inputs = [torch.randn(3, HEADS, 49, SIZE, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    inputs.append(torch.randn(3, HEADS, 49, 49, device="cuda", dtype=dtype, requires_grad=True))
    results = []
    for need_weights in (False, True):
        values = attention.attend(*inputs[:3], mask, inputs[3], need_weights=need_weights).values
        results.append((values, *torch.autograd.grad(values.float().square().sum(), inputs)))
    for one, other in zip(*results, strict=True):
        assert (one - other).float().norm() <= error * other.float().norm()


def test_both_paths_have_the_same_gradients():
    attention = build()
    gradients = []
    for need_weights in (False, True):
        x = draw(3, 5, DIM).requires_grad_()
        attention.zero_grad()
        (attention(x, x, x, MASK, need_weights=need_weights).values * draw(3, 5, DIM, seed=1)).sum().backward()
        gradients.append([x.grad, *(parameter.grad.clone() for parameter in attention.parameters())])
    for fast, shown in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, shown)


def test_dropout_spares_the_weights_that_are_shown():
    attention = build(dropout=0.5)
    x = draw(3, 5, DIM)
    plain = attention(x, x, x, MASK, need_weights=True)
    attention.train()
    torch.manual_seed(0)
    dropped = attention(x, x, x, MASK, need_weights=True)
    torch.testing.assert_close(dropped.weights, plain.weights)
    assert not torch.allclose(dropped.values, plain.values)
    torch.manual_seed(0)
    assert not torch.allclose(attention(x, x, x, MASK).values, plain.values)
