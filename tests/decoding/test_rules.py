"""What the rules of the releases change in a search, against the definition counted out over all captions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from legenda.decoding import beam_search, greedy
from legenda.errors import UserError

END = 0


def ranked(model, image, rank):
    """All captions of an image by a rank, best first."""
    return sorted(model.captions(image), key=rank, reverse=True)


def told(found, image):
    """The captions of an image as tuples of words with the end, without fillers."""
    rows = []
    for words, score in zip(found.tokens[image].tolist(), found.scores[image].tolist(), strict=True):
        if math.isfinite(score):
            rows.append(tuple(words[: words.index(END) + 1] if END in words else words))
    return rows


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", ["power", "wu"])
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.3])
def test_putting_aside_finds_the_true_ranking_with_a_wide_beam(table_model, seed, rule, penalty):
    model = table_model(words=3, longest=4, images=2, seed=seed)
    model.with_rule(finished="aside", length_penalty=penalty, length_rule=rule)

    def rank(caption):
        n = len(caption.words)
        return caption.total / ((n if rule == "power" else (5 + n) / 6) ** penalty)

    every = sum(1 for _ in model.captions(0))
    found = beam_search(model, model.regions, beam_size=every)
    for image in range(2):
        best = ranked(model, image, rank)
        assert told(found, image) == [caption.words for caption in best]
        expected = torch.tensor([rank(caption) for caption in best], dtype=torch.float64)
        torch.testing.assert_close(found.scores[image].double(), expected, atol=1e-5, rtol=0)


def put_aside_by_loops(model, image, beam_size):
    """The search of AoANet's release, hypothesis by hypothesis."""
    table = model.decoder.logits[image].log_softmax(dim=-1).tolist()
    words = len(table[0])
    open_ones, done = [((), 0.0, 0)], []
    longest = model.decoding.max_length
    for step in range(longest):
        grown = [
            ((*said, word), total + table[history][word], history * words + word + 1)
            for said, total, history in open_ones
            for word in range(words)
        ]
        chosen = sorted(grown, key=lambda one: one[1], reverse=True)[:beam_size]
        done += [(said, total) for said, total, _ in chosen if said[-1] == END or step == longest - 1]
        open_ones = [one for one in chosen if one[0][-1] != END]
        if not open_ones:
            break
    return sorted(done, key=lambda one: one[1], reverse=True)[:beam_size]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
def test_putting_aside_as_the_release_does(table_model, seed, beam_size):
    model = table_model(words=4, longest=5, images=2, seed=seed).with_rule(finished="aside")
    found = beam_search(model, model.regions, beam_size=beam_size)
    for image in range(2):
        expected = put_aside_by_loops(model, image, beam_size)
        assert told(found, image) == [said for said, _ in expected]
        totals = torch.tensor([total for _, total in expected], dtype=torch.float64)
        torch.testing.assert_close(found.scores[image, : len(expected)].double(), totals, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.log_probs[image].sum(dim=-1), found.scores[image], atol=1e-5, rtol=0)


def test_the_two_ways_of_finishing_differ(table_model):
    found = {"compete": [], "aside": []}
    for seed in range(12):
        model = table_model(words=4, longest=5, seed=seed)
        for finished, rows in found.items():
            rows.append(told(beam_search(model.with_rule(finished=finished), model.regions, beam_size=3), 0))
    assert found["compete"] != found["aside"]


@pytest.mark.parametrize("search", [beam_search, greedy])
def test_no_word_follows_itself_where_the_rule_says_so(table_model, search):
    model = table_model(words=3, longest=6, images=3, seed=1)
    repeats = [
        any(a == b != END for a, b in itertools.pairwise(row))
        for image in range(3)
        for row in told(search(model, model.regions), image)
    ]
    assert any(repeats)
    rule = replace(model.decoding, no_repeat=True)
    for image in range(3):
        for row in told(search(model, model.regions, rule=rule), image):
            assert all(a != b for a, b in itertools.pairwise(row))


@pytest.mark.parametrize("search", [beam_search, greedy])
def test_no_caption_ends_after_a_bad_ending(table_model, search):
    model = table_model(words=3, longest=5, images=4, seed=3)
    rule = replace(model.decoding, bad_endings=(1,))
    before = [row for image in range(4) for row in told(search(model, model.regions), image)]
    assert any(row[-2:] == (1, END) for row in before)
    after = [row for image in range(4) for row in told(search(model, model.regions, rule=rule), image)]
    assert not any(row[-2:] == (1, END) for row in after)


def test_words_that_only_beam_search_bans(table_model):
    model = table_model(words=3, longest=4, images=8, seed=0)
    free = greedy(model, model.regions)
    model.with_rule(beam_banned_ids=(2,))
    assert torch.equal(greedy(model, model.regions).tokens, free.tokens)
    assert (free.tokens == 2).any()
    assert not (beam_search(model, model.regions).tokens == 2).any()


def test_a_trigram_said_before_loses_what_the_rule_takes(table_model):
    model = table_model(words=2, longest=9, seed=4, spread=0.1)
    heavy = replace(model.decoding, trigram_penalty=50.0, banned_ids=(END,))
    row = greedy(model, model.regions, rule=heavy).tokens[0, 0].tolist()
    assert row == [1] * 9  # the only word there is, however often it was said
    model = table_model(words=4, longest=7, seed=4, spread=0.1)
    heavy = replace(heavy, max_length=7)
    row = greedy(model, model.regions, rule=heavy).tokens[0, 0].tolist()
    triples = list(zip(row, row[1:], row[2:], strict=False))
    assert len(set(triples)) == len(triples)


def test_groups_of_one_are_a_plain_beam(table_model):
    model = table_model(words=4, longest=4, images=2, seed=2)
    plain, grouped = (beam_search(model, model.regions, beam_size=3, groups=groups, diversity=9.0) for groups in (1, 1))
    assert torch.equal(plain.tokens, grouped.tokens)
    alone = beam_search(model, model.regions, beam_size=3, groups=3, diversity=0.0)
    best = beam_search(model, model.regions, beam_size=1)
    for group in range(3):  # without a penalty each group finds the same
        assert torch.equal(alone.tokens[:, group], best.tokens[:, 0])


def test_groups_say_different_things(table_model):
    model = table_model(words=5, longest=4, images=3, seed=2)
    found = beam_search(model, model.regions, beam_size=3, groups=3, diversity=30.0)
    for image in range(3):
        first = {row[0] for row in found.tokens[image].tolist()}
        assert len(first) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam_size": 4, "groups": 3}, "groups=3 must share out beam_size=4"),
        ({"groups": 0}, "groups=0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
    ],
)
def test_options_that_no_search_can_follow(table_model, options, said):
    model = table_model(words=3, longest=3)
    with pytest.raises(UserError, match=said):
        beam_search(model, model.regions, **options)


def test_attention_of_captions_put_aside(table_model):
    model = table_model(words=3, longest=4, images=2, seed=5).with_rule(finished="aside")
    found = beam_search(model, model.regions, beam_size=3, need_attention=True)
    assert found.attention is not None
    for image in range(2):
        for row, words in enumerate(told(found, image)):
            assert found.attention[image, row, : len(words), 0].tolist() == model.looks(words, image)
            assert (found.attention[image, row, len(words) :] == 0).all()
