"""Beam search against the enumeration of all sequences, with a table of logits and with a captioner."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from legenda.decoding import beam_search, greedy
from legenda.errors import DataError
from legenda.runtime.generation import check_scores

EOS = 0
ALL = 1 + 3 + 9 + 27 + 81
"""Sequences of at most 4 tokens out of 4: 40 that end and 81 that do not."""
SEEDS = st.integers(0, 10_000)


def score(sequence, penalty):
    return sequence.score / len(sequence.tokens) ** penalty


def best_first(model, image, penalty=0.0):
    return sorted(model.sequences(image), key=lambda sequence: -score(sequence, penalty))


def padded(tokens, length, filler=EOS):
    return [*tokens, *[filler] * (length - len(tokens))]


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_beam_as_wide_as_the_space_finds_the_true_ranking(table_model, penalty, seed):
    model = table_model(4, 4, images=2, seed=seed)
    output = beam_search(model, model.regions, beam_size=ALL, length_penalty=penalty, need_attention=True)
    assert output.tokens.shape == (2, ALL, 4)
    for image in range(2):
        truth = best_first(model, image, penalty)
        assert output.tokens[image].tolist() == [padded(sequence.tokens, 4) for sequence in truth]
        assert output.scores[image].tolist() == pytest.approx([score(sequence, penalty) for sequence in truth])
        for row, sequence in enumerate(truth):
            assert output.log_probs[image, row].tolist() == pytest.approx(padded(sequence.log_probs, 4, 0.0))
            expected = padded(model.attention_of(sequence.tokens, image), 4, [0.0, 0.0])
            assert output.attention[image, row, :, 0].tolist() == expected


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_suppressed_tokens_are_not_generated_and_the_rest_keep_their_probabilities(table_model, penalty):
    model = table_model(4, 4).with_options(suppress_tokens=(2,), length_penalty=penalty)
    truth = best_first(model, 0, penalty)
    assert len(truth) == 1 + 2 + 4 + 8 + 16
    output = beam_search(model, model.regions, beam_size=ALL)
    assert output.tokens[0, : len(truth)].tolist() == [padded(sequence.tokens, 4) for sequence in truth]
    assert output.scores[0, : len(truth)].tolist() == pytest.approx([score(sequence, penalty) for sequence in truth])
    assert (output.scores[0, len(truth) :] == float("-inf")).all()  # rows without a hypothesis
    assert (output.tokens[0, len(truth) :] == EOS).all()
    assert (output.log_probs[0, len(truth) :] == 0).all()
    assert output.scores.shape[1] > len(truth)


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.integers(1, 8), st.sampled_from([0.0, 0.5, 1.0]))
def test_scores_log_probs_and_attention_belong_to_the_tokens(table_model, seed, beam_size, penalty):
    model = table_model(5, 4, images=2, seed=seed)
    output = beam_search(model, model.regions, beam_size=beam_size, length_penalty=penalty, need_attention=True)
    assert (output.scores.diff(dim=1) <= 0).all()
    for image in range(2):
        every = {
            tuple(padded(sequence.tokens, output.tokens.shape[-1])): sequence for sequence in model.sequences(image)
        }
        rows = [tuple(row) for row in output.tokens[image].tolist()]
        assert len(set(rows)) == len(rows) == beam_size
        for index, row in enumerate(rows):
            sequence, length = every[row], output.tokens.shape[-1]
            assert output.scores[image, index].item() == pytest.approx(score(sequence, penalty))
            assert output.log_probs[image, index].tolist() == pytest.approx(padded(sequence.log_probs, length, 0.0))
            expected = padded(model.attention_of(sequence.tokens, image), length, [0.0, 0.0])
            assert output.attention[image, index, :, 0].tolist() == expected


@settings(deadline=None, max_examples=30)
@given(SEEDS, st.integers(1, 6), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([1.5, 6.0]))
def test_stopping_early_changes_no_result(table_model, seed, beam_size, penalty, scale):
    model = table_model(5, 5, images=3, seed=seed, scale=scale)
    full = beam_search(model, model.regions, beam_size=beam_size, length_penalty=penalty)
    steps = model.decoder.steps
    for num_return_sequences in range(1, beam_size + 1):
        model.decoder.steps = 0
        output = beam_search(
            model, model.regions, beam_size=beam_size, length_penalty=penalty, num_return_sequences=num_return_sequences
        )
        assert model.decoder.steps <= steps
        length = output.tokens.shape[-1]
        assert output.tokens.shape == (3, num_return_sequences, length)
        assert torch.equal(output.tokens, full.tokens[:, :num_return_sequences, :length])
        assert (full.tokens[:, :num_return_sequences, length:] == EOS).all()
        assert torch.equal(output.scores, full.scores[:, :num_return_sequences])


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_one_beam_is_greedy(table_model, seed):
    model = table_model(5, 4, images=3, seed=seed)
    first = beam_search(model, model.regions, beam_size=1, need_attention=True)
    second = greedy(model, model.regions, need_attention=True)
    for name in ("tokens", "log_probs", "scores", "attention"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("num_return_sequences", [1, 3])
def test_images_are_independent(table_model, num_return_sequences):
    model = table_model(5, 4, images=4, seed=3)
    output = beam_search(
        model, model.regions, beam_size=3, num_return_sequences=num_return_sequences, need_attention=True
    )
    for image in range(4):
        alone = beam_search(
            model,
            model.regions[image : image + 1],
            beam_size=3,
            num_return_sequences=num_return_sequences,
            need_attention=True,
        )
        length = alone.tokens.shape[-1]
        assert torch.equal(output.tokens[image, :, :length], alone.tokens[0])
        assert (output.tokens[image, :, length:] == EOS).all()
        assert torch.equal(output.scores[image], alone.scores[0])
        assert torch.equal(output.attention[image, :, :length], alone.attention[0])


def test_a_score_that_is_nan_is_refused_where_others_are_finite():
    with pytest.raises(DataError, match="image 1"):
        check_scores(np.array([[0.0, -math.inf], [math.nan, 0.0]]))
