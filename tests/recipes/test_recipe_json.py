"""Recipes as JSON: what is printed is read back."""

import json
from dataclasses import replace

import pytest

from legenda.cli.main import main
from legenda.errors import LegendaError
from legenda.recipes import all_recipes, get_recipe, read_recipe, recipe_to_json

_RECIPE = get_recipe("coco.xlan")


def test_every_recipe_is_read_back_as_it_is_printed(tmp_path):
    path = tmp_path / "recipe.json"
    for recipe in all_recipes().values():
        path.write_text(json.dumps(recipe_to_json(recipe)))
        assert read_recipe(path) == recipe


def test_the_command_prints_what_training_reads(tmp_path, capsys):
    main(["recipes", "scenes.ngsan.table2.bn"])
    path = tmp_path / "recipe.json"
    path.write_text(capsys.readouterr().out)
    assert read_recipe(path) == get_recipe("scenes.ngsan.table2.bn")
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--config", str(path), "--training.epochs", "4", "--help"])
    assert stopped.value.code == 0
    assert "Train scenes.ngsan.table2.bn" in capsys.readouterr().out


def _changed(**changes):
    return {**recipe_to_json(_RECIPE), **changes}


STAGE = recipe_to_json(_RECIPE)["stages"][0]
BAD = [
    ([], "it holds no recipe; give a file as legenda recipes NAME prints it"),
    ({"name": "x"}, "it holds no recipe"),
    (_changed(data={"annotations": "x"}), "data names no kind"),
    (_changed(data={"kind": "carpathy"}), "there is no data set 'carpathy'; did you mean karpathy?"),
    (_changed(stages=[]), "has no stages"),
    (_changed(stages=[3]), r"stages\[0\] has no settings"),
    (
        _changed(stages=[{**STAGE, "schedule": {"kind": "stepdecay"}}]),
        "did you mean step_decay?",
    ),
    (_changed(stages=[STAGE, {**STAGE, "epoch": 3}]), r"stages\[1\] has no option 'epoch'; did you mean epochs?"),
    (_changed(modell="x"), "a recipe has no option 'modell'; did you mean model?"),
    ({name: part for name, part in _changed().items() if name != "model"}, "a recipe needs model"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_a_damaged_file_is_named_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(content))
    with pytest.raises(LegendaError, match=message) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)


def test_paths_stay_as_they_are():
    assert recipe_to_json(_RECIPE)["data"]["annotations"] == "dataset_coco.json"
    assert recipe_to_json(replace(_RECIPE, name="mine"))["name"] == "mine"
