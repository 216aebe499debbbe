"""X-LAN's and X-Transformer's weights give what their released code gives: numbers it computed with random weights."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from legenda import LegendaError, Regions
from legenda.decoding import beam_search, greedy
from legenda.importers.weight_map import StateDictMapper
from legenda.importers.xlan import load_xlan
from legenda.importers.xtransformer import load_xtransformer
from legenda.models.xtransformer.decoder import positions

HEADS, ROWS, T, SMOOTHING = 4, 2, 17, 0.1
LOADERS = {"xlan": load_xlan, "xtransformer": load_xtransformer}
LOSSES = {
    "xlan": {"xe": 8.471811294555664, "smooth": 7.8800368309021, "rl": -0.16806668043136597},
    "xtransformer": {"xe": 13.071385383605957, "smooth": 12.509586334228516, "rl": -0.1063413918018341},
}
TABLE = "decoder.embed_positions.pe"
BLOCK = "attention.layers.0.encoder_attn"


@pytest.fixture(scope="module")
def state(numbers):
    """`state("xlan")`: the released state dict; the table of positions is made here to keep the files small."""

    def read(kind, *, double=False):
        found = numbers(kind).weights(double=double)
        if kind == "xtransformer":
            found[TABLE] = positions(0, 5000, 32, 10000.0, torch.device("cpu")).unsqueeze(0)
        return found

    return read


@pytest.fixture(params=LOADERS)
def kind(request):
    return request.param


@pytest.fixture(params=[torch.float32, torch.float64])
def number(request):
    return request.param


def load(kind, tensors, **options):
    return LOADERS[kind](StateDictMapper(tensors, "released.pth"), **options)


def regions_of(given, number=torch.float32):
    return Regions(given["in/att_feats"].to(number), None, given["in/att_mask"] > 0)


@pytest.fixture
def case(numbers, state, kind, number):
    """The fixture, the model and the regions, in either precision."""
    given = numbers(kind)
    model = load(kind, state(kind, double=number is torch.float64), num_heads=HEADS)
    assert next(model.parameters()).dtype == number
    return given, model, regions_of(given, number)


def assert_close(found, expected, tolerance=1e-4):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0, check_dtype=False)


def caption_log_probs(given, model, regions):
    """Log-probabilities of the targets `(rows, T)`, those of all words, and which targets count."""
    inputs, targets = given["in/seq"], given["in/target"]
    log_probs = model(regions, inputs.unflatten(0, (-1, ROWS))).log_softmax(dim=-1).flatten(0, 1)
    return log_probs.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1), log_probs, targets >= 0


def sample_log_probs(given, model, regions):
    """Log-probabilities of the sampled words, and which of them count: up to the end, and the end too."""
    tokens = given["out/sample_ids"]
    inputs_with_bos = F.pad(tokens, (1, 0))
    log_probs = model(regions, inputs_with_bos[:, :-1].unflatten(0, (-1, ROWS))).log_softmax(dim=-1).flatten(0, 1)
    alive = F.pad((tokens != 0).cumprod(dim=1), (1, 0), value=1)[:, :-1] > 0
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1), alive


@torch.no_grad()
def test_what_the_encoder_hands_over(case):
    given, model, regions = case
    memory = model.encode(regions)
    assert_close(memory.global_feature, given["out/enc_global"], 1e-5)
    assert_close(memory.states * regions.mask_or_ones.unsqueeze(-1), given["out/enc_regions"], 1e-5)


@torch.no_grad()
def test_log_probabilities_of_given_captions(case):
    given, model, regions = case
    _, log_probs, real = caption_log_probs(given, model, regions)
    assert_close(log_probs[real], given["out/tf_logprobs"][real])


@torch.no_grad()
def test_greedy_captions(case, to_length):
    given, model, regions = case
    found = greedy(model, regions)
    expected = given["out/greedy_ids"]
    assert torch.equal(to_length(found.tokens[:, 0], T), expected)
    alive = F.pad((expected != 0).cumprod(dim=1), (1, 0), value=1)[:, :-1] > 0
    assert_close(to_length(found.log_probs[:, 0], T)[alive], given["out/greedy_logprobs"][alive])


@torch.no_grad()
def test_beam_search(case, to_length):
    given, model, regions = case
    assert model.generation_config.max_length == T
    found = beam_search(model, regions, beam_size=3)
    assert torch.equal(to_length(found.tokens[:, 0], T), given["out/beam_ids"])
    assert_close(to_length(found.log_probs[:, 0], T), given["out/beam_logprobs"])
    assert_close(found.scores[:, 0], given["out/beam_score"])


@torch.no_grad()
def test_the_search_behind_the_papers_numbers(numbers, state, to_length):
    """Image by image and without the unknown word, the last of the vocabulary; the release keeps it as a comment."""
    given = numbers("xlan")
    model = load("xlan", state("xlan"))
    rule = replace(
        model.generation_config, finished_beams="release", beam_suppress_tokens=(model.config.vocab_size - 1,)
    )
    found = beam_search(model, regions_of(given), beam_size=3, generation_config=rule)
    assert torch.equal(to_length(found.tokens[:, 0], T), given["out/legacy_beam_ids"])
    assert_close(to_length(found.log_probs[:, 0], T), given["out/legacy_beam_logprobs"])
    assert_close(found.scores[:, 0], given["out/legacy_beam_score"])


@torch.no_grad()
def test_losses(case, kind):
    given, model, regions = case
    chosen, log_probs, real = caption_log_probs(given, model, regions)
    assert -chosen[real].mean().item() == pytest.approx(LOSSES[kind]["xe"], rel=1e-5)
    # KL(q || p) with 0.9 for the target and the rest shared out among the other words (specification, section 5).
    other = SMOOTHING / (log_probs.shape[-1] - 1)
    target = torch.full_like(log_probs, other).scatter(-1, given["in/target"].clamp(min=0).unsqueeze(-1), 1 - SMOOTHING)
    smooth = (target * (target.log() - log_probs)).sum(dim=-1)[real].mean().item()
    assert smooth == pytest.approx(LOSSES[kind]["smooth"], rel=1e-5)
    sampled, alive = sample_log_probs(given, model, regions)
    assert_close(sampled[alive], given["out/sample_logprobs"][alive])
    rewards = given["in/sample_rewards"].unsqueeze(-1)
    assert -(sampled * rewards)[alive].mean().item() == pytest.approx(LOSSES[kind]["rl"], rel=1e-4)


@pytest.mark.parametrize("loss", ["xe", "rl"])
def test_gradients(case, state, kind, loss):
    given, model, regions = case
    if loss == "xe":
        chosen, _, real = caption_log_probs(given, model, regions)
        (-chosen[real].mean()).backward()
    else:
        sampled, alive = sample_log_probs(given, model, regions)
        (-(sampled * given["in/sample_rewards"].unsqueeze(-1))[alive].mean()).backward()
    source_values = [value for name, value in state(kind).items() if name != TABLE]
    expected = given[f"out/{loss}_grad_norms"]
    target_values = dict(model.named_parameters())
    assert len(expected) == len(source_values) == len(target_values)
    for value, norm in zip(source_values, expected, strict=True):  # the same random numbers tell which parameter it is
        (name,) = (name for name, parameter in target_values.items() if same(parameter, value))
        assert target_values[name].grad.norm().item() == pytest.approx(norm.item(), rel=1e-4, abs=1e-6), name


def same(target_values, source_values):
    return target_values.shape == source_values.shape and torch.equal(target_values.float(), source_values.float())


def test_the_table_of_positions_is_the_released_one(numbers):
    released = numbers("xtransformer")["pe/first"]
    target_values = positions(0, released.shape[1], 32, 10000.0, torch.device("cpu"))
    torch.testing.assert_close(target_values, released[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(positions(7, 1, 32, 10000.0, torch.device("cpu")), target_values[7:8], atol=0, rtol=0)


def test_what_is_read_from_the_shapes(state, kind):
    found = load(kind, {f"module.{name}": value for name, value in state(kind).items()}).config
    assert (found.vocab_size, found.feature_dim, found.dim, found.num_heads, found.mid_dim) == (50, 64, 32, HEADS, 4)
    assert (found.num_layers, found.decoder_layers) == ((2, 1) if kind == "xlan" else (2, 2))
    assert found.region_norm == (kind == "xtransformer")


def test_options_say_what_shapes_cannot(state):
    assert load("xlan", state("xlan"), act="relu", alpha=1.0).config.act == "relu"


@torch.no_grad()
def test_x_lan_without_encoder_blocks(numbers, state):
    """The release's encoder without layers: W_G and its normalisation alone, over the mean region."""
    tensors = {
        name: value
        for name, value in state("xlan").items()
        if not name.startswith(("encoder_layers.layers.", "encoder_layers.bifeat", "encoder_layers.layer_norms"))
    }
    tensors["encoder_layers.proj.weight"] = tensors["encoder_layers.proj.weight"][:, :32].clone()
    model = load("xlan", tensors)
    given = numbers("xlan")
    memory = model.encode(regions_of(given))
    features, real = given["in/att_feats"], given["in/att_mask"].unsqueeze(-1)
    states = F.celu(F.linear(features, tensors["att_embed.0.weight"], tensors["att_embed.0.bias"]), 1.3)
    assert_close(memory.states * real, states * real, 1e-5)
    mean = (states * real).sum(dim=1) / real.sum(dim=1)
    fused = F.linear(mean, tensors["encoder_layers.proj.weight"], tensors["encoder_layers.proj.bias"])
    norm = (tensors[f"encoder_layers.layer_norm.{part}"] for part in ("weight", "bias"))
    assert_close(memory.global_feature, F.layer_norm(fused, (32,), *norm), 1e-5)


@torch.no_grad()
def test_two_blocks_in_x_lan_s_decoder(numbers, state):
    """The second block asks with what the first attended to; a second block that gives 0 leaves all as it was."""
    tensors = state("xlan")
    expected = load("xlan", dict(tensors))
    for name in [name for name in tensors if name.startswith(BLOCK)]:
        tensors[name.replace("layers.0", "layers.1")] = tensors[name].clone()
    for part in ("weight", "bias"):
        tensors[f"attention.layers.1.encoder_attn.in_proj_v1.2.{part}"].zero_()
    proj = tensors["attention.proj.weight"]
    tensors["attention.proj.weight"] = torch.cat([proj, torch.eye(32)], dim=1)
    model = load("xlan", tensors)
    assert model.config.decoder_layers == 2
    given = numbers("xlan")
    tokens = given["in/seq"].unflatten(0, (-1, ROWS))
    assert_close(model(regions_of(given), tokens), expected(regions_of(given), tokens), 1e-5)
    tensors["attention.layers.1.encoder_attn.in_proj_v1.2.bias"].fill_(0.5)
    moved = load("xlan", tensors)
    assert (moved(regions_of(given), tokens) - expected(regions_of(given), tokens)).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("place", [2, 3])
def test_a_norm_of_the_regions_stands_after_the_dropout_if_any(numbers, state, place):
    tensors = state("xlan")
    tensors[f"att_embed.{place}.weight"], tensors[f"att_embed.{place}.bias"] = torch.full((32,), 2.0), torch.ones(32)
    model = load("xlan", tensors)
    features = regions_of(numbers("xlan")).features
    x = F.celu(F.linear(features, tensors["att_embed.0.weight"], tensors["att_embed.0.bias"]), 1.3)
    found = model.encoder.norm(model.encoder.act(model.encoder.input(features)))
    assert_close(found, 2 * F.layer_norm(x, (32,)) + 1, 1e-5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("xlan", f"{BLOCK}.in_proj_v1.2.bias"),
        ("xlan", "att_lstm.bias_hh"),
        ("xlan", "att_embed.0.weight"),
        ("xlan", "encoder_layers.proj.bias"),
        ("xtransformer", "decoder.layers.1.cross_att.attn_net.attention_last2.weight"),
        ("xtransformer", "decoder.layers.0.ff_layer.fc2.bias"),
        ("xtransformer", TABLE),
    ],
)
def test_a_missing_tensor_is_named(state, kind, name):
    tensors = state(kind)
    del tensors[name]
    with pytest.raises(LegendaError, match=f"released.pth lacks {name}"):
        load(kind, tensors)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("xlan", "word_embed.2.weight"),  # WORD_EMBED_NORM
        ("xlan", "gv_feat_embed.0.weight"),
        ("xlan", f"{BLOCK}.attn_net.attention_basic.3.weight"),  # more than one middle layer
        ("xtransformer", "decoder.layers.1.ff_layer.fc1.weight"),  # the last layer has none
    ],
)
def test_a_tensor_too_many_is_named(state, kind, name):
    with pytest.raises(LegendaError, match=f"released.pth holds {name}, which {kind} does not have"):
        load(kind, state(kind) | {name: torch.zeros(32)})


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("xlan", "logit.weight", (49, 32)),
        ("xlan", "encoder_layers.bifeat_emb.1.0.weight", (32, 32)),
        ("xlan", f"{BLOCK}.in_proj_q.0.weight", (64, 32)),  # as the GLU activation would have it
        ("xlan", f"{BLOCK}.attn_net.attention_basic.0.weight", (4, 5)),
        ("xtransformer", "encoder.layers.0.encoder_attn.attn_net.attention_basic.0.weight", (3, 8)),
        ("xtransformer", "decoder.proj_norm.0.weight", (64, 64)),
    ],
)
def test_a_misshapen_tensor_is_named(state, kind, name, shape):
    with pytest.raises(LegendaError, match=f"released.pth holds {name}"):
        load(kind, state(kind) | {name: torch.zeros(shape)})


def test_a_gap_between_layers_is_named(state):
    tensors = {n: v for n, v in state("xtransformer").items() if not n.startswith("encoder.layers.0.")}
    with pytest.raises(LegendaError, match=r"lacks the tensors that begin with encoder.layers.0."):
        load("xtransformer", tensors)


def test_a_wrong_number_of_heads_is_refused(state, kind):
    with pytest.raises(LegendaError, match=r"for 4 heads, not 8; give 4"):
        load(kind, state(kind), num_heads=8)


def test_another_length_of_the_table_means_other_waves(state):
    tensors = state("xtransformer")
    tensors[TABLE] = positions(0, 60, 32, 120.0, torch.device("cpu")).unsqueeze(0)
    assert load("xtransformer", tensors).config.position_base == 120
    tensors[TABLE] = positions(0, 60, 32, 10000.0, torch.device("cpu")).unsqueeze(0)
    with pytest.raises(LegendaError, match=f"holds {TABLE} that are not the sinusoids of 60 positions"):
        load("xtransformer", tensors)


def test_an_option_that_needs_tensors_which_the_release_has_not_is_refused(state):
    tensors = {n: v for n, v in state("xlan").items() if not n.startswith(("att_embed.2", "att_embed.3"))}
    with pytest.raises(LegendaError, match=r"has no encoder\.norm\.weight, which xlan has with these options"):
        load("xlan", tensors, region_norm=True)
