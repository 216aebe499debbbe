"""Options of generation against their definition, evaluated by enumerating all sequences."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from legenda.decoding import GenerationConfig, beam_search, greedy, sample
from legenda.errors import ConfigError

EOS = 0


def ranked(model, image, score):
    """All sequences of an image, best first."""
    return sorted(model.sequences(image), key=score, reverse=True)


def sequences_of(output, image):
    """The sequences of an image up to eos, without rows that hold no hypothesis."""
    rows = []
    for tokens, score in zip(output.tokens[image].tolist(), output.scores[image].tolist(), strict=True):
        if math.isfinite(score):
            rows.append(tuple(tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens))
    return rows


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("normalization", ["power", "gnmt"])
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.3])
def test_released_beams_find_the_true_ranking_with_a_wide_beam(table_model, seed, normalization, penalty):
    model = table_model(vocab_size=3, max_length=4, images=2, seed=seed)
    model.with_options(finished_beams="release", length_penalty=penalty, length_normalization=normalization)

    def score(sequence):
        n = len(sequence.tokens)
        return sequence.score / ((n if normalization == "power" else (5 + n) / 6) ** penalty)

    count = sum(1 for _ in model.sequences(0))
    output = beam_search(model, model.regions, beam_size=count)
    for image in range(2):
        best = ranked(model, image, score)
        assert sequences_of(output, image) == [sequence.tokens for sequence in best]
        expected = torch.tensor([score(sequence) for sequence in best], dtype=torch.float64)
        torch.testing.assert_close(output.scores[image].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("search", [beam_search, greedy])
def test_no_immediate_repeat(table_model, search):
    model = table_model(vocab_size=3, max_length=6, images=3, seed=1)
    repeats = [
        any(a == b != EOS for a, b in itertools.pairwise(row))
        for image in range(3)
        for row in sequences_of(search(model, model.regions), image)
    ]
    assert any(repeats)
    config = model.generation_config.replace(no_immediate_repeat=True)
    for image in range(3):
        for row in sequences_of(search(model, model.regions, generation_config=config), image):
            assert all(a != b for a, b in itertools.pairwise(row))


@pytest.mark.parametrize("search", [beam_search, greedy])
def test_forbidden_last_tokens(table_model, search):
    model = table_model(vocab_size=3, max_length=5, images=4, seed=3)
    config = model.generation_config.replace(forbidden_last_tokens=(1,))
    before = [row for image in range(4) for row in sequences_of(search(model, model.regions), image)]
    assert any(row[-2:] == (1, EOS) for row in before)
    output = search(model, model.regions, generation_config=config)
    assert not any(row[-2:] == (1, EOS) for image in range(4) for row in sequences_of(output, image))


def test_trigram_penalty(table_model):
    model = table_model(vocab_size=2, max_length=9, seed=4, scale=0.1)
    config = model.generation_config.replace(trigram_penalty=50.0, suppress_tokens=(EOS,))
    row = greedy(model, model.regions, generation_config=config).tokens[0, 0].tolist()
    assert row == [1] * 9  # the only token left, however large the penalty
    model = table_model(vocab_size=4, max_length=7, seed=4, scale=0.1)
    config = config.replace(max_length=7)
    row = greedy(model, model.regions, generation_config=config).tokens[0, 0].tolist()
    trigrams = list(zip(row, row[1:], row[2:], strict=False))
    assert len(set(trigrams)) == len(trigrams)


@pytest.mark.parametrize(
    "search", [beam_search, greedy, lambda *a, **k: sample(*a, **k, generator=torch.Generator().manual_seed(0))]
)
def test_pad_token_id_follows_eos(table_model, search):
    model = table_model(vocab_size=4, max_length=4, images=4, seed=2)
    torch.manual_seed(0)
    plain = search(model, model.regions)
    padded = search(model, model.regions, generation_config=model.generation_config.replace(pad_token_id=7))
    after_eos = (plain.tokens == EOS).cumsum(dim=-1) - (plain.tokens == EOS).long() > 0
    assert after_eos.any()
    assert torch.equal(padded.tokens, plain.tokens.masked_fill(after_eos, 7))
    assert torch.equal(padded.scores, plain.scores)


def test_one_group_is_plain_beam_search_and_groups_without_penalty_agree(table_model):
    model = table_model(vocab_size=4, max_length=4, images=2, seed=2)
    plain = beam_search(model, model.regions, beam_size=3)
    grouped = beam_search(model, model.regions, beam_size=3, num_beam_groups=1, diversity_penalty=9.0)
    assert torch.equal(plain.tokens, grouped.tokens)
    without = beam_search(model, model.regions, beam_size=3, num_beam_groups=3, diversity_penalty=0.0)
    best = beam_search(model, model.regions, beam_size=1)
    for group in range(3):
        assert torch.equal(without.tokens[:, group], best.tokens[:, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_return_sequences": 4}, "num_return_sequences must be between 1 and beam_size=3, not 4"),
        ({"beam_size": 4, "num_beam_groups": 3}, "num_beam_groups must divide the beam size 4, 3 does not"),
        ({"temperature": -0.5}, "temperature must be"),
        ({"length_penalty": float("nan")}, "length_penalty must be a finite number"),
        ({"length_penalty": -0.5}, "length_penalty must be"),
    ],
)
def test_invalid_arguments_of_beam_search(table_model, options, message):
    model = table_model(vocab_size=3, max_length=3)
    with pytest.raises(ConfigError, match=message):
        beam_search(model, model.regions, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eos_token_id": -1}, "eos_token_id must be greater than or equal to 0, not -1"),
        ({"suppress_tokens": 3}, "suppress_tokens must be"),
        ({"trigram_penalty": -1.0}, "trigram_penalty must be"),
    ],
)
def test_invalid_configurations(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(**options)
