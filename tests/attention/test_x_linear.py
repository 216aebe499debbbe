"""X-Linear attention: the equations written out, its gradients, and what it must never make."""

import pytest
import torch
from torch.nn import functional as F

from legenda.attention import AttentionConfig, Geometry, GeometryBias
from legenda.attention.x_linear import XLinearAttention

B, T, S, D, H = 2, 3, 5, 8, 2


@pytest.fixture
def draw():
    """Random double numbers of a shape, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def mask():
    return torch.tensor([[True] * 5, [True, False, True, False, False]])


def build(**options):
    torch.manual_seed(0)
    block = XLinearAttention(D, options.pop("num_heads", H), **options).double().eval()
    for parameter in block.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return block


@torch.no_grad()
def test_the_paper_s_block_written_out(draw):
    """Equations 2 to 6 with keys and values of their own, as printed: one head, no norm, no bias."""
    block = build(num_heads=1, norm=False, bias=False, act="relu")
    assert block.pair.out_features == D // 2
    assert all(name.endswith("weight") for name, _ in block.named_parameters())
    query, keys, values = draw(B, T, D), draw(B, S, D), draw(B, S, D)
    found = block(query, keys, values).values
    W_k, W_q_k, W_v, W_q_v = (
        part.linear.weight for part in (block.key, block.query_key, block.value, block.query_value)
    )
    for b in range(B):
        for t in range(T):
            Q = query[b, t]
            inner = F.relu((F.relu(keys[b] @ W_k.T) * F.relu(W_q_k @ Q)) @ block.pair.weight.T)
            beta_s = (inner @ block.spatial.weight[0]).softmax(dim=0)
            beta_c = torch.sigmoid(block.channel.weight @ inner.mean(dim=0))
            expected = beta_c * (beta_s @ (F.relu(values[b] @ W_v.T) * F.relu(W_q_v @ Q)))
            torch.testing.assert_close(found[b, t], expected)


@pytest.mark.parametrize("chunk_size", [1, 2 * B * S * D])
def test_chunks_of_queries_give_the_same_results_and_gradients(draw, mask, chunk_size):
    block = build(mid_dim=3).train()
    regions = draw(B, S, D).requires_grad_()

    def results():
        values = block(regions, regions, regions, mask, is_causal=True).values
        return values, *torch.autograd.grad(values.square().sum(), [regions, *block.parameters()])

    expected = results()
    block.chunk_size = chunk_size
    for part, other in zip(results(), expected, strict=True):
        torch.testing.assert_close(part, other)


def test_gradients_of_chunks_are_of_the_dropout_masks_of_their_results(draw, mask):
    block, regions = build(mid_dim=3, dropout=0.4).double().train(), draw(B, S, D).double().requires_grad_()
    block.chunk_size = 1

    def attend(regions):
        torch.manual_seed(1)
        return block(regions, regions, regions, mask, is_causal=True).values

    assert torch.autograd.gradcheck(attend, (regions,))


def test_training_keeps_no_product_of_all_queries_and_keys(draw):
    """Not images x queries x keys x dim numbers between the forward and the backward pass."""
    queries, keys = draw(2, 12, D), draw(2, 7, D)
    block, saved = build(mid_dim=2), []
    block.chunk_size = 1
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        block(queries, keys, keys).values.sum()
    assert max(saved) < 12 * 7 * D


@torch.no_grad()
def test_a_mask_for_each_query(draw, mask):
    block = build()
    query, keys = draw(B, T, D), draw(B, S, D)
    masks = mask.unsqueeze(1).repeat(1, T, 1)
    masks[0, 1, 2:] = False
    found = block(query, keys, keys, masks).values
    expected = block(query, keys, keys, mask).values
    torch.testing.assert_close(found[:, [0, 2]], expected[:, [0, 2]])
    torch.testing.assert_close(found[0, 1], block(query[:1], keys[:1, :2], keys[:1, :2]).values[0, 1])


@torch.no_grad()
def test_slots_and_windows_act_on_the_scores(draw):
    regions = draw(B, S, D)
    geometry = Geometry(embedded=draw(B, S, S, 4).relu())
    plain = build()
    biased = build(score_bias=GeometryBias(AttentionConfig(geometry="content+query", geometry_dim=4), D, H, D // H))
    biased.load_state_dict(plain.state_dict(), strict=False)
    weights = plain(regions, regions, regions, need_weights=True).weights
    found = biased(regions, regions, regions, None, geometry, need_weights=True).weights
    bias = biased.score_bias(regions, regions, geometry)
    torch.testing.assert_close(found, (weights.log() + bias).softmax(dim=-1))

    halved = build(rescale=Halve())
    found = halved(regions, regions, regions, need_weights=True).weights
    torch.testing.assert_close(found, (weights.log() / 2).softmax(dim=-1))

    window = torch.eye(S, dtype=torch.bool).expand(B, S, S).clone()
    window[:, :, 0] = True
    found = plain(regions, regions, regions, torch.ones(B, S, dtype=torch.bool), Geometry(window=window)).values
    alone = plain(regions[:, 3:4], regions[:, [0, 3]], regions[:, [0, 3]]).values[:, 0]
    torch.testing.assert_close(found[:, 3], alone)


class Halve(torch.nn.Module):
    def forward(self, scores, _):
        return scores / 2


def test_half_precision_gives_nearly_the_same(draw, mask):
    block = build().float()
    regions = draw(B, S, D).float()
    gradients = []
    for enabled in (False, True):
        block.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            values = block(regions, regions, regions, mask).values
        values.float()[:, 0].square().sum().backward()
        gradients.append((values, block.pair.weight.grad.clone(), block.key.linear.weight.grad.clone()))
    for precise, rough in zip(*gradients, strict=True):
        assert (precise - rough).abs().max() < 0.05 * precise.abs().max()
        assert not torch.equal(precise, rough.float())
