"""Recipes: what is printed is read back, and changes by key=value."""

import pytest

from legenda.cli.main import main
from legenda.errors import LegendaError
from legenda.papers import all_recipes, get_recipe
from legenda.recipes import changes_first, parse_changes, read_recipe, recipe_to_toml
from legenda.training.schedules import Noam


def test_every_recipe_is_read_back_as_it_is_printed(tmp_path):
    path = tmp_path / "recipe.toml"
    for recipe in all_recipes().values():
        path.write_text(recipe_to_toml(recipe))
        again = read_recipe(path)
        assert again.replace(model_overrides=recipe.model_overrides) == recipe
        assert recipe_to_toml(again) == path.read_text()


def test_the_command_prints_what_training_reads(tmp_path, capsys):
    main(["recipes", "scenes.ngsan.table2.bn"])
    path = tmp_path / "recipe.toml"
    path.write_text(capsys.readouterr().out)
    assert read_recipe(path).stages == get_recipe("scenes.ngsan.table2.bn").stages


def test_changes_are_toml_and_bare_words():
    changes = parse_changes(
        ["training.epochs=3", "training.schedule=noam", "model.norm=bn", "data.features=[a.npz,b.npz]", "model.x=null"]
    )
    assert changes == {
        "training": {"epochs": 3, "schedule": "noam"},
        "model": {"norm": "bn", "x": None},
        "data": {"features": ["a.npz", "b.npz"]},
    }


def test_changes_stand_first_and_values_of_options_stay():
    command = ["scenes.nsan", "--out", "lr=3", "model.dim=8", "--cpu", "data.seed=1", "epochs=2"]
    assert changes_first(command) == ["scenes.nsan", "model.dim=8", "data.seed=1", "epochs=2", "--out", "lr=3", "--cpu"]


def test_a_recipe_with_changes():
    recipe = get_recipe("scenes.ngsan").override(
        parse_changes(["training.epochs=3", "training.schedule=noam", "model.num_layers=1", "data.seed=7", "name=x"])
    )
    assert recipe.name == "x"
    assert recipe.stages[0].epochs == 3
    assert recipe.stages[0].schedule == Noam()
    assert recipe.model_overrides["num_layers"] == 1
    assert recipe.data.seed == 7
    assert recipe.override({"training": {"schedule": {"warmup_steps": 9}}}).stages[0].schedule == Noam(warmup_steps=9)
    assert recipe.override({}) == recipe
    assert recipe.with_seed(5).stages[0].seed == 5


def test_the_decoder_of_another_model():
    recipe = get_recipe("scenes.xlan").override(parse_changes(["model.decoder=transformer"]))
    assert recipe.model_overrides["decoder"] == {"name": "transformer"}
    recipe = recipe.override(parse_changes(["model.decoder.num_layers=3"]))
    assert recipe.model_overrides["decoder"] == {"name": "transformer", "num_layers": 3}
    recipe = recipe.override(parse_changes(["model.decoder.ff_dim=24"]))
    assert recipe.model_overrides["decoder"] == {"name": "transformer", "num_layers": 3, "ff_dim": 24}


STAGE = "[training]\nepochs = 1\n"
MODEL = '[model]\nname = "transformer"\n'
DATA = '[data]\nkind = "scenes"\n'
BAD = {
    "no TOML": ("[", "is no TOML"),
    "no model": (DATA + STAGE, "no table"),
    "no data": (MODEL + STAGE, "no table"),
    "no stages": (MODEL + DATA, "has no stage;"),
    "a number for a table": (MODEL + DATA + "[x]\n" + STAGE, "no part 'x'"),
    "no kind": (MODEL + "[data]\nseed = 1\n" + STAGE, "names no kind"),
    "a wrong kind": (MODEL + '[data]\nkind = "carpathy"\n' + STAGE, "did you mean karpathy?"),
    "a wrong type": (MODEL + DATA + "[training]\nepochs = true\n", "training.epochs must be"),
    "deep inside": (MODEL + DATA + "[training.self_critical.rewards]\nx = []\n", "training.self_critical.rewards.x"),
    "a wrong option": (MODEL + DATA + STAGE + "[fine_tuning]\nepoch = 1\n", "did you mean epochs?"),
    "a wrong option of the schedule": (
        MODEL + DATA + STAGE + "[fine_tuning]\nschedule = { kind = 'noam', dimm = 3 }\n",
        r"fine_tuning.schedule: noam has no option 'dimm'; did you mean dim\?",
    ),
    "values that contradict each other": (
        MODEL + DATA + STAGE + "[fine_tuning.self_critical]\nnum_samples = 1\n",
        "fine_tuning.self_critical: .* needs num_samples of at least 2",
    ),
    "too few values": (MODEL + DATA + "[training]\nbetas = [0.9]\n", "training.betas needs at least 2 values"),
    "a dropout that the model lacks": (
        MODEL + DATA + STAGE + "dropout = { word_dropout = 0.1 }\n",
        "transformer has no option 'word_dropout'",
    ),
    "a wrong option of the model": (MODEL + "dimm = 3\n" + DATA + STAGE, "did you mean dim?"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_damaged_file_is_named_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "recipe.toml"
    path.write_text(content)
    with pytest.raises(LegendaError, match=message) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)
