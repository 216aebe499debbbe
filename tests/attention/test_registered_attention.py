"""Attentions of a user's own: what they declare is honored or refused, by name and before any training."""

from typing import Literal

import pytest
import torch
from torch import nn

import legenda
from legenda import Regions
from legenda.attention import AttentionConfig, AttentionOutput, MultiHeadAttention
from legenda.attention.config import ATTENTIONS, DECLARED, AttentionKind, create_multi_head
from legenda.config import Config
from legenda.errors import ConfigError

DIM, HEADS = 16, 2
SIZES = {"vocab_size": 30, "feature_dim": 8, "dim": DIM, "num_layers": 2, "num_heads": HEADS, "ff_dim": 16}
SET = {
    "norm": "in",
    "geometry": "query",
    "distance": "manhattan",
    "window": "swin",
    "attention_heads": 4,
    "head_dim": 4,
    "query_head_dim": 12,
    "talking_heads": True,
    "drop_head": 0.5,
    "memory_slots": 3,
}
"""A value of each declared option that differs from its default."""
MODELS = {
    "nsan": ({}, "norm"),
    "gsan": ({}, "geometry"),
    "ngsan": ({}, "norm"),
    "mdsan": ({}, "distance"),
    "ort": ({}, "geometry"),
    "transformer": ({"window": "halo"}, "window"),
    "aoanet": ({"geometry": "query"}, "geometry"),
}

pytestmark = pytest.mark.usefixtures("forget_plugins")


class Plain(nn.Module):
    """Attention that knows none of the options."""

    def __init__(self, dim, num_heads, *, dropout, inner_dim, output, bias):
        super().__init__()
        self.inner = MultiHeadAttention(dim, num_heads, dropout=dropout, inner_dim=inner_dim, output=output, bias=bias)

    def forward(self, query, key, value, mask=None, geometry=None, **how):  # noqa: ARG002
        return self.inner(query, key, value, mask, **how)


def create_plain(_, dim, num_heads, **how):
    return Plain(dim, num_heads, **how)


def test_every_declared_option_has_a_value_here():
    assert SET.keys() == {*DECLARED}
    assert all(value != AttentionConfig.model_fields[name].default for name, value in SET.items())


@pytest.mark.parametrize(("name", "case"), MODELS.items(), ids=MODELS)
def test_a_model_whose_mechanism_an_attention_lacks_is_refused(name, case):
    options, missing = case
    legenda.register_attention("plain")(create_plain)
    with pytest.raises(ConfigError, match=f"'plain'.*{missing}="):
        legenda.create_model(name, **SIZES, **options, attention="plain")


@pytest.mark.parametrize("kind", ["plain", "x_linear", "memory", "multi_head"])
@pytest.mark.parametrize("name", SET)
def test_an_option_that_is_not_declared_is_refused(kind, name):
    """The attentions of the library declare theirs as registered ones do."""
    legenda.register_attention("plain")(create_plain)
    options = {"attention": kind, name: SET[name]}
    if name in ATTENTIONS.get(kind).honors:
        legenda.create_model("transformer", **SIZES, **options)
    else:
        with pytest.raises(ConfigError, match=f"'{kind}'.*{name}="):
            legenda.create_model("transformer", **SIZES, **options)


@pytest.mark.parametrize("name", sorted(SET.keys() - {"memory_slots"}))
def test_a_declaration_is_kept(name):
    """An attention that does what it declares is built, with the same weights as without the trial."""
    legenda.register_attention("mine", honors=(name,))(create_multi_head)
    models = []
    for attention in ("mine", "multi_head"):
        torch.manual_seed(0)
        models.append(legenda.create_model("transformer", **SIZES, attention=attention, **{name: SET[name]}))
    states = [model.state_dict() for model in models]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", SET)
def test_a_declaration_that_is_not_kept_is_refused(name):
    legenda.register_attention("liar", honors=DECLARED)(create_plain)
    with pytest.raises(ConfigError, match=f"'liar'.*{name}"):
        legenda.create_model("transformer", **SIZES, attention="liar", **{name: SET[name]})


def test_one_of_two_declarations_that_is_not_kept_is_refused():
    def without_norm(options, dim, num_heads, **how):
        return create_multi_head(options.model_copy(update={"norm": "none"}), dim, num_heads, **how)

    legenda.register_attention("half", honors=("norm", "geometry"))(without_norm)
    legenda.create_model("gsan", **SIZES, attention="half")
    with pytest.raises(ConfigError, match=r"'half'.*norm"):
        legenda.create_model("ngsan", **SIZES, attention="half")


def test_heads_of_the_sizes_that_they_have_anyway_are_no_matter():
    legenda.register_attention("mine", honors=("attention_heads", "head_dim", "query_head_dim"))(create_multi_head)
    options = {"attention_heads": HEADS, "head_dim": DIM // HEADS, "query_head_dim": DIM // HEADS}
    legenda.create_model("transformer", **SIZES, attention="mine", **options)


@pytest.mark.parametrize("model", ["transformer", "mcan", "aoanet", "mdsan"])
@pytest.mark.parametrize("geometry", ["query", "content", "relative"])
def test_a_bias_that_is_honored_reads_the_boxes_and_is_trained(model, geometry):
    legenda.register_attention("mine", honors=("geometry", "distance"))(create_multi_head)
    options = {**SIZES, "attention": "mine", "geometry": geometry, "distance": "manhattan", "geometry_dim": 8}
    if model == "mcan":
        created = legenda.models.registry.build_model(model, {**options, "answers": 5, "max_text_length": 4})
    else:
        created = legenda.create_model(model, **options)
    regions = Regions(torch.randn(2, 4, 8), boxes=torch.rand(2, 4, 4).sort(-1).values)
    moved = Regions(regions.features, boxes=torch.rand(2, 4, 4).sort(-1).values)
    tokens = torch.randint(2, 30, (2, 4) if model == "mcan" else (2, 1, 4))
    inputs = (tokens,) if model == "mcan" else ()
    call = (lambda given: created(given, *inputs)) if inputs else (lambda given: created(given, tokens))
    output = call(regions)
    created.eval()
    assert not torch.equal(call(regions), call(moved))
    created.train()
    output.sum().backward()
    assert not [name for name, parameter in created.named_parameters() if parameter.grad is None]


class Unmasked(Plain):
    def forward(self, query, key, value, mask=None, geometry=None, **how):  # noqa: ARG002
        return self.inner(query, key, value, None, **how)


def test_an_attention_that_reads_padding_is_refused():
    legenda.register_attention("unmasked")(lambda _, dim, num_heads, **how: Unmasked(dim, num_heads, **how))
    with pytest.raises(ConfigError, match=r"'unmasked'.*mask"):
        legenda.create_model("transformer", **SIZES, attention="unmasked")


class Wide(Plain):
    def forward(self, *inputs, **how):
        output = super().forward(*inputs, **how)
        return AttentionOutput(torch.cat([output.values] * 2, dim=-1), None)


class Bare(Plain):
    def forward(self, *inputs, **how):
        return super().forward(*inputs, **how).values


BROKEN = {
    "a keyword that it lacks": (lambda *_, dropout: dropout, "inner_dim"),
    "another width": (lambda _, dim, num_heads, **how: Wide(dim, num_heads, **how), "shape"),
    "no AttentionOutput": (lambda _, dim, num_heads, **how: Bare(dim, num_heads, **how), "AttentionOutput"),
    "no module": (lambda *_, **__: 3, "cannot attend"),
    "its own error": (lambda *_, **__: 1 / 0, "ZeroDivisionError"),
}


@pytest.mark.parametrize(("build", "part"), BROKEN.values(), ids=BROKEN)
def test_an_attention_that_cannot_be_called_is_refused(build, part):
    legenda.register_attention("broken")(build)
    with pytest.raises(ConfigError, match=f"(?s)'broken'.*{part}"):
        legenda.create_model("transformer", **SIZES, attention="broken")


def test_only_options_of_the_config_can_be_declared():
    with pytest.raises(ConfigError, match=r"'nrom'.*norm"):
        legenda.register_attention("mine", honors=("nrom",))


class OwnOptions(Config):
    power: int = 1
    side: Literal["left", "right"] = "left"


def test_own_options_are_validated_and_reach_the_builder():
    seen = []

    def create(options, dim, num_heads, **how):
        seen.append(options.own_options)
        return create_plain(options, dim, num_heads, **how)

    legenda.register_attention("mine", options=OwnOptions)(create)
    model = legenda.create_model("transformer", **SIZES, attention="mine", attention_options={"power": 3})
    assert set(seen) == {OwnOptions(power=3)}
    assert model.describe()["model"]["attention_options"] == {"power": 3}
    for wrong, part in (({"powr": 3}, "power"), ({"power": "x"}, "power"), ({"side": "top"}, "side")):
        with pytest.raises(ConfigError, match=part):
            legenda.create_model("transformer", **SIZES, attention="mine", attention_options=wrong)
    with pytest.raises(ConfigError, match="attention_options"):
        legenda.create_model("transformer", **SIZES, attention_options={"power": 3})


def test_what_is_registered_has_the_form_of_the_librarys_own():
    legenda.register_attention("mine", honors="norm", options=OwnOptions)(create_plain)
    assert ATTENTIONS.get("mine") == AttentionKind(create_plain, frozenset({"norm"}), OwnOptions)
    assert {name for name in ATTENTIONS if isinstance(ATTENTIONS.get(name), AttentionKind)} == {*ATTENTIONS}
