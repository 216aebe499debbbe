"""Plugins in the configuration of a run."""

import json
from pathlib import Path

import pytest

import legenda
from legenda import LegendaError
from legenda.papers import get_recipe
from legenda.plugin_records import check_plugins, describe_plugins
from legenda.recipes import continue_from

pytestmark = pytest.mark.usefixtures("forget_plugins")
PATH = Path("run/config.json")


@pytest.fixture
def plugin(tmp_path, forget_plugins):  # noqa: ARG001
    file = tmp_path / "mine.py"
    file.write_text(
        "import legenda\nlegenda.register_extractor('mine')(print)\nlegenda.register_norm('used')(print)\n"
        "legenda.register_norm('unused')(print)\nlegenda.register_reward('short')(print)\n"
    )
    legenda.load_plugin(file)
    return file


@pytest.mark.usefixtures("plugin")
def test_parts_that_the_configuration_names_are_recorded():
    stages = [{"self_critical": {"rewards": {"short": 1.0}}}]
    config = {"model": {"options": {"norm": "used"}}, "extractor": "mine#1:8:0.5", "stages": stages, "data": "unused"}
    (record,) = describe_plugins(config)["plugins"]
    assert record["name"] == "mine"
    assert record["parts"] == {"extractor": ["mine"], "norm": ["used"], "reward": ["short"]}
    assert describe_plugins({"model": {"options": {"norm": "none"}}}) == {}
    json.dumps(record)


@pytest.mark.usefixtures("plugin")
def test_only_the_parts_of_a_section_are_needed(forget_plugins):
    config = describe_plugins({"model": "used", "stages": ["short"]})
    check_plugins(config, PATH)
    forget_plugins()
    check_plugins(config, PATH, "task")
    with pytest.raises(LegendaError, match="needs norm 'used' of the plugin mine, which is not loaded"):
        check_plugins(config, PATH, "model")
    with pytest.raises(LegendaError, match="needs reward 'short' of the plugin mine"):
        check_plugins(config, PATH, "stages")


def test_a_feature_store_is_recorded_by_the_suffix_of_the_data(tmp_path, forget_plugins):
    file = tmp_path / "stored.py"
    file.write_text("import legenda\nlegenda.register_feature_store('.mine')(print)\n")
    legenda.load_plugin(file)
    config = describe_plugins({"data": {"kind": "karpathy", "features": "../my@data/a.mine"}})
    assert [record["parts"] for record in config["plugins"]] == [{"feature store": [".mine"]}]
    forget_plugins()
    with pytest.raises(LegendaError, match=r"needs feature store '[.]mine' of the plugin stored"):
        check_plugins(config, PATH, "data")


def test_the_run_that_a_training_continues_names_its_missing_plugin(tmp_path, forget_plugins):
    file = tmp_path / "modeled.py"
    file.write_text("import legenda\nlegenda.register_norm('mine')(print)\n")
    legenda.load_plugin(file)
    model = {"name": "unknown", "options": {"norm": "mine"}}
    (tmp_path / "config.json").write_text(json.dumps({"model": model, **describe_plugins({"model": model})}))
    forget_plugins()
    with pytest.raises(LegendaError, match="needs norm 'mine' of the plugin modeled, which is not loaded"):
        continue_from(get_recipe("scenes.ngsan"), tmp_path)


@pytest.mark.parametrize("plugins", [3, ["mine"], [{"name": "mine"}], [{"name": "a", "digest": "b", "parts": [1]}]])
def test_damaged_records_are_named(plugins):
    with pytest.raises(LegendaError, match=r'run/config[.]json has no usable "plugins" part'):
        check_plugins({"plugins": plugins}, PATH)
