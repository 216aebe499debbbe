"""Rewards of sampled captions: a weighted sum, computed in a thread while the device computes the forward pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from legenda.data.captions import CaptionDataset
from legenda.data.tokens import TokenizedCaptions
from legenda.errors import ConfigError
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.plugins import Registry
from legenda.tasks.config import SelfCriticalConfig
from legenda.tasks.reward_words import WordIds
from legenda.text import Vocabulary

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes indices of images in the training split `(B,)` and K captions of each as token ids `(B, K, T)`; returns float64
rewards `(B, K)`. A caption ends at its first end token, or has T tokens without one."""

_BUILT_IN = {"CIDEr-D": CiderD, "BLEU-4": BleuReward}

REWARDS: Registry[Callable[..., Any]] = Registry("reward", _BUILT_IN)
"""Rewards by name; a class of rewards is called with the training split and the vocabulary."""


class Rewards:
    """A weighted sum of rewards, computed in one thread, one batch after the other.

    wait_seconds: seconds that callers of `result` have waited in all.
    """

    def __init__(self, terms: Sequence[tuple[float, Reward]]) -> None:
        self.terms = list(terms)
        self.wait_seconds = 0.0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rewards")

    @staticmethod
    def from_config(
        config: SelfCriticalConfig,
        split: CaptionDataset,
        vocabulary: Vocabulary,
    ) -> Rewards:
        """Return the configured rewards against the references of a split; raise ConfigError for an unknown one."""
        parts = {name: REWARDS.get(name) for name in config.rewards}
        rewards: dict[str, Any] = {
            name: part(split, vocabulary) if isinstance(part, type) else part
            for name, part in parts.items()
            if name not in _BUILT_IN
        }
        if built_in := parts.keys() & _BUILT_IN.keys():
            word_ids = WordIds(vocabulary) if config.reward_on_words else None
            references = (
                split.tokenized.ids(vocabulary.encode)
                if word_ids is None
                else TokenizedCaptions.of(split.references).ids(word_ids.encode)
            )
            options: dict[str, Any] = {
                "eos_token_id": vocabulary.eos_token_id,
                "eos": "append" if config.reward_includes_eos else "drop",
                "max_reference_length": config.max_reference_length or None,
            }
            for name in built_in:
                if name == "CIDEr-D":
                    df = "captions" if config.df_unit == "captions" else "references"
                    reward = CiderD(references, df=df, **options)
                else:
                    reward = BleuReward(references, **options)
                rewards[name] = reward if word_ids is None else word_ids.wrap(reward)
        return Rewards([(weight, rewards[name]) for name, weight in config.rewards.items()])

    def start(self, indices: np.ndarray, tokens: Int[Tensor, "B K T"]) -> Future[np.ndarray]:
        """Start to compute the rewards of K captions of each image; return a future of `(B, K)`."""
        return self._executor.submit(self._compute, np.asarray(indices), tokens.cpu().numpy())

    def result(self, pending: Future[np.ndarray]) -> np.ndarray:
        """Return the rewards of a future, waiting for them."""
        started = time.monotonic()
        rewards = pending.result()
        self.wait_seconds += time.monotonic() - started
        return rewards

    def _compute(self, indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        total = np.zeros(tokens.shape[:2])
        for weight, reward in self.terms:
            values = np.asarray(reward(indices, tokens), dtype=np.float64)
            if values.shape != total.shape or not np.isfinite(values).all():
                raise ConfigError(f"a reward must return finite numbers of the shape {total.shape}, one per caption")
            total += weight * values
        return total
