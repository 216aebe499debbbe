"""Cross-entropy against sums made by hand."""

import math

import pytest
import torch

from legenda.errors import ConfigError
from legenda.tasks.objectives import cross_entropy


def by_hand(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> float:
    """Word by word, with plain Python numbers."""
    losses = []
    V = logits.shape[-1]
    for row, target in zip(logits.flatten(0, -2).tolist(), targets.flatten().tolist(), strict=True):
        if target >= 0:
            total = math.log(sum(math.exp(value) for value in row))
            wanted = [smoothing / V + (1 - smoothing) * (word == target) for word in range(V)]
            losses.append(-sum(share * (value - total) for share, value in zip(wanted, row, strict=True)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_the_mean_over_real_words(smoothing):
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, 7) * 3
    targets = torch.randint(0, 7, (2, 3, 4))
    targets[0, 1, 2:] = -1
    targets[1, 2] = -1
    expected = by_hand(logits, targets, smoothing)
    assert cross_entropy(logits, targets, smoothing).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_smoothing_over_the_other_words_is_the_divergence_from_those_targets(reduction):
    """KL(q || p) with q = 0.7 for the target and 0.3 / 4 for each of the four other words; one word is padded."""
    torch.manual_seed(0)
    logits = torch.randn(1, 2, 2, 5)
    targets = torch.tensor([[[3, 0], [1, -1]]])
    wanted = torch.full((3, 5), 0.3 / 4)
    wanted[[0, 1, 2], [3, 0, 1]] = 0.7
    log_probs = logits.flatten(0, -2)[:3].log_softmax(dim=-1)
    divergence = (wanted * (wanted.log() - log_probs)).sum().item()
    found = cross_entropy(logits, targets, 0.3, "non_target", reduction=reduction).item()
    assert found == pytest.approx(divergence / (3 if reduction == "mean" else 1), rel=1e-5)


def test_half_precision_logits_are_summed_in_full_precision():
    torch.manual_seed(0)
    logits = torch.randn(2, 2, 3, 300).bfloat16()
    targets = torch.randint(0, 300, (2, 2, 3))
    loss = cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(by_hand(logits.float(), targets, 0.0), rel=1e-5)


def test_smoothing_that_makes_the_target_the_least_likely_word_is_refused():
    logits, targets = torch.zeros(2, 4), torch.tensor([0, 3])
    assert cross_entropy(logits, targets, 0.75, "non_target").isfinite()
    with pytest.raises(ConfigError, match="label_smoothing"):
        cross_entropy(logits, targets, 0.76, "non_target")
