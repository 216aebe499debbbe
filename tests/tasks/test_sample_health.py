"""Health of sampled captions: measures by hand, and the warning of a collapse."""

import math

import pytest
import torch

from legenda.tasks.objectives import token_mask
from legenda.tasks.self_critical import (
    CURVES,
    MAX_BAD_ENDINGS,
    MIN_DISTINCT_IMAGES,
    MIN_DISTINCT_SAMPLES,
    MIN_ENTROPY,
    describe_collapse,
    find_bad_endings,
    measure_samples,
)
from legenda.text import Vocabulary

VOCABULARY = Vocabulary(("<end>", "<unk>", "dog", "with", "a", "runs"))
END, DOG, WITH, A, RUNS = 0, 2, 3, 4, 5


def test_measures_of_a_batch_by_hand():
    tokens = torch.tensor(
        [
            [[DOG, RUNS, END, END], [DOG, WITH, A, END], [DOG, RUNS, END, END]],
            [[DOG, RUNS, END, RUNS], [END, END, END, END], [A, A, A, A]],  # what follows the end counts nothing
        ]
    )
    is_sampled = torch.tensor([[True, True, True], [True, True, False]])
    mask = token_mask(tokens, END) & is_sampled.unsqueeze(-1)
    advantage = torch.tensor([[1.0, -1.0, 1.0], [3.0, 1.0, 0.0]], dtype=torch.float64)
    log_probs = torch.full(tokens.shape, -0.5).masked_fill(~mask, -99.0)
    found = measure_samples(tokens, mask, log_probs, advantage, END, find_bad_endings(VOCABULARY))
    assert found == pytest.approx(
        {
            "advantage_mean": 1.0,
            "advantage_std": math.sqrt(8 / 5),
            "sample_length": (2 + 3 + 2 + 2 + 0) / 5,
            "entropy": 0.5,
            "distinct_samples": 4 / 5,
            "distinct_images": 1 / 2,
            "bad_endings": 2 / 5,
        }
    )
    assert found.keys() == CURVES.keys()


def test_the_entropy_is_that_of_the_distribution():
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    tokens = torch.multinomial(logits.softmax(0), 20_000, replacement=True).view(200, 100, 1)
    log_probs = logits.log_softmax(0)[tokens]
    found = measure_samples(
        tokens, torch.ones_like(tokens).bool(), log_probs, torch.zeros(200, 100), END, find_bad_endings(None)
    )
    exact = torch.distributions.Categorical(logits=logits).entropy().item()
    assert found["entropy"] == pytest.approx(exact, abs=0.02)
    assert found["bad_endings"] == pytest.approx((tokens == END).float().mean().item())  # captions without words


HEALTHY = {"entropy": 1.0, "distinct_samples": 0.9, "distinct_images": 0.9, "bad_endings": 0.01}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entropy", MIN_ENTROPY - 0.001),
        ("distinct_samples", MIN_DISTINCT_SAMPLES - 0.001),
        ("distinct_images", MIN_DISTINCT_IMAGES - 0.001),
        ("bad_endings", MAX_BAD_ENDINGS + 0.001),
    ],
)
def test_a_collapse_is_described_with_its_limit(name, value):
    warning = describe_collapse(HEALTHY | {name: value})
    assert warning is not None
    assert CURVES[name] in warning
    assert "xe_weight" in warning
    assert not any(CURVES[other] in warning for other in HEALTHY if other != name)
