"""The first regions of an image, where a model reads no more."""

import torch

import legenda
from legenda.regions import first_regions


def test_the_others_have_no_influence(draw_regions):
    torch.manual_seed(0)
    sizes = {"dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8}
    model = legenda.create_model("transformer", vocab_size=9, feature_dim=6, max_regions=3, **sizes).eval()
    regions = draw_regions((5, 2), dim=6)
    whole = model.encode(regions)
    assert whole.states.shape[1] == 3
    changed = regions.features.clone()
    changed[:, 3:] += 1
    again = model.encode(legenda.Regions(changed, regions.boxes, regions.mask))
    assert torch.equal(whole.states, again.states)
    assert torch.equal(model.encode(model.prepare(regions)).states, whole.states)
    short = draw_regions((2, 2), dim=6)
    assert model.prepare(short) is short


def test_padding_is_not_counted_wherever_it_stands():
    mask = torch.tensor([[False, False, True, False, True], [True, False, True, True, True]])
    regions = legenda.Regions(torch.rand(2, 5, 4), torch.rand(2, 5, 4), mask)
    first = first_regions(regions, 3)
    assert first.mask.tolist() == [[True, True, False], [True, True, True]]
    for image, positions in enumerate(([2, 4], [0, 2, 3])):
        real = first.mask[image]
        assert torch.equal(first.features[image, real], regions.features[image, positions])
        assert torch.equal(first.boxes[image, real], regions.boxes[image, positions])
