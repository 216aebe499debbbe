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


def test_an_image_whose_first_regions_are_masked_keeps_them():
    mask = torch.tensor([[False, False, True]])
    assert first_regions(legenda.Regions(torch.rand(1, 3, 4), None, mask), 2).mask.all()
