"""Sampling against known probabilities, and greedy decoding."""

import math

import pytest
import torch

import legenda
from legenda import UserError
from legenda.decoding import greedy, sample

END = 0
PROBABILITIES = [0.15, 0.5, 0.05, 0.3]
"""Of the four words at every place; the end is one of them."""


@pytest.fixture
def model(table_model):
    model = table_model(4, 3, images=2)
    model.decoder.logits[:] = torch.tensor(PROBABILITIES, dtype=torch.float64).log() + 7.0
    return model


def assert_drawn_from(tokens, probabilities):
    """Chi-square of the counts below the value that chance exceeds once in a thousand times."""
    counts = torch.bincount(tokens.flatten(), minlength=len(probabilities)).tolist()
    possible = [number for number, probability in enumerate(probabilities) if probability > 0]
    assert sum(counts[number] for number in possible) == tokens.numel()
    expected = [probabilities[number] * tokens.numel() for number in possible]
    chi_square = sum((counts[n] - e) ** 2 / e for n, e in zip(possible, expected, strict=True))
    limit = {1: 1e-9, 2: 10.83, 3: 13.82, 4: 16.27}[len(possible)]  # of 0 to 3 degrees of freedom
    assert chi_square <= limit


def draw(model, rows=4000, seed=0, **options):
    return sample(model, model.regions, rows=rows, generator=torch.Generator().manual_seed(seed), **options)


def test_words_come_with_their_probabilities(model):
    found = draw(model)
    assert found.tokens.shape == (2, 4000, 3)
    assert_drawn_from(found.tokens[..., 0], PROBABILITIES)
    going_on = found.tokens[..., 0] != END
    assert_drawn_from(found.tokens[..., 1][going_on], PROBABILITIES)


def test_whole_captions_come_with_their_probabilities(table_model):
    model = table_model(3, 3, seed=5, spread=0.5)
    truth = {caption.words: math.exp(caption.total) for caption in model.captions(0)}
    found = draw(model, rows=6000)
    counts = dict.fromkeys(truth, 0)
    for row in found.tokens[0].tolist():
        counts[tuple(row[: row.index(END) + 1] if END in row else row)] += 1
    chi_square = sum((counts[words] - 6000 * p) ** 2 / (6000 * p) for words, p in truth.items())
    assert len(truth) == 1 + 2 + 4 + 8
    assert chi_square < 36.12  # exceeded once in a thousand times with 14 degrees of freedom


@pytest.mark.parametrize(
    ("options", "probabilities"),
    [
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 0.5 / 0.8, 0, 0.3 / 0.8]),
        ({"top_k": 9}, PROBABILITIES),
        ({"top_p": 0.4}, [0, 1, 0, 0]),
        ({"top_p": 0.6}, [0, 0.5 / 0.8, 0, 0.3 / 0.8]),
        ({"top_p": 0.9}, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        ({"top_p": 0.97}, PROBABILITIES),
        ({"top_p": 1.0}, PROBABILITIES),
        ({"top_p": 1e-6}, [0, 1, 0, 0]),
        # Of the two words that top_k leaves, one has 0.625: enough for 0.6.
        ({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [p * p / 0.365 for p in PROBABILITIES]),
        ({"temperature": 1e-3}, [0, 1, 0, 0]),
        ({"temperature": 1e6}, [0.25] * 4),
        # Squared, 0.25 of 0.365 is 0.68: one word is enough for 0.6.
        ({"temperature": 0.5, "top_p": 0.6}, [0, 1, 0, 0]),
    ],
)
def test_what_shapes_the_probabilities(model, options, probabilities):
    assert sum(probabilities) == pytest.approx(1)
    found = draw(model, rows=1500, **options)
    assert_drawn_from(found.tokens[..., 0], probabilities)
    # The log-probabilities that are told are the model's own.
    own = torch.tensor(PROBABILITIES, dtype=torch.float64).log()
    torch.testing.assert_close(found.log_probs[..., 0], own[found.tokens[..., 0]])


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_keeps_exactly_k_of_words_that_are_equally_likely(table_model, top_k):
    model = table_model(5, 1)
    model.decoder.logits[...] = 0.0
    assert len(set(draw(model, rows=300, top_k=top_k).tokens.flatten().tolist())) == top_k


def test_banned_words_are_never_drawn(model):
    model.with_rule(banned_ids=(1, 2))
    assert_drawn_from(draw(model).tokens[..., 0], [0.15 / 0.45, 0, 0, 0.3 / 0.45])
    assert (greedy(model, model.regions).tokens == 3).all()


def test_what_is_drawn_is_told_truly(table_model):
    model = table_model(4, 4, images=2, seed=3)
    found = draw(model, rows=40, need_attention=True)
    assert found.tokens.shape == (2, 40, 4)
    for image in range(2):
        every = {caption.words: caption for caption in model.captions(image)}
        for row in range(40):
            words = found.tokens[image, row].tolist()
            length = words.index(END) + 1 if END in words else 4
            assert words[length:] == [END] * (4 - length)
            caption = every[tuple(words[:length])]
            assert found.log_probs[image, row].tolist() == pytest.approx([*caption.log_probs, *[0.0] * (4 - length)])
            assert found.scores[image, row].item() == pytest.approx(caption.total)
            seen = model.looks(words[:length], image)
            assert found.attention[image, row, :, 0].tolist() == seen + [[0.0, 0.0]] * (4 - length)
    assert len({tuple(row) for row in found.tokens[0].tolist()}) > 5


def test_equal_generators_draw_equal_captions(table_model):
    model = table_model(4, 4, images=2)
    first, second, other = (draw(model, rows=20, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    before = torch.get_rng_state()
    draw(model, rows=20)
    assert torch.equal(torch.get_rng_state(), before)  # a generator of one's own leaves the common one alone


def test_greedy_takes_the_likeliest_word_each_time(table_model):
    model = table_model(4, 4, images=3, seed=2)
    found = greedy(model, model.regions)
    assert found.attention is None
    for image in range(3):
        table, number, words = model.decoder.logits[image].log_softmax(dim=-1), 0, []
        while len(words) < 4 and END not in words:
            words.append(int(table[number].argmax()))
            number = number * 4 + words[-1] + 1
        assert found.tokens[image, 0].tolist() == [*words, *[END] * (found.tokens.shape[-1] - len(words))]
    torch.testing.assert_close(found.scores, found.log_probs.sum(dim=-1))


def test_decoding_stops_when_all_rows_have_ended(model):
    model.decoder.logits[..., END] = 50.0
    assert greedy(model, model.regions).tokens.tolist() == [[[END]], [[END]]]
    assert draw(model, rows=3).tokens.shape == (2, 3, 1)
    assert model.decoder.steps == 2


def test_a_real_model_is_sampled_from_its_own_probabilities(draw_regions):
    torch.manual_seed(0)
    model = legenda.create_model("ngsan", vocab_size=7, feature_dim=6, dim=16, num_heads=2, num_layers=1, ff_dim=24)
    model.eval()
    regions = draw_regions((4, 2), dim=6)
    found = sample(model, regions, rows=5, max_length=6, generator=torch.Generator().manual_seed(0))
    heard = torch.cat([torch.full((2, 5, 1), END), found.tokens[..., :-1]], dim=-1)
    with torch.no_grad():
        own = model(regions, heard).log_softmax(dim=-1).gather(-1, found.tokens.unsqueeze(-1)).squeeze(-1)
    alive = (heard[..., 1:] != END).cumprod(dim=-1)
    alive = torch.cat([torch.ones(2, 5, 1), alive], dim=-1)
    torch.testing.assert_close(found.log_probs, own * alive, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows": 0}, "rows must be at least 1, not 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 0.0}, r"top_p must lie in 0\.\.1, above 0, not 0\.0"),
        ({"top_p": 1.5}, "top_p must lie"),
        ({"max_length": 0}, "max_length must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_drawn(model, options, told):
    with pytest.raises(UserError, match=told):
        sample(model, model.regions, **options)
