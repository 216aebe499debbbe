"""Rewards for drawn captions: weighed together, and computed in a thread while the device works."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from jaxtyping import Int
from torch import Tensor

from legenda.datasets.captions import CaptionDataset
from legenda.errors import UserError, nearest
from legenda.metrics.reward import BleuReward, CiderD
from legenda.tasks.config import SelfCritical
from legenda.text import Vocabulary

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From positions of images in the training split, `(B,)`, and ids of K captions each, `(B, K, T)`, to float64 rewards
`(B, K)`. A caption lasts to its first end id, or has T words without one."""

_BUILT_IN = {"CIDEr-D": CiderD, "BLEU-4": BleuReward}


class Rewards:
    """A weighted sum of rewards, computed in one thread, one batch after the other.

    waited: seconds that `result` has kept its callers waiting in all.
    """

    def __init__(self, parts: Sequence[tuple[float, Reward]]) -> None:
        self.parts = list(parts)
        self.waited = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rewards")

    @staticmethod
    def of(
        settings: SelfCritical, split: CaptionDataset, vocabulary: Vocabulary, own: Mapping[str, Reward] | None = None
    ) -> Rewards:
        """The rewards that the settings name, against the references of a split. own: rewards that are not built in.

        Raises UserError for a name that is neither.
        """
        own = own or {}
        built = [name for name in settings.rewards if name not in own]
        for name in built:
            if name not in _BUILT_IN:
                known = nearest(name, [*_BUILT_IN, *own])
                raise UserError(f"training.self_critical.rewards names {name!r}, which is no reward; {known}")
        made: dict[str, Reward] = dict(own)
        if built:
            counted = CiderD(
                split.tokenized.ids(vocabulary),
                end_id=vocabulary.eos_token_id,
                end="added" if settings.end_in_reward else "dropped",
                clip=settings.reference_length or None,
                df="captions" if settings.frequencies == "captions" else "references",
            )
            made |= {name: _BUILT_IN[name].on(counted.index) for name in built}
        return Rewards([(weight, made[name]) for name, weight in settings.rewards.items()])

    def start(self, images: np.ndarray, tokens: Int[Tensor, "B K T"]) -> Future[np.ndarray]:
        """Begins to reward K captions of each image, and gives the promise of rewards `(B, K)`."""
        return self._thread.submit(self._judge, np.asarray(images), tokens.cpu().numpy())

    def result(self, promised: Future[np.ndarray]) -> np.ndarray:
        """What was promised; waits for it where it is not there yet."""
        began = time.monotonic()
        rewards = promised.result()
        self.waited += time.monotonic() - began
        return rewards

    def _judge(self, images: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        total = np.zeros(tokens.shape[:2])
        for weight, reward in self.parts:
            judged = np.asarray(reward(images, tokens), dtype=np.float64)
            if judged.shape != total.shape or not np.isfinite(judged).all():
                raise UserError(f"a reward must give finite numbers of the shape {total.shape}, one for each caption")
            total += weight * judged
        return total
