"""Numbers of parameters: those of the NG-SAN paper (Tables 1 and 4), computed layer by layer in advance."""

import pytest
import torch

import legenda
from legenda.models.registry import MODELS, build_model
from legenda.papers import get_recipe

WORDS = 9488
"""The paper's 9,487 words and the id that begins and ends a caption."""


def count(name, **options):
    with torch.device("meta"):
        return legenda.create_model(name, vocab_size=WORDS, **options).parameter_count


@pytest.mark.parametrize("name", ["transformer", "nsan"])
@pytest.mark.parametrize(
    ("num_layers", "parameters", "printed"),
    [(1, 18_132_752, 18.1), (2, 25_489_168, 25.5), (4, 40_202_000, 40.2), (6, 54_914_832, 54.9)],
)
def test_table_1(name, num_layers, parameters, printed):
    assert count(name, num_layers=num_layers) == parameters
    assert round(parameters / 1e6, 1) == printed


@pytest.mark.parametrize(
    ("name", "options", "more"),
    [
        # Q' of 8 heads with 64 channels each in 4 layers, and one layer from 4 features to 64 for all.
        ("ngsan", {}, 4 * (512 * 512 + 512) + 4 * 64 + 64),
        ("gsan", {}, 1_050_624 + 320),
        ("transformer", {"geometry": "key"}, 1_050_624 + 320),
        # w_g: 64 numbers for each of 8 heads in 4 layers.
        ("transformer", {"geometry": "content"}, 4 * 8 * 64 + 320),
        ("nsan", {"geometry": "content"}, 2_368),
        ("transformer", {"geometry": "content+query+key"}, 2_048 + 2 * 1_050_624 + 320),
        ("transformer", {"geometry": "absolute"}, 0),
        ("ngsan", {"geometry_per_layer": True}, 1_050_624 + 4 * 320),
        ("gsan", {"geometry_dim": 80}, 4 * (512 * 640 + 640) + 4 * 80 + 80),
        ("transformer", {"norm_first": True}, 0),
        # A scale and a shift of 512 channels in 4 layers; running statistics are no parameters.
        ("transformer", {"norm": "in_affine"}, 4 * 1024),
        ("transformer", {"norm": "ln", "norm_on": "k"}, 4 * 1024),
        ("transformer", {"norm": "bn", "norm_on": "qk"}, 8 * 1024),
        ("transformer", {"norm": "in", "norm_on": "qk"}, 0),
    ],
)
def test_what_each_slot_adds_to_the_baseline(name, options, more):
    assert count(name, **options) == 40_202_000 + more


@pytest.mark.parametrize(
    ("row", "printed"),
    [
        ("base", 39.09),
        ("refine", 89.49),
        ("refine_aoa", 83.17),
        ("lstm", 49.58),
        ("aoa", 41.18),
        ("mh", 41.19),
        ("mh_lstm", 51.68),
        ("mh_aoa", 43.28),
        ("full", 87.37),
    ],
)
def test_table_4_of_aoanet(row, printed):
    """Sizes of the release's ablations, computed from its code, with 10,369 words and the end."""
    with torch.device("meta"):
        recipe = get_recipe(f"aoanet.table4.{row}")
        parameters = legenda.create_model(recipe.model, vocab_size=10370, **recipe.model_overrides).parameter_count
    assert round(parameters / 1e6, 2) == printed


def test_the_listed_sizes_are_those_of_the_models():
    for name, entry in ((name, MODELS.get(name)) for name in MODELS if name not in MODELS.registered):
        with torch.device("meta"):
            assert build_model(name, {"vocab_size": entry.vocab_size}).parameter_count == entry.parameters, name
