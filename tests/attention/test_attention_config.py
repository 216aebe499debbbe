"""The options of self-attention: what each of them builds, alone and together."""

import itertools
import math

import pytest
import torch
from torch import nn

from legenda import Regions
from legenda.attention import (
    DISTANCES,
    GEOMETRIES,
    AdditiveAttention,
    AttentionConfig,
    MaskedBatchNorm,
    MaskedInstanceNorm,
    MultiHeadAttention,
    PairGeometry,
    XLinearAttention,
)
from legenda.attention.distance import WINDOWS
from legenda.errors import DataError, LegendaError
from legenda.regions import Memory, masked_mean

DIM, HEADS = 16, 2
ALONE = {
    "norm": {"norm": "in", "norm_on": "qk"},
    "query geometry": {"geometry": "query+key"},
    "relative": {"geometry": "relative"},
    "distance": {"distance": "manhattan"},
    "piecewise": {"distance": "euclidean", "distance_scaling": "quadratic"},
    "swin": {"window": "swin", "window_size": 3},
    "halo": {"window": "halo", "window_size": 2, "window_halo": 1},
    "branches": {"branches": 2, "drop_branch": 0.3},
    "normed branches": {"branches": 3, "branch_residual": True},
    "heads": {"attention_heads": 4, "head_dim": 6},
    "queries": {"query_head_dim": 12},
    "talking": {"talking_heads": True, "drop_head": 0.2},
}


def build(options, **how):
    torch.manual_seed(0)
    attention = options.build_attention(DIM, HEADS, dropout=0.1, **how).double().eval()
    geometry = PairGeometry(options, 2).double()
    for parameter in [*attention.parameters(), *geometry.parameters()]:
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return attention, geometry


def attended(attention, geometry, regions, layer=1):
    padding = ~regions.mask_or_ones.unsqueeze(-1)
    x = regions.features.masked_fill(padding, 0.0)
    return attention(x, x, x, regions.mask_or_ones, geometry(regions)[layer]).values


@torch.no_grad()
@pytest.mark.parametrize(
    "names", [*itertools.combinations(ALONE, 1), *itertools.combinations(ALONE, 2)], ids=" and ".join
)
def test_any_two_together_know_no_order_and_no_padding(names, draw_regions):
    options = AttentionConfig(**{key: value for name in names for key, value in ALONE[name].items()})
    options.check(DIM, 2)
    attention, geometry = build(options)
    regions = draw_regions((6, 3), dim=DIM).to(dtype=torch.float64)
    found = attended(attention, geometry, regions)
    assert found.shape == (2, 6, DIM)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    turned = Regions(regions.features[:, order], regions.boxes[:, order], regions.mask_or_ones[:, order])
    real = regions.mask_or_ones[:, order]
    torch.testing.assert_close(attended(attention, geometry, turned)[real], found[:, order][real])
    alone = Regions(regions.features[1:, :3], regions.boxes[1:, :3])
    torch.testing.assert_close(attended(attention, geometry, alone)[0], found[1, :3])
    spoilt = Regions(
        regions.features,
        regions.boxes.masked_fill(~regions.mask_or_ones.unsqueeze(-1), float("nan")),
        regions.mask_or_ones,
    )
    again = attended(attention, geometry, spoilt)
    assert again.isfinite().all()
    torch.testing.assert_close(again[regions.mask_or_ones], found[regions.mask_or_ones])


def test_what_is_not_read_is_not_computed(draw_regions):
    regions = draw_regions((6, 3), dim=DIM)
    for options in (AttentionConfig(), AttentionConfig(geometry="absolute"), AttentionConfig(branches=3)):
        for geometry in PairGeometry(options, 3)(regions):
            assert geometry.embedded is geometry.distance is geometry.window is None
    shared = PairGeometry(AttentionConfig(geometry="relative", distance="chebyshev", window="swin"), 3)(regions)
    assert shared[0].embedded is shared[2].embedded
    assert shared[0].distance is shared[1].distance
    assert shared[0].window is shared[2].window is not shared[1].window


@torch.no_grad()
def test_talking_heads_by_loops():
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 3, talking=True).double().eval()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True], [True, False, True, False]])
    q, k, v = (linear(x).unflatten(-1, (3, 2)) for linear in (attention.query, attention.key, attention.value))
    before, after = attention.mix_scores.weight, attention.mix_weights.weight
    heads = torch.zeros(2, 4, 3, 2, dtype=torch.float64)
    for b, i in itertools.product(range(2), range(4)):
        seen = [j for j in range(4) if mask[b, j]]
        scores = [[float(q[b, i, h] @ k[b, j, h]) / math.sqrt(2) for j in seen] for h in range(3)]
        mixed = [
            [sum(float(before[h, g]) * scores[g][j] for g in range(3)) for j in range(len(seen))] for h in range(3)
        ]
        weights = [[math.exp(score) / sum(map(math.exp, row)) for score in row] for row in mixed]
        for h, g in itertools.product(range(3), range(3)):
            for j, weight in zip(seen, weights[g], strict=True):
                heads[b, i, h] += float(after[h, g]) * weight * v[b, j, h]
    expected = attention.output(heads.flatten(2))
    torch.testing.assert_close(attention(x, x, x, mask).values, expected)
    torch.testing.assert_close(attention(x, x, x, mask, need_weights=True).values, expected)


@torch.no_grad()
@pytest.mark.parametrize("need_weights", [False, True])
def test_the_mean_over_all_erased_heads_is_what_evaluation_gives(need_weights):
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 3, drop_head=0.4).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    mean = torch.zeros_like(x)
    for kept in itertools.product([0, 1], repeat=3):
        for seed in itertools.count():
            torch.manual_seed(seed)
            if ((torch.rand(3) >= 0.4) == torch.tensor(kept)).all():
                break
        torch.manual_seed(seed)
        share = 0.6 ** sum(kept) * 0.4 ** (3 - sum(kept))
        mean += share * attention.train()(x, x, x, need_weights=need_weights).values
    torch.testing.assert_close(mean, attention.eval()(x, x, x).values)


ATTEND = {
    "multi_head": lambda mask: MultiHeadAttention(DIM, HEADS)(X, X, X, mask),
    "with weights": lambda mask: MultiHeadAttention(DIM, HEADS)(X, X, X, mask, need_weights=True),
    "attend": lambda mask: MultiHeadAttention(DIM, HEADS).attend(HEADED, HEADED, HEADED, mask),
    "norm": lambda mask: AttentionConfig(norm="in").build_attention(DIM, HEADS, dropout=0.0)(X, X, X, mask),
    "memory": lambda mask: AttentionConfig(attention="memory").build_attention(DIM, HEADS, dropout=0.0)(X, X, X, mask),
    "x_linear": lambda mask: XLinearAttention(DIM, HEADS)(X, X, X, mask),
    "branches": lambda mask: AttentionConfig(branches=2).build_attention(DIM, HEADS, dropout=0.0)(X, X, X, mask),
    "additive": lambda mask: AdditiveAttention(DIM, DIM, DIM).attend(X, X, X, mask),
    "instance norm": lambda mask: MaskedInstanceNorm(DIM)(X, mask),
    "batch norm": lambda mask: MaskedBatchNorm(DIM)(X, mask),
    "regions": lambda mask: Regions(X, mask=mask),
    "memory of an encoder": lambda mask: Memory(X, mask, X[:, 0]),
    "mean": lambda mask: masked_mean(X, mask),
}
X = torch.randn(2, 3, DIM)
HEADED = X.unflatten(-1, (HEADS, -1)).transpose(1, 2)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("attend", ATTEND.values(), ids=ATTEND)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused(attend, dtype):
    """Ones and zeros that mean keep and drop would be added to the scores; users have no checks of signatures."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    attend(mask.bool())
    with pytest.raises(DataError, match="bool"):
        attend(mask.to(dtype))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": "relatif"}, "choose from none, absolute, sine, relative, content, query, key"),
        ({"geometry": "relative", "geometry_dim": 20}, "multiple of 8"),
        ({"drop_branch": 1.0}, r"drop_branch must be"),
        ({"attention_heads": 3}, "multiple of attention_heads=3"),
        ({"branches": 2, "branch_layers": (1, 3)}, "branch_layers names layer 3 of 2"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(LegendaError, match=message):
        AttentionConfig(**options).check(DIM, 2)


@torch.no_grad()
@pytest.mark.usefixtures("forget_plugins")
def test_parts_that_users_register(draw_regions):
    """A distance, a window and a geometry of a user's own; the guides register a norm and an attention."""

    class Sizes(nn.Module):
        def forward(self, *inputs):
            return inputs[-1].embedded[..., 2:].movedim(-1, 1)

    def same_row(positions, *_):
        return positions[..., 1].unsqueeze(2) == positions[..., 1].unsqueeze(1), None

    GEOMETRIES.register("sizes")(lambda *_: Sizes())
    DISTANCES.register("columns")(lambda differences: differences[..., 0])
    WINDOWS.register("same_row")(same_row)
    regions = draw_regions((4, 2), dim=DIM).to(dtype=torch.float64)
    options = AttentionConfig(distance="columns", window="same_row", geometry="sizes")
    options.check(DIM, 2)
    whole = attended(*build(options), regions, layer=0)
    assert whole.isfinite().all()
    for name in ("distance", "window", "geometry"):
        other = options.replace(**{name: "none"})
        assert not torch.allclose(whole, attended(*build(other), regions, layer=0)), name
