"""Every recipe is a whole, valid configuration, and says what the papers and releases say."""

import re

import pytest
import torch

from legenda.data.captions import ScenesData
from legenda.errors import ConfigError
from legenda.extras.vqa.data import VqaData
from legenda.models import describe_model, list_models
from legenda.models.registry import build_model, configure
from legenda.papers import all_recipes, get_recipe, get_table
from legenda.recipes import Recipe
from legenda.tasks.base import TASKS
from legenda.training.schedules import Constant

RECIPES = all_recipes()


def build(recipe: Recipe):
    """Return the model of a recipe, without weights."""
    config = describe_model(recipe.model).config
    sizes = {name: 50 for name in config.derived if name in config.model_fields}
    with torch.device("meta"):
        return build_model(recipe.model, {**sizes, **recipe.model_overrides})


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_model(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.summary
    assert recipe.task == describe_model(recipe.model).task
    assert recipe.task in TASKS
    model = build(recipe)
    assert model.name == recipe.model
    assert not {*recipe.model_overrides} & {*model.config.derived}
    assert callable(recipe.data.open)
    assert callable(recipe.data.split)


def test_recipes_of_scenes_differ_in_nothing_but_the_model():
    recipes = [recipe for name, recipe in RECIPES.items() if name.startswith("scenes.")]
    assert {recipe.model for recipe in recipes} == set(list_models())
    for recipe in recipes:
        assert (recipe.data, recipe.stages) == (recipes[0].data, recipes[0].stages)
        config = build(recipe).config
        assert config.dim == 64
        rates = {name: getattr(config, name) for name in type(config).model_fields if name.endswith("dropout")}
        assert not any(rate for rate in rates.values() if rate is not True)  # AoANet has a switch among them
    assert recipes[0].stages[0].monitor == "truth"


def test_every_captioning_row_has_a_small_self_on_scenes():
    small = {name: get_recipe(f"scenes.{name}") for name, r in RECIPES.items() if name.startswith(("coco", "ngsan"))}
    for name, recipe in small.items():
        large = RECIPES[name]
        assert (recipe.name, recipe.model) == (f"scenes.{name}", large.model)
        assert isinstance(recipe.data, ScenesData)
        overrides = RECIPES[f"scenes.{large.model}"].model_overrides
        assert recipe.model_overrides == {**overrides, **large.model_overrides}
        assert build(recipe).config.dim == (1024 if name == "coco.updown_aoanet" else 64)  # a width of its own stays
    assert build(get_recipe("scenes.mdsan.table12.msa_23")).config.num_layers == 3
    for name in ("scenes.scenes.ngsan", "scenes.vqa2.mcan_small", "scenes.nothing"):
        with pytest.raises(ConfigError, match=f"there is no recipe '{name}'"):
            get_recipe(name)


def test_recipes_of_scenes_for_other_tasks_differ_in_the_attention_alone():
    for prefix in ("vqa.scenes", "grounding.scenes"):
        base, *others = (recipe for name, recipe in RECIPES.items() if name.startswith(prefix))
        for recipe, added in zip(others, ({"geometry"}, {"distance", "branches", "drop_branch"}), strict=True):
            assert (recipe.data, recipe.stages) == (base.data, base.stages)
            assert {*recipe.model_overrides} - {*base.model_overrides} == added


def test_the_papers_models_on_coco_have_two_stages():
    coco = {name: recipe for name, recipe in RECIPES.items() if name.startswith("coco.")}
    assert {recipe.model for recipe in coco.values()} == set(list_models())
    for recipe in coco.values():
        assert [stage.objective for stage in recipe.stages] == ["cross_entropy", "self_critical"]


def test_captioning_trains_as_papers_and_releases_do():
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
    for recipe in (mdsan, RECIPES["coco.mdsan_paper"]):
        assert sum(stage.epochs for stage in recipe.stages) == 100
    samples = mdsan.stages[1].self_critical
    assert (samples.sample_method, samples.baseline, samples.loss_reduction, samples.num_samples) == (
        "beam",
        "mean",
        "max_length",
        5,
    )


def test_x_lan_as_printed_has_one_adam_and_40_images():
    first, second = RECIPES["coco.xlan_paper"].stages
    for name in ("optimizer", "betas", "eps", "batch_size"):
        assert getattr(first, name) == getattr(second, name)
    assert (second.batch_size, second.epochs, second.schedule) == (40, 35, Constant(learning_rate=1e-5))


def test_no_recipe_waits_for_the_last_of_rates_that_are_all_the_same():
    for name, recipe in RECIPES.items():
        for stage in recipe.stages:
            assert not (isinstance(stage.schedule, Constant) and stage.last_rate_patience), name


def test_the_up_down_of_aoanet_has_its_settings():
    baseline, aoanet = RECIPES["coco.updown_aoanet"], RECIPES["coco.aoanet"]
    assert (baseline.data, baseline.stages) == (aoanet.data, aoanet.stages)
    config = configure("updown", {**baseline.model_overrides, "vocab_size": 9})
    assert (config.dim, config.dropout) == (1024, 0.5)


def test_rows_of_other_features_read_the_files_that_the_guide_of_coco_makes():
    """Bottom-Up regions and the grid; another network's features have its name."""
    features = {name: str(getattr(recipe.data, "features", "")) for name, recipe in RECIPES.items()}
    halves = {"table14": "coco_grid", "table14_regions": "coco", "table1": "coco_grid", "table1_regions": "coco"}
    for table, expected in halves.items():
        for row in get_table(f"mdsan.{table}").rows:
            if row.recipe is not None:
                assert f"{expected}.safetensors" in features[row.recipe], row.recipe
    for name in ("coco.xlan_senet154", "coco.xtransformer_senet154"):
        assert features[name] == "coco_senet154.safetensors"
        whole = RECIPES[name.removesuffix("_senet154")]
        assert (RECIPES[name].model_overrides, RECIPES[name].stages) == (whole.model_overrides, whole.stages)
    on_coco = {path for name, path in features.items() if name.startswith(("coco.", "vqa2.", "refcoco"))}
    names = {part for path in on_coco for part in re.findall(r"coco\w*(?=\.safetensors)", path)}
    assert names == {"coco", "coco_grid", "coco_grid152", "coco_senet154"}


def test_vatex_has_the_vocabulary_and_the_lengths_of_its_release():
    recipe = RECIPES["vatex.nsan"]
    assert (recipe.data.tokenizer, recipe.data.min_count, recipe.data.vocabulary) == ("vatex", 5, "train")
    assert [stage.max_caption_length + 2 for stage in recipe.stages] == [40, 40]
    assert recipe.stages[1].self_critical.max_length == recipe.data.max_length == 39
    assert [stage.schedule for stage in recipe.stages] == [stage.schedule for stage in RECIPES["coco.nsan"].stages]


def test_mcan_trains_as_released():
    recipes = [
        RECIPES[name] for name in ("vqa2.mcan_small", "vqa2.mcan_large", "vqa2.online.mcan_large", "refcoco.mcan")
    ]
    stages = [recipe.stages[0] for recipe in recipes]
    assert [stage.schedule.at(0, 4) for stage in stages] == [1e-4, 7e-5, 5e-5, 1.4e-4]
    assert [stage.gradient_accumulation_steps for stage in stages] == [1, 2, 2, 1]
    assert [stage.max_grad_norm for stage in stages] == [0.0, 0.0, 0.0, 1.0]
    for stage in stages:
        assert (stage.epochs, stage.batch_size, stage.monitor) == (13, 64, "accuracy")
        assert (stage.optimizer, stage.betas, stage.eps) == ("adam", (0.9, 0.98), 1e-9)
    for name, recipe in RECIPES.items():
        if isinstance(recipe.data, VqaData):
            assert recipe.data.train == ("train+val+vg" if "online" in name else "train")


def test_wmt14_trains_as_fairseq_does():
    base, recipe = RECIPES["wmt14.transformer"], RECIPES["wmt14.nsa"]
    assert (base.model_overrides, recipe.model_overrides) == ({}, {"norm": "in"})  # the defaults: Transformer-Base
    assert (base.data, base.stages) == (recipe.data, recipe.stages)
    stage = recipe.stages[0]
    assert (stage.betas, stage.label_smoothing, stage.label_smoothing_target) == ((0.9, 0.98), 0.1, "non_target")
    assert (stage.max_grad_norm, stage.max_grad_value, stage.weight_decay) == (0.0, 0.0, 0.0)
    assert [stage.schedule.at(step, 1) for step in (0, 4_000, 16_000)] == pytest.approx([1e-7, 5e-4, 2.5e-4])
    assert 100_000 < stage.epochs * 4_560_000 / stage.batch_size < 120_000
    assert (stage.weight_averaging, stage.epochs - stage.averaging_start_epoch) == ("swa", 4)  # the last five
