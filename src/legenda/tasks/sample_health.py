"""Health of self-critical training: whether the sampled captions stay diverse and complete."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from legenda.text import Vocabulary

BAD_ENDINGS = "a an the in for at of with before after on upon near to is are am and"
"""Words that end no complete caption: the list of self-critical.pytorch (Luo, 2017), and "and"."""

CURVES = {
    "advantage_mean": "mean advantage of samples",
    "advantage_std": "standard deviation of the advantage",
    "sample_length": "words per sample",
    "entropy": "token entropy (nats)",
    "distinct_samples": "distinct captions among the samples of an image",
    "distinct_images": "distinct captions among images",
    "bad_endings": "samples with a bad ending",
}
"""The metrics of `measure_samples`, with the titles of their curves."""

MIN_ENTROPY, MIN_DISTINCT_SAMPLES, MIN_DISTINCT_IMAGES, MAX_BAD_ENDINGS = 0.05, 0.3, 0.5, 0.1


def find_bad_endings(vocabulary: Vocabulary | None) -> Int[Tensor, " n"]:
    """Return the ids of those `BAD_ENDINGS` that a vocabulary has."""
    ids = {} if vocabulary is None else vocabulary.ids
    return torch.tensor([ids[word] for word in BAD_ENDINGS.split() if word in ids], dtype=torch.long)


@torch.no_grad()
def measure_samples(
    tokens: Int[Tensor, "B K T"],
    mask: Bool[Tensor, "B K T"],
    log_probs: Float[Tensor, "B K T"],
    advantage: Float[Tensor, "B K"],
    eos_token_id: int,
    bad_endings: Int[Tensor, " n"],
) -> dict[str, float]:
    """Return the means over a batch of sampled captions of the metrics in `CURVES`.

    mask: True for the tokens, up to EOS, of samples that exist; the advantage of others is 0. The entropy is estimated
    by minus the log-probabilities of the sampled tokens, whose expected value it is where captions are sampled
    independently. Among images, the first sample of each is compared. A caption without words has a bad ending.
    """
    exists = mask.any(dim=-1)
    count = exists.sum().clamp(min=1)
    mean = advantage.sum() / count
    lengths = (mask & (tokens != eos_token_id)).sum(dim=-1)
    last = tokens.gather(-1, (lengths - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    is_bad = exists & ((lengths == 0) | torch.isin(last, bad_endings.to(last.device)))
    ids = tokens.masked_fill(~mask, -1)
    metrics = (
        mean,
        ((advantage - mean) ** 2)[exists].sum().div(count).sqrt(),
        lengths.sum() / count,
        -log_probs.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1),
        (_is_new(ids) & exists).sum() / count,
        _is_new(ids[:, 0].unsqueeze(0)).sum() / len(ids),
        is_bad.sum() / count,
    )
    values = torch.stack([metric.float() for metric in metrics]).tolist()
    return {name: round(value, 6) for name, value in zip(CURVES, values, strict=True)}


def describe_collapse(metrics: Mapping[str, float]) -> str | None:
    """Return the sentence that warns of collapsed samples, given means of `measure_samples`; None for healthy ones."""
    found = [
        f"{CURVES[name]} {metrics[name]:.2f} (limit {limit})"
        for name, limit, sign in (
            ("entropy", MIN_ENTROPY, 1),
            ("distinct_samples", MIN_DISTINCT_SAMPLES, 1),
            ("distinct_images", MIN_DISTINCT_IMAGES, 1),
            ("bad_endings", MAX_BAD_ENDINGS, -1),
        )
        if name in metrics and sign * metrics[name] < sign * limit
    ]
    if not found:
        return None
    return (
        f"the sampled captions collapse: {', '.join(found)}; train again with a lower learning rate, "
        "training.self_critical.xe_weight of 0.1 or more, or fewer epochs"
    )


def _is_new(ids: Int[Tensor, "G N T"]) -> Bool[Tensor, "G N"]:
    """Return which sequences of each group differ from all before them."""
    is_same = (ids.unsqueeze(1) == ids.unsqueeze(2)).all(dim=-1)  # (G, N, N)
    return ~is_same.tril(diagonal=-1).any(dim=-1)
