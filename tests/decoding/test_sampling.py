"""Sampling against known probabilities, and greedy decoding."""

import math

import pytest
import torch

from legenda.decoding import greedy, sample
from legenda.errors import ConfigError

EOS = 0
PROBABILITIES = [0.15, 0.5, 0.05, 0.3]
"""Probabilities of the four tokens, EOS among them, at every position."""


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


def draw(model, num_samples=4000, seed=0, **options):
    return sample(
        model, model.regions, num_samples=num_samples, generator=torch.Generator().manual_seed(seed), **options
    )


def test_tokens_are_drawn_with_their_probabilities(model):
    output = draw(model)
    assert output.tokens.shape == (2, 4000, 3)
    assert_drawn_from(output.tokens[..., 0], PROBABILITIES)
    unfinished = output.tokens[..., 0] != EOS
    assert_drawn_from(output.tokens[..., 1][unfinished], PROBABILITIES)


def test_sequences_are_drawn_with_their_probabilities(table_model):
    model = table_model(3, 3, seed=5, scale=0.5)
    truth = {sequence.tokens: math.exp(sequence.score) for sequence in model.sequences(0)}
    output = draw(model, num_samples=6000)
    counts = dict.fromkeys(truth, 0)
    for row in output.tokens[0].tolist():
        counts[tuple(row[: row.index(EOS) + 1] if EOS in row else row)] += 1
    chi_square = sum((counts[tokens] - 6000 * p) ** 2 / (6000 * p) for tokens, p in truth.items())
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
        ({"top_p": 1.0}, PROBABILITIES),
        ({"top_p": 1e-6}, [0, 1, 0, 0]),
        # Of the two tokens that top_k keeps, one has 0.625: enough for 0.6.
        ({"top_k": 2, "top_p": 0.6}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [p * p / 0.365 for p in PROBABILITIES]),
        ({"temperature": 1e-3}, [0, 1, 0, 0]),
        ({"temperature": 1e6}, [0.25] * 4),
        # Squared, 0.25 of 0.365 is 0.68: one token is enough for 0.6.
    ],
)
def test_temperature_top_k_and_top_p(model, options, probabilities):
    assert sum(probabilities) == pytest.approx(1)
    output = draw(model, num_samples=1500, **options)
    assert_drawn_from(output.tokens[..., 0], probabilities)
    # The log-probabilities of the output are the model's.
    expected = torch.tensor(PROBABILITIES, dtype=torch.float64).log()
    torch.testing.assert_close(output.log_probs[..., 0], expected[output.tokens[..., 0]])


def test_the_likeliest_token_stays_where_float32_has_no_such_probability(model):
    model.decoder.logits = model.decoder.logits.float()
    assert (draw(model, num_samples=10, top_p=1e-50).tokens == 1).all()


def test_suppressed_tokens_are_not_drawn(model):
    model.with_options(suppress_tokens=(1, 2))
    assert_drawn_from(draw(model).tokens[..., 0], [0.15 / 0.45, 0, 0, 0.3 / 0.45])
    assert (greedy(model, model.regions).tokens == 3).all()


def test_scores_log_probs_and_attention_belong_to_the_samples(table_model):
    model = table_model(4, 4, images=2, seed=3)
    output = draw(model, num_samples=40, need_attention=True)
    assert output.tokens.shape == (2, 40, 4)
    for image in range(2):
        every = {sequence.tokens: sequence for sequence in model.sequences(image)}
        for row in range(40):
            tokens = output.tokens[image, row].tolist()
            length = tokens.index(EOS) + 1 if EOS in tokens else 4
            assert tokens[length:] == [EOS] * (4 - length)
            sequence = every[tuple(tokens[:length])]
            assert output.log_probs[image, row].tolist() == pytest.approx([*sequence.log_probs, *[0.0] * (4 - length)])
            assert output.scores[image, row].item() == pytest.approx(sequence.score)
            attention = model.attention_of(tokens[:length], image)
            assert output.attention[image, row, :, 0].tolist() == attention + [[0.0, 0.0]] * (4 - length)
    assert len({tuple(row) for row in output.tokens[0].tolist()}) > 5


def test_a_generator_for_each_image_makes_its_samples_those_of_any_batch(table_model):
    model = table_model(4, 4, images=3, scale=0.2)

    def draw_of(images):
        generators = [torch.Generator().manual_seed(image) for image in images]
        memory = model.encode(model.regions)[torch.tensor(images)]
        return sample(model, memory, num_samples=20, generator=generators).tokens

    together = draw_of([0, 1, 2])
    for image in range(3):
        alone = draw_of([image])
        assert torch.equal(alone[0], together[image, :, : alone.shape[-1]])
    with pytest.raises(ConfigError, match="generators"):
        sample(model, model.regions, generator=[torch.Generator(), torch.Generator()])


def test_greedy_takes_the_likeliest_token_each_time(table_model):
    model = table_model(4, 4, images=3, seed=2)
    output = greedy(model, model.regions)
    assert output.attention is None
    for image in range(3):
        table, prefix, tokens = model.decoder.logits[image].log_softmax(dim=-1), 0, []
        while len(tokens) < 4 and EOS not in tokens:
            tokens.append(int(table[prefix].argmax()))
            prefix = prefix * 4 + tokens[-1] + 1
        assert output.tokens[image, 0].tolist() == [*tokens, *[EOS] * (output.tokens.shape[-1] - len(tokens))]
    torch.testing.assert_close(output.scores, output.log_probs.sum(dim=-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples must be"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"top_p": 0.0}, r"top_p must be"),
        ({"max_length": 0}, "max_length must be"),
    ],
)
def test_invalid_arguments_of_sample(model, options, message):
    with pytest.raises(ConfigError, match=message):
        sample(model, model.regions, **options)
