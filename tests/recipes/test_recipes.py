"""Every recipe is a whole, valid configuration."""

import pytest
import torch

from legenda.data.captions import ScenesData
from legenda.errors import LegendaError
from legenda.models import describe_model, list_models
from legenda.models.registry import build_model, configure
from legenda.recipes import Recipe, all_recipes, get_recipe
from legenda.tasks.registry import TASKS
from legenda.training import TrainingConfig

NGSAN = ("transformer", "nsan", "gsan", "ngsan")
RECIPES = all_recipes()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_model(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.summary
    config = describe_model(recipe.model).config
    sizes = {field: 50 for field in config.model_fields if field in config.derived}
    with torch.device("meta"):  # the shapes alone
        model = build_model(recipe.model, {**sizes, **recipe.model_overrides})
    assert model.name == recipe.model
    for option, value in recipe.model_overrides.items():
        assert getattr(model.config, option) == value
    assert isinstance(recipe.stages[0], TrainingConfig)
    assert recipe.task in TASKS
    assert callable(recipe.data.open)
    assert callable(recipe.data.split)


def test_recipes_of_scenes_differ_in_nothing_but_the_model():
    scenes = [recipe for name, recipe in RECIPES.items() if name.startswith("scenes.")]
    assert all((recipe.data, recipe.stages[0]) == (scenes[0].data, scenes[0].stages[0]) for recipe in scenes)
    assert {recipe.model for recipe in scenes} == set(list_models())
    attentions = {(_effective(r, "norm"), _effective(r, "geometry")) for r in scenes if r.model in NGSAN}
    assert attentions >= {
        ("none", "none"),
        ("none", "absolute"),
        ("in", "none"),
        ("none", "content"),
        ("none", "query"),
        ("none", "key"),
        ("in", "query"),
    }
    for recipe in scenes:
        assert _effective(recipe, "dim") == 64
        rates = list(describe_model(recipe.model).config.model_fields)
        for name in rates:
            if name.endswith("dropout"):
                assert _effective(recipe, name) in (0.0, True)  # AoANet has a switch among them


def test_every_named_model_has_a_recipe_on_coco_in_two_stages():
    for name in list_models():
        recipe = RECIPES[f"coco.{name}"]
        assert recipe.model == name
        assert recipe.stages[0].objective == "cross_entropy"
        assert len(recipe.stages) == 2
        assert recipe.stages[1].objective == "self_critical"


def test_what_the_papers_and_releases_say():
    ngsan, aoanet, xlan, xtransformer, mdsan = (
        RECIPES[f"coco.{name}"] for name in ("ngsan", "aoanet", "xlan", "xtransformer", "mdsan")
    )
    assert [recipe.stages[0].epochs for recipe in (ngsan, aoanet, xlan, xtransformer, mdsan)] == [15, 25, 70, 70, 19]
    assert [recipe.stages[0].batch_size for recipe in (ngsan, aoanet, xlan, xtransformer)] == [10, 10, 40, 160]
    rates = [ngsan.stages[0].schedule.at(0, epoch) for epoch in (1, 2, 3, 6, 7, 10, 13)]
    assert rates == pytest.approx([1e-4, 2e-4, 3e-4, 3e-4, 1.5e-4, 7.5e-5, 3.75e-5])
    assert aoanet.stages[0].schedule.at(0, 25) == pytest.approx(2e-4 * 0.8**8)
    assert aoanet.stages[0].scheduled_sampling.at(25) == pytest.approx(0.2)
    assert xlan.stages[0].schedule.at(9_999, 1) == pytest.approx(3.125e-4)
    rates = [mdsan.stages[0].schedule.at(0, epoch) for epoch in (1, 2, 3, 4, 10, 11, 12, 13, 19)]
    assert rates == pytest.approx([2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 2e-5, 2e-5, 4e-6, 4e-6])
    drawn = mdsan.stages[1].self_critical
    assert (drawn.sample_method, drawn.baseline, drawn.loss_reduction, drawn.num_samples) == (
        "beam",
        "mean",
        "max_length",
        5,
    )


def test_every_row_of_a_table_is_a_model_of_its_own():
    tables: dict[str, list[Recipe]] = {}
    for name, recipe in RECIPES.items():
        if ".table" in name:
            tables.setdefault(name.rpartition(".")[0], []).append(recipe)
    assert {name: len(rows) for name, rows in tables.items()} == {
        **{f"ngsan.table{number}": rows for number, rows in {1: 8, 2: 5, 3: 4, 4: 5}.items()},
        **{"aoanet.table4": 10, "xlan.table3": 7},
        **{
            f"mdsan.table{number}": rows
            for number, rows in {4: 5, 5: 4, 6: 6, 7: 6, 8: 5, 9: 4, 10: 6, 11: 9, 12: 8, 13: 4}.items()
        },
    }
    for rows in tables.values():
        configurations = {repr(configure(row.model, {**row.model_overrides, "vocab_size": 9})) for row in rows}
        assert len(configurations) == len(rows)
        assert len({repr((row.data, row.stages)) for row in rows}) == 1


def test_tables_of_scores_after_cross_entropy_have_rows_of_one_stage():
    one_stage = {name.rpartition(".")[0] for name in RECIPES if ".table" in name and len(RECIPES[name].stages) == 1}
    assert one_stage == {"aoanet.table4", "xlan.table3"}


def test_what_rows_of_mdsan_change():
    assert RECIPES["mdsan.table4.layers_5"].model_overrides == {"num_layers": 5}
    assert _effective(RECIPES["mdsan.table6.drop_20"], "drop_branch") == 0.2
    assert _effective(RECIPES["mdsan.table11.heads_40"], "drop_head") == 0.4
    assert _effective(RECIPES["mdsan.table11.extendqk_30"], "drop_head") == 0.3
    assert RECIPES["mdsan.table5.m3"].model == RECIPES["mdsan.table13.msa"].model == "mdsan_msa"


def test_every_captioner_on_coco_has_a_small_self_on_scenes():
    for name in ("coco.ngsan", "ngsan.table2.bn", "aoanet.table4.lstm", "xlan.table3.full", "mdsan.table12.msa_23"):
        large, small = RECIPES[name], get_recipe(f"scenes.{name}")
        assert (small.name, small.model) == (f"scenes.{name}", large.model)
        assert isinstance(small.data, ScenesData)
        assert small.stages == RECIPES["scenes.ngsan"].stages
        assert small.model_overrides == {**RECIPES[f"scenes.{large.model}"].model_overrides, **large.model_overrides}
    with pytest.raises(
        LegendaError, match=r"there is no recipe 'scenes\.scenes\.ngsan'; did you mean scenes\.ngsan\?$"
    ):
        get_recipe("scenes.scenes.ngsan")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, r in RECIPES.items() if r.task == "captioning" and "scenes" not in n])
def test_every_small_self_on_scenes_builds_its_model(name):
    if RECIPES[name].data != RECIPES["video.nsan"].data:  # moving scenes are small themselves
        small = get_recipe(f"scenes.{name}")
        with torch.device("meta"):
            assert build_model(small.model, {"vocab_size": 50, "feature_dim": 50, **small.model_overrides}) is not None


def _effective(recipe: Recipe, option: str) -> object:
    entry = describe_model(recipe.model)
    defaults = {field: info.default for field, info in entry.config.model_fields.items()}
    return {**defaults, **entry.settings, **recipe.model_overrides}[option]


def test_scenes_recipes_keep_the_model_that_says_most_truths():
    assert RECIPES["scenes.ngsan"].stages[0].monitor == "truth"
    assert RECIPES["flickr8k.ngsan"].stages[0].monitor == "CIDEr-D"


@pytest.mark.parametrize(
    ("wrong", "near"), [("scenes.ngsn", "scenes.ngsan"), ("flickr8k.tranformer", "flickr8k.transformer")]
)
def test_an_unknown_recipe_suggests_the_nearest(wrong, near):
    with pytest.raises(LegendaError, match=rf"there is no recipe '{wrong}'; did you mean {near}\?$"):
        get_recipe(wrong)


def test_a_name_like_none_lists_the_first():
    first = ", ".join(sorted(RECIPES)[:10])
    with pytest.raises(LegendaError, match=rf"choose from {first}, and {len(RECIPES) - 10} others$"):
        get_recipe("42")
