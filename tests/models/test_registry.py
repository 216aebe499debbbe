"""Models by name: what each name fixes, and the errors of wrong names and options."""

import json

import pytest
import torch

import legenda
from legenda.errors import LegendaError
from legenda.models import describe_model
from legenda.models.registry import summarize

SMALL = {"vocab_size": 11, "feature_dim": 6, "dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 24}


@pytest.mark.parametrize(
    ("name", "norm", "geometry"),
    [("transformer", "none", "none"), ("nsan", "in", "none"), ("gsan", "none", "query"), ("ngsan", "in", "query")],
)
def test_what_the_names_of_the_ngsan_paper_fix(name, norm, geometry):
    model = legenda.create_model(name, **SMALL)
    assert (model.name, model.config.norm, model.config.norm_on, model.config.geometry) == (name, norm, "q", geometry)
    assert model.needs_boxes == (geometry != "none")
    assert model.vocabulary is None
    assert "CVPR 2020" in describe_model(name).paper


def test_the_paper_sets_the_rest():
    with torch.device("meta"):
        config = legenda.create_model("ngsan", vocab_size=9488).config
    assert (config.feature_dim, config.dim, config.num_heads, config.num_layers) == (2048, 512, 8, 4)
    assert (config.ff_dim, config.dropout, config.geometry_dim) == (2048, 0.1, 64)


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("ngsan", {"dropout": 0.0}, []),
        ("mdsan", {}, []),
        ("transformer", {"attention": "memory"}, ["attention=memory"]),
        ("nsan", {"norm": "bn"}, ["norm=bn"]),
        ("ngsan", {"norm": "none", "geometry": "none"}, ["norm=none", "geometry=none"]),
        ("transformer", {"branches": 2, "talking_heads": True}, ["branches=2", "talking_heads=True"]),
        ("aoanet", {"decoder": {"name": "transformer", "num_layers": 1}}, ["decoder=transformer"]),
        ("mdsan", {"variant": "paper", "distance": "none"}, ["variant=paper", "distance=none"]),
    ],
)
def test_the_line_about_a_model_hides_no_option_that_makes_it_another(name, options, shown):
    model = legenda.create_model(name, **SMALL, **options)
    line, summary = summarize(name, model.config), describe_model(name).summary
    assert line.startswith(summary)
    assert all(option in line for option in shown)
    assert (line == summary) == (not shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layer": 2}, r"'num_layer'; did you mean num_layers\?$"),
        ({"dropout": 1.5}, "dropout"),
        ({"norm": "instance"}, "'instance'; choose from bn, in, in_affine, ln, none"),
        ({"geometry": "querry"}, "choose from none, absolute, sine, relative, content, query, key"),
        ({"num_heads": 3}, "dim=16 .* num_heads=3"),
        ({"dim": 12, "geometry": "absolute"}, "not 12"),
    ],
)
def test_an_option_that_is_wrong(options, message):
    with pytest.raises(LegendaError, match=message) as caught:
        legenda.create_model("ngsan", **{**SMALL, **options})
    assert "\n" not in str(caught.value)


def test_the_decoder_of_another_model(tmp_path):
    plain = legenda.create_model("mdsan", **SMALL, decoder="transformer")
    model = legenda.create_model("mdsan", **SMALL, decoder={"name": "transformer", "num_layers": 1, "ff_dim": 8})
    assert (len(plain.decoder.layers), len(model.decoder.layers)) == (4, 1)
    assert plain.config.decoder == {"name": "transformer"}
    model.save(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())["model"]["decoder"]
    assert stored == {"name": "transformer", "num_layers": 1, "ff_dim": 8}
    loaded = legenda.load(tmp_path)
    assert loaded.config == model.config
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("transformr", "there is no model 'transformr'; did you mean transformer?"),
        ({"name": "transformer", "num_layer": 1}, "ngsan.decoder has no option 'num_layer'; did you mean num_layers?"),
        ({"num_layers": 1}, "ngsan needs the name of its decoder; write decoder="),
        ({"name": "transformer", "dim": 8}, "a decoder with dim=8 cannot attend to ngsan with dim=16"),
        ({"name": "mcan"}, "decoder='mcan' is no captioner"),
    ],
)
def test_a_decoder_that_is_wrong(decoder, message):
    with pytest.raises(LegendaError) as caught:
        legenda.create_model("ngsan", **SMALL, decoder=decoder)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aoanet", {"aoa_dropout": 0.0, "attention_dropout": 0.0, "context_dropout": False}),
        ("xlan", {"num_heads": 1, "alpha": 1.0, "region_act": "none", "word_act": "none"}),
        ("mdsan", {"distance_init": "one"}),
    ],
)
def test_the_variant_of_the_paper_sets_its_defaults(name, expected, tmp_path):
    sizes = {"vocab_size": 11, "feature_dim": 6, "dim": 16}
    model = legenda.create_model(name, **sizes, num_layers=1, variant="paper")
    assert {field: getattr(model.config, field) for field in expected} == expected
    released = type(model.config)(**sizes)
    changed = released.replace(variant="paper")
    assert {field: getattr(changed, field) for field in expected} == expected
    explicit = {field: getattr(released, field) for field in expected}
    config = legenda.create_model(name, **sizes, num_layers=1, variant="paper", **explicit).config
    assert {field: getattr(config, field) for field in expected} == explicit
    model.save(tmp_path)
    assert legenda.load(tmp_path).config == model.config
