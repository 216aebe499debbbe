"""Recipes: what is printed is read back, and changes by key=value."""

from itertools import permutations

import pytest

from legenda.attention.config import create_multi_head, register_attention
from legenda.cli.main import main
from legenda.config import Config
from legenda.errors import LegendaError
from legenda.models import describe_model
from legenda.models.registry import configure_sizeless
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


@pytest.mark.parametrize(
    "change",
    [
        {"summary": 'a "quoted" \\ \x7f \x00 \u2028 line\n'},
        {"model": {"decoder": {"name": "xlan", "mid_dim": None}}},
        {"training": {"self_critical": {"rewards": {"CIDEr-D": 1.0, "of \x7f": 1e-9}}}},
    ],
)
def test_every_value_is_read_back_as_it_is_printed(tmp_path, change):
    recipe = get_recipe("scenes.ngsan").override(change)
    path = tmp_path / "mine.toml"
    path.write_text(recipe_to_toml(recipe), encoding="utf-8")
    again = read_recipe(path)
    assert (again.summary, again.stages) == (recipe.summary, recipe.stages)
    assert bool(again.model_overrides.get("decoder")) == bool(recipe.model_overrides.get("decoder"))


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


def test_a_value_of_several_lines_is_one_value():
    assert parse_changes(["training.epochs=3\nsummary=2"]) == {"training": {"epochs": "3\nsummary=2"}}
    assert parse_changes(["model.branch_layers=[1,\n2]"]) == {"model": {"branch_layers": [1, 2]}}


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


@pytest.mark.parametrize(
    "changes",
    [
        ("model=ngsan", "model.num_layers=1", "model.ff_dim=24"),
        ("model.decoder=updown", "model.decoder.dropout=0.25", "model.num_layers=1"),
        ("training.schedule=noam", "training.schedule.warmup_steps=9", "training.epochs=2"),
        ('training.schedule={kind="cosine", total_steps=99}', "training.schedule.warmup_steps=9"),
        ("data=karpathy", "data.annotations=a.json", "data.features=a.npz"),
        ("data.kind=karpathy", "data.annotations=a.json", "data.features=a.npz"),
    ],
)
def test_changes_mean_the_same_in_any_order(changes):
    recipes = [get_recipe("scenes.gsan").override(parse_changes(order)) for order in permutations(changes)]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert recipes[0] != get_recipe("scenes.gsan")


def test_another_model_keeps_the_sizes_that_it_has_too(caplog):
    recipe = get_recipe("scenes.transformer")
    for change in ("model.name=ngsan", "model=ngsan"):
        changed = recipe.override(parse_changes([change, "model.num_layers=1"]))
        config = configure_sizeless(changed.model, changed.model_overrides)
        assert (changed.model, config.norm, config.geometry) == ("ngsan", "in", "query")
        assert (config.dim, config.num_layers) == (recipe.model_overrides["dim"], 1)
    assert not caplog.messages
    changed = recipe.override(parse_changes(["model=updown", "model.dropout=0.25"]))
    assert changed.model_overrides["dim"] == recipe.model_overrides["dim"]
    assert changed.model_overrides["dropout"] == 0.25
    (message,) = caplog.messages
    dropped = recipe.model_overrides.keys() - describe_model("updown").config.model_fields
    assert dropped
    assert all(f"model.{name}=" in message for name in dropped)
    assert "model.dim=" not in message


def test_what_the_name_of_a_model_fixes_takes_the_place_of_the_recipes(caplog):
    recipe = get_recipe("scenes.ngsan.table2.bn")
    changed = recipe.override({"model": "ngsan"})
    assert configure_sizeless("ngsan", changed.model_overrides).norm == "in"
    assert 'model.norm="bn"' in caplog.messages[0]


def test_another_decoder_keeps_the_sizes_that_it_has_too(caplog):
    recipe = get_recipe("scenes.xlan").override(
        parse_changes(["model.decoder=transformer", "model.decoder.num_layers=3"])
    )
    again = recipe.override(parse_changes(["model.decoder=transformer"]))
    assert again.model_overrides["decoder"] == {"name": "transformer", "num_layers": 3}
    meshed = recipe.override({"model": {"decoder": {"name": "meshed"}}})
    assert meshed.model_overrides["decoder"] == {"name": "meshed", "num_layers": 3}
    assert not caplog.messages
    updown = recipe.override({"model": {"decoder": "updown"}})
    assert updown.model_overrides["decoder"] == {"name": "updown"}
    assert "model.decoder.num_layers=3" in caplog.messages[0]


@pytest.mark.usefixtures("forget_plugins")
def test_options_of_a_registered_attention_are_changed_one_by_one(caplog):
    class Own(Config):
        power: int = 1
        scale: float = 1.0

    register_attention("mine", options=Own)(create_multi_head)
    changes = ["model.attention_options.power=3", "model.attention=mine"]
    recipe = get_recipe("scenes.transformer").override(parse_changes(changes))
    recipe = recipe.override(parse_changes(["model.attention_options.scale=0.5"]))
    assert recipe.model_overrides["attention_options"] == {"power": 3, "scale": 0.5}
    assert not caplog.messages
    assert "attention_options" not in recipe.override({"model": {"attention": "x_linear"}}).model_overrides
    assert "power" in caplog.messages[0]


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        (["training.schedule=constant"], ["training.schedule ", "learning_rate=0.003", "warmup_steps=100"]),
        (["training.schedule=constant", "training.schedule.learning_rate=0.1"], ["training.schedule ", "decay_after="]),
        (["data=karpathy", "data.annotations=a.json", "data.features=a.npz"], ["data ", "train="]),
    ],
)
def test_what_another_kind_drops_is_said(caplog, changes, dropped):
    get_recipe("scenes.transformer").override({"data": {"train": 30}}).override(parse_changes(changes))
    (message,) = caplog.messages
    assert all(part in message for part in dropped)
    assert ("learning_rate" in message) == ("learning_rate=0.003" in dropped)


def test_the_same_kind_with_other_settings_says_nothing(caplog):
    changes = ["training.schedule=step_decay", "training.schedule.learning_rate=0.1", "data.kind=scenes", "data.seed=3"]
    recipe = get_recipe("scenes.transformer").override(parse_changes(changes))
    assert recipe.stages[0].schedule.warmup_steps == 100
    assert not caplog.messages


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
