"""AoANet's weights give what its released code gives: numbers computed by that code with random weights."""

import json
from pathlib import Path

import pytest
import torch

import legenda
from legenda import LegendaError, Regions
from legenda.decoding import Ensemble, beam_search, greedy
from legenda.importers.loading import StateDictMapper
from legenda.importers.releases import load_aoanet

DATA = Path(__file__).parent / "data"
HEADS, T = 4, 20
BAD_ENDINGS = (3, 6, 10, 14, 18, 22, 26, 30)
"""The ids of "a", "the", "on", "with", "of", "in", "to" and "is" in the fixture's vocabulary."""
NAMES = (
    "aoanet_full",
    "abl_base",
    "abl_dec_aoa",
    "abl_dec_lstm",
    "abl_dec_mh",
    "abl_dec_mh_aoa",
    "abl_dec_mh_lstm",
    "abl_refine_aoa",
    "abl_refine_no_aoa",
    "opt_fc_mean0_bn2_scale2",
)


def build(given, *, double=False):
    model = legenda.importers.load("aoanet", given.weights(double=double), num_heads=HEADS)
    number = torch.float64 if double else torch.float32
    regions = Regions(
        given["in/att_feats"].to(number), None, given["in/att_masks"] > 0, given["in/fc_feats"].to(number)
    )
    return model, regions


@pytest.fixture(scope="module")
def full(numbers):
    return numbers("aoanet_full")


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("double", "tolerance", "key"), [(True, 1e-8, "_f64"), (False, 1e-4, "")])
def test_log_probabilities_of_given_captions(numbers, name, double, tolerance, key):
    given = numbers(name)
    model, regions = build(given, double=double)
    found = model(regions, given["in/labels"][:, None, :-1]).log_softmax(dim=-1)[:, 0]
    real = given["in/label_masks"][:, 1:] > 0
    assert (found - given[f"out/tf_logprobs{key}"])[real].abs().max() < tolerance


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_what_the_encoder_hands_over(numbers, name):
    given = numbers(name)
    model, regions = build(given)
    memory = model.encode(regions)
    refined = given["mid/att_refined"]
    real = regions.mask_or_ones.unsqueeze(-1)
    torch.testing.assert_close(memory.states * real, refined * real, atol=1e-5, rtol=0)
    torch.testing.assert_close(memory.global_feature, given["mid/mean_feats"], atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_captions(numbers, to_length, name):
    given = numbers(name)
    model, regions = build(given)
    alone = greedy(model, regions, max_length=T)
    assert torch.equal(to_length(alone.tokens[:, 0], T), given["out/greedy_seq"])
    found = beam_search(model, regions, beam_size=3, max_length=T)
    assert torch.equal(to_length(found.tokens, T), given["out/beam_all_seq"])
    torch.testing.assert_close(found.scores.double(), given["out/beam_all_p"], atol=1e-4, rtol=0)
    torch.testing.assert_close(to_length(found.log_probs, T), given["out/beam_all_logps"], atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("key", "rule", "options"),
    [
        ("beam_wu09", {"length_normalization": "gnmt", "length_penalty": 0.9}, {}),
        ("beam_avg", {}, {"length_penalty": 1.0}),
        ("beam_nobadend", {"forbidden_last_tokens": BAD_ENDINGS}, {}),
        ("beam_norepeat", {"no_immediate_repeat": True}, {}),
        ("beam_t07", {}, {"temperature": 0.7}),
        ("beam5", {}, {"beam_size": 5}),
        ("dbs_6g3", {}, {"beam_size": 6, "num_beam_groups": 3, "diversity_penalty": 0.5}),
    ],
)
def test_searches_with_options(full, to_length, key, rule, options):
    model, regions = build(full)
    rule = model.generation_config.replace(**rule)
    found = beam_search(model, regions, generation_config=rule, max_length=T, **{"beam_size": 3, **options})
    assert torch.equal(to_length(found.tokens, T), full[f"out/{key}_all_seq"])
    torch.testing.assert_close(found.scores.double(), full[f"out/{key}_all_p"], atol=1e-4, rtol=0)
    torch.testing.assert_close(to_length(found.log_probs, T), full[f"out/{key}_all_logps"], atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("greedy_nobadend", {"forbidden_last_tokens": BAD_ENDINGS}),
        ("greedy_noreprep", {"no_immediate_repeat": True}),
        ("greedy_blocktri", {"trigram_penalty": 2 * 0.693}),
    ],
)
def test_greedy_with_options(full, to_length, key, rule):
    model, regions = build(full)
    found = greedy(model, regions, generation_config=model.generation_config.replace(**rule), max_length=T)
    tokens = to_length(found.tokens[:, 0], T)
    assert torch.equal(tokens, full[f"out/{key}_seq"])
    log_probs = to_length(found.log_probs[:, 0], T)
    generated = log_probs != 0
    torch.testing.assert_close(log_probs[generated], full[f"out/{key}_logp"][generated], atol=1e-4, rtol=0)


@torch.no_grad()
def test_an_ensemble_by_mean_probability(numbers, full, to_length):
    other = numbers("ensemble2")
    first, regions = build(full)
    second = legenda.importers.load("aoanet", other.weights("sd2/"), num_heads=HEADS)
    both = Ensemble([first, second], weights=[1.0, 2.0])
    found = beam_search(both, regions, beam_size=3, max_length=T)
    assert torch.equal(to_length(found.tokens, T), other["out/beam_all_seq"])
    torch.testing.assert_close(found.scores.double(), other["out/beam_all_p"], atol=1e-4, rtol=0)
    alone = greedy(both, regions, max_length=T)
    assert torch.equal(to_length(alone.tokens[:, 0], T), other["out/greedy_seq"])


def released_losses(given, model, regions):
    """The losses of the release: masked negative log-likelihood, KL to smoothed targets, and reward times sample."""
    labels, mask = given["in/labels"], given["in/label_masks"][:, 1:]
    log_probs = model(regions, labels[:, None, :-1]).log_softmax(dim=-1)[:, 0]
    targets = labels[:, 1:, None]
    nll = -(log_probs.gather(-1, targets).squeeze(-1) * mask).sum() / mask.sum()
    share = torch.full_like(log_probs, 0.2 / (log_probs.shape[-1] - 1)).scatter(-1, targets, 0.8)
    divergence = (share * (share.log() - log_probs)).sum(dim=-1)
    return nll, (divergence * mask).sum() / mask.sum()


@pytest.mark.parametrize(("key", "number"), [("xe", 0), ("ls02", 1)])
def test_losses_and_gradients(full, key, number):
    weights = StateDictMapper(full.weights(double=True), "weights")
    model = load_aoanet(weights, num_heads=HEADS)
    _, regions = build(full, double=True)
    loss = released_losses(full, model, regions)[number]
    torch.testing.assert_close(loss.float(), full[f"loss/{key}"], rtol=1e-4, atol=0)
    loss.backward()
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        source_values = weights.source_keys[name]
        squares[source_values] = squares.get(source_values, 0.0) + float(parameter.grad.square().sum())
    expected = json.loads((DATA / "aoanet_full_grad_norms.json").read_text())[key]
    assert squares.keys() == expected.keys()
    for name, norm in expected.items():  # the bias of keys has no gradient but that of rounding
        assert squares[name] ** 0.5 == pytest.approx(norm, rel=1e-4, abs=1e-6), name


def without(weights, name):
    return {key: value for key, value in weights.items() if key != name}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda w: without(w, "logit.bias"), "lacks logit.bias"),
        (lambda w: {k: v for k, v in w.items() if ".layers.0." not in k}, r"lacks the tensors .*refiner.layers.0."),
        (lambda w: {**w, "logit.more": torch.zeros(2)}, "holds logit.more, which aoanet does not have"),
        (lambda w: {**w, "logit.weight": w["logit.weight"][1:]}, r"logit.weight with shape \(50, 32\).* \(51, 32\)"),
        (lambda w: {**w, "ctx2att.weight": torch.tensor(1.0)}, r"ctx2att.weight with shape \(\), which does not fit"),
        (lambda w: {**w, "logit.weight": w["logit.weight"] * torch.nan}, "logit.weight with complex, NaN or infinite"),
    ],
)
def test_a_tensor_that_is_missing_left_over_or_misshapen_is_named(full, damage, message):
    with pytest.raises(LegendaError, match=message):
        legenda.importers.load("aoanet", damage(full.weights()), num_heads=HEADS)
