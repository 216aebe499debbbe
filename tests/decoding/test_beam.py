"""Beam search against counting out every caption there is, with a table of probabilities and with a real model."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import legenda
from legenda import UserError
from legenda.decoding import Decodable, beam_search, greedy

END = 0
ALL = 1 + 3 + 9 + 27 + 81
"""Captions of at most 4 words out of 4: 40 that end and 81 that do not."""
SEEDS = st.integers(0, 10_000)


def rank(caption, penalty):
    return caption.total / len(caption.words) ** penalty


def best_first(model, image, penalty=0.0):
    return sorted(model.captions(image), key=lambda caption: -rank(caption, penalty))


def padded(words, length, filler=END):
    return [*words, *[filler] * (length - len(words))]


def test_the_fake_is_what_a_search_asks_for(table_model):
    model = table_model(4, 4)
    assert isinstance(model, Decodable)
    assert not isinstance("a caption", Decodable)  # it has `encode` and no decoder
    captions = list(model.captions(0))
    assert len(captions) == ALL
    assert sum(math.exp(caption.total) for caption in captions) == pytest.approx(1)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_beam_as_wide_as_the_space_finds_the_true_ranking(table_model, penalty, seed):
    model = table_model(4, 4, images=2, seed=seed)
    found = beam_search(model, model.regions, beam_size=ALL, length_penalty=penalty, need_attention=True)
    assert found.tokens.shape == (2, ALL, 4)
    for image in range(2):
        truth = best_first(model, image, penalty)
        assert found.tokens[image].tolist() == [padded(caption.words, 4) for caption in truth]
        assert found.scores[image].tolist() == pytest.approx([rank(caption, penalty) for caption in truth])
        for row, caption in enumerate(truth):
            assert found.log_probs[image, row].tolist() == pytest.approx(padded(caption.log_probs, 4, 0.0))
            expected = padded(model.looks(caption.words, image), 4, [0.0, 0.0])
            assert found.attention[image, row, :, 0].tolist() == expected


def test_the_ranking_depends_on_the_penalty(table_model):
    model = table_model(4, 4)
    rankings = {tuple(caption.words for caption in best_first(model, 0, penalty)) for penalty in (0.0, 0.5, 1.0)}
    assert len(rankings) == 3  # else the test above would show nothing of it


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_banned_words_are_never_said_and_the_rest_keep_their_probabilities(table_model, penalty):
    model = table_model(4, 4).with_rule(banned_ids=(2,), length_penalty=penalty)
    truth = best_first(model, 0, penalty)
    assert len(truth) == 1 + 2 + 4 + 8 + 16
    found = beam_search(model, model.regions, beam_size=ALL)
    assert found.tokens[0, : len(truth)].tolist() == [padded(caption.words, 4) for caption in truth]
    assert found.scores[0, : len(truth)].tolist() == pytest.approx([rank(caption, penalty) for caption in truth])
    assert (found.scores[0, len(truth) :] == float("-inf")).all()  # rows that only fill up the beam
    assert (found.tokens[0, len(truth) :] == END).all()
    assert (found.log_probs[0, len(truth) :] == 0).all()
    assert found.scores.shape[1] > len(truth)


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.integers(1, 8), st.sampled_from([0.0, 0.5, 1.0]))
def test_what_is_found_is_told_truly(table_model, seed, beam_size, penalty):
    model = table_model(5, 4, images=2, seed=seed)
    found = beam_search(model, model.regions, beam_size=beam_size, length_penalty=penalty, need_attention=True)
    assert (found.scores.diff(dim=1) <= 0).all()
    for image in range(2):
        every = {tuple(padded(caption.words, found.tokens.shape[-1])): caption for caption in model.captions(image)}
        rows = [tuple(row) for row in found.tokens[image].tolist()]
        assert len(set(rows)) == len(rows) == beam_size
        for number, row in enumerate(rows):
            caption, length = every[row], found.tokens.shape[-1]
            assert found.scores[image, number].item() == pytest.approx(rank(caption, penalty))
            assert found.log_probs[image, number].tolist() == pytest.approx(padded(caption.log_probs, length, 0.0))
            expected = padded(model.looks(caption.words, image), length, [0.0, 0.0])
            assert found.attention[image, number, :, 0].tolist() == expected


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.integers(1, 6), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([1.5, 6.0]))
def test_stopping_early_loses_nothing(table_model, seed, beam_size, penalty, spread):
    model = table_model(5, 5, images=3, seed=seed, spread=spread)
    whole = beam_search(model, model.regions, beam_size=beam_size, length_penalty=penalty)
    spent = model.decoder.steps
    for results in range(1, beam_size + 1):
        model.decoder.steps = 0
        found = beam_search(model, model.regions, beam_size=beam_size, length_penalty=penalty, results=results)
        assert model.decoder.steps <= spent
        length = found.tokens.shape[-1]
        assert found.tokens.shape == (3, results, length)
        assert torch.equal(found.tokens, whole.tokens[:, :results, :length])
        assert (whole.tokens[:, :results, length:] == END).all()
        assert torch.equal(found.scores, whole.scores[:, :results])


def test_the_search_stops_when_the_best_is_certain(table_model):
    model = table_model(4, 4)
    model.decoder.logits[:] = 0.0
    model.decoder.logits[..., END] = 5.0  # the end is likely at once
    assert beam_search(model, model.regions, beam_size=3, results=1).tokens.tolist() == [[[END]]]
    assert model.decoder.steps == 1
    assert beam_search(model, model.regions, beam_size=3).tokens.shape == (1, 3, 2)
    # Ending at once is the likeliest (-0.64 against -0.74 for word 1), but -0.74 may still be divided by more.
    model.decoder.logits[:, 0] = torch.tensor([0.5, 0.4, -9.0, -9.0])
    assert beam_search(model, model.regions, beam_size=4, results=1).tokens.tolist() == [[[END]]]
    found = beam_search(model, model.regions, beam_size=4, results=1, length_penalty=1.0)
    assert found.tokens[0, 0, :2].tolist() == [1, END]


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_one_beam_is_greedy(table_model, seed):
    model = table_model(5, 4, images=3, seed=seed)
    first = beam_search(model, model.regions, beam_size=1, need_attention=True)
    second = greedy(model, model.regions, need_attention=True)
    for name in ("tokens", "log_probs", "scores", "attention"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("results", [1, 3])
def test_images_do_not_meet(table_model, results):
    model = table_model(5, 4, images=4, seed=3)
    found = beam_search(model, model.regions, beam_size=3, results=results, need_attention=True)
    for image in range(4):
        alone = beam_search(model, model.regions[image : image + 1], beam_size=3, results=results, need_attention=True)
        length = alone.tokens.shape[-1]
        assert torch.equal(found.tokens[image, :, :length], alone.tokens[0])
        assert (found.tokens[image, :, length:] == END).all()
        assert torch.equal(found.scores[image], alone.scores[0])
        assert torch.equal(found.attention[image, :, :length], alone.attention[0])


def test_a_wider_beam_than_there_are_words(table_model):
    model = table_model(2, 3, seed=1)
    truth = best_first(model, 0)  # one word ends, one goes on: 3 captions that end and 1 that does not
    found = beam_search(model, model.regions, beam_size=4)
    assert found.tokens[0].tolist() == [padded(caption.words, 3) for caption in truth]
    assert found.scores[0].tolist() == pytest.approx([caption.total for caption in truth])


def test_ids_of_begin_and_end_follow_the_rule(table_model):
    model = table_model(4, 4).with_rule(end_id=3)
    found = beam_search(model, model.regions, beam_size=30)
    for row, log_probs in zip(found.tokens[0].tolist(), found.log_probs[0].tolist(), strict=True):
        if 3 in row:
            end = row.index(3)
            assert row[end:] == [3] * (4 - end)
            assert log_probs[end + 1 :] == [0.0] * (3 - end)
    assert any(3 in row for row in found.tokens[0].tolist())
    assert any(END in row for row in found.tokens[0].tolist())  # now a word like any other


def test_rule_of_the_model_and_of_the_call(table_model):
    model = table_model(4, 4).with_rule(max_length=2, length_penalty=1.0)
    short = beam_search(model, model.regions, beam_size=1 + 3 * 4)
    assert short.tokens.shape[-1] == 2
    assert short.scores[0].tolist() == pytest.approx([rank(caption, 1.0) for caption in best_first(model, 0, 1.0)])
    longer = beam_search(model, model.regions, beam_size=20, max_length=3, length_penalty=0.0)
    assert longer.tokens.shape[-1] == 3
    torch.testing.assert_close(longer.scores, longer.log_probs.sum(dim=-1))
    assert model.decoding.max_length == 2
    assert longer.attention is None


def test_a_memory_is_taken_as_it_is(table_model):
    model = table_model(4, 4, images=2)
    memory = model.encode(model.regions)
    assert torch.equal(beam_search(model, memory).tokens, beam_search(model, model.regions).tokens)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1, not 0"),
        ({"results": 4}, "results must lie between 1 and beam_size=3, not 4"),
        ({"results": 0}, "results must lie between 1 and beam_size=3, not 0"),
        ({"max_length": 0}, "max_length must be at least 1, not 0"),
        ({"length_penalty": -0.5}, "length_penalty must be 0 or more, not -0.5"),
    ],
)
def test_what_cannot_be_searched(table_model, options, told):
    model = table_model(4, 4)
    with pytest.raises(UserError, match=told):
        beam_search(model, model.regions, **options)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_real_model_against_every_caption(draw_regions, penalty):
    words, longest = 4, 3
    torch.manual_seed(0)
    model = legenda.create_model(
        "ngsan", vocab_size=words, feature_dim=6, dim=16, num_heads=2, num_layers=2, ff_dim=24
    ).eval()
    torch.nn.init.normal_(model.decoder.output.bias, std=0.5)
    regions = draw_regions((5, 2), dim=6)
    said = torch.cartesian_prod(*[torch.arange(words)] * longest)
    heard = torch.cat([torch.full((len(said), 1), END), said[:, :-1]], dim=1).expand(2, -1, -1)
    with torch.no_grad():
        log_probs = model(regions, heard).log_softmax(dim=-1).gather(-1, said.expand(2, -1, -1).unsqueeze(-1))
    found = beam_search(model, regions, beam_size=100, max_length=longest, length_penalty=penalty, need_attention=True)
    for image in range(2):
        truth = {}
        for row, numbers in zip(said.tolist(), log_probs[image].squeeze(-1).tolist(), strict=True):
            length = row.index(END) + 1 if END in row else longest
            truth[tuple(padded(row[:length], longest))] = sum(numbers[:length]) / length**penalty
        ordered = sorted(truth, key=lambda row: -truth[row])
        real = found.scores[image].isfinite()
        assert [tuple(row) for row in found.tokens[image][real].tolist()] == ordered
        assert found.scores[image][real].tolist() == pytest.approx([truth[row] for row in ordered], abs=1e-5)
        shown = found.attention[image][real]
        assert shown.shape[1:] == (longest, 2, 5)
        ended = (found.tokens[image][real] == END).cumsum(dim=-1).roll(1, dims=-1)
        ended[:, 0] = 0
        torch.testing.assert_close(shown.sum(dim=-1), (ended == 0).float().unsqueeze(-1).expand(-1, -1, 2))
    # Attention is that of the words said: decoded again from the tokens, it comes out the same.
    best = found.tokens[:, :1]
    memory = model.encode(regions)
    state, token = model.decoder.start(memory, 1), torch.full((2, 1), END)
    for number in range(longest):
        _, state = model.decoder.step(token, state, memory)
        token = best[..., number]
        alive = (best[..., :number] != END).all(dim=-1)
        torch.testing.assert_close(
            found.attention[:, :1, number], state.attention * alive[..., None, None], atol=1e-5, rtol=0
        )
