"""Several branches: their mean, what training leaves out, and that one of them is the attention itself."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from legenda.attention import AttentionConfig, MultiHeadAttention
from legenda.attention.multi_branch import Branch, MultiBranchAttention

DIM, HEADS, DROP = 8, 2, 0.4
MASK = torch.tensor([[True, True, True, True], [True, False, True, False]])


def draw(seed=0):
    return torch.randn(2, 4, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(count, *, normed, drop=0.0, dropout=0.0):
    torch.manual_seed(1)
    attentions = [MultiHeadAttention(DIM, HEADS, dropout=dropout) for _ in range(count)]
    parts = [Branch(attention, DIM, dropout) for attention in attentions] if normed else attentions
    built = MultiBranchAttention(parts, DIM, drop).double()
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.5)
    return built


@torch.no_grad()
def test_the_mean_of_raw_outputs_and_of_normed_branches():
    x = draw()
    raw = build(3, normed=False).eval()
    expected = sum(branch(x, x, x, MASK).values for branch in raw.branches) / 3
    torch.testing.assert_close(raw(x, x, x, MASK).values, expected)
    normed = build(3, normed=True).eval()
    expected = sum(branch.norm(x + branch.attention(x, x, x, MASK).values) for branch in normed.branches) / 3
    torch.testing.assert_close(normed(x, x, x, MASK).values, expected)


@torch.no_grad()
def test_one_branch_is_the_attention_itself():
    x, one = draw(), build(1, normed=False).eval()
    assert torch.equal(one(x, x, x, MASK).values, one.branches[0](x, x, x, MASK).values)
    assert isinstance(AttentionConfig().build_attention(DIM, HEADS, dropout=0.1), MultiHeadAttention)
    # A single branch is never left out, whatever the rate.
    alone = AttentionConfig(drop_branch=0.9, branch_residual=True).build_attention(DIM, HEADS, dropout=0.0)
    alone = alone.double().train()
    assert all(torch.equal(alone(x, x, x).values, alone(x, x, x).values) for _ in range(20))


def seed_draws(kept: Sequence[int]) -> None:
    """Seed PyTorch so that these branches are kept next: those for which a number of at least the rate is drawn."""
    for seed in itertools.count():
        torch.manual_seed(seed)
        if ((torch.rand(len(kept)) >= DROP) == torch.tensor(kept)).all():
            torch.manual_seed(seed)
            return


@torch.no_grad()
@pytest.mark.parametrize("normed", [False, True])
def test_the_mean_over_all_draws_is_what_evaluation_gives(normed):
    x, branches = draw(), build(3, normed=normed, drop=DROP)
    branches.train()
    mean = torch.zeros_like(x)
    for kept in itertools.product([0, 1], repeat=3):
        seed_draws(kept)
        found = branches(x, x, x, MASK).values
        expected = [branch(x, x, x, MASK).values for branch, keep in zip(branches.branches, kept, strict=True) if keep]
        torch.testing.assert_close(found, sum(expected, torch.zeros_like(x)) / (3 * (1 - DROP)))
        mean += found * (1 - DROP) ** sum(kept) * DROP ** (3 - sum(kept))
    torch.testing.assert_close(mean, branches.eval()(x, x, x, MASK).values)


def test_what_is_left_out_is_not_computed_and_its_gradients_are_zero():
    x, branches = draw().requires_grad_(), build(3, normed=True, drop=DROP)
    called = []
    for number, branch in enumerate(branches.branches):
        branch.register_forward_hook(lambda *_, number=number: called.append(number))
    seed_draws((1, 0, 1))
    branches.train()(x, x, x, MASK).values.square().sum().backward()
    assert called == [0, 2]
    for number, branch in enumerate(branches.branches):
        sizes = [parameter.grad.abs().max() for parameter in branch.parameters()]
        assert (max(sizes) == 0) == (number == 1)
