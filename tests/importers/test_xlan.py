"""X-LAN's and X-Transformer's weights give what their released code gives: numbers it computed with random weights."""

import pytest
import torch
from torch.nn import functional as F

from legenda import Regions
from legenda.decoding import beam_search, greedy
from legenda.importers.loading import StateDictMapper
from legenda.importers.releases import load_xlan, load_xtransformer
from legenda.models.xtransformer import positions

HEADS, ROWS, T = 4, 2, 17
LOADERS = {"xlan": load_xlan, "xtransformer": load_xtransformer}
TABLE = "decoder.embed_positions.pe"


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
    rule = model.generation_config.replace(
        finished_beams="release", beam_suppress_tokens=(model.config.vocab_size - 1,)
    )
    found = beam_search(model, regions_of(given), beam_size=3, generation_config=rule)
    assert torch.equal(to_length(found.tokens[:, 0], T), given["out/legacy_beam_ids"])
    assert_close(to_length(found.log_probs[:, 0], T), given["out/legacy_beam_logprobs"])
    assert_close(found.scores[:, 0], given["out/legacy_beam_score"])


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
