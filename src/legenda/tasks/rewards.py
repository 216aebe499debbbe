"""Rewards of sampled captions: a weighted sum, computed in a thread while the device computes the forward pass.

Rewards compare ids of the vocabulary, or PTB tokens, as released codes that score text do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from legenda.data.captions import CaptionDataset, TokenizedCaptions
from legenda.errors import ConfigError
from legenda.metrics.clip import clip_score, load_clip
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.registry import Registry
from legenda.tasks.config import SelfCriticalConfig
from legenda.text import Vocabulary, ptb_tokenize

Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes indices of images in the training split `(B,)` and K captions of each as token ids `(B, K, T)`; returns float64
rewards `(B, K)`. A caption ends at its first end token, or has T tokens without one."""

_BUILT_IN = {"CIDEr-D": CiderD, "BLEU-4": BleuReward}
_CLIP = "CLIPScore"

REWARDS: Registry[Callable[..., Any]] = Registry("reward", {**_BUILT_IN, _CLIP: "legenda.tasks.rewards:ClipReward"})
"""Rewards by name; a class of rewards is called with the training split and the vocabulary."""


class ClipReward:
    """CLIPScore of captions and their images; features of images are computed once.

    Raise ConfigError for data that hold features instead of images.
    """

    def __init__(self, split: CaptionDataset, vocabulary: Vocabulary, model: str) -> None:
        if split.open_images is None:
            raise ConfigError(
                f"the reward CLIPScore sees images, and {split.source} holds features; use data.kind=images or hf"
            )
        self._open, self._vocabulary = split.open_images, vocabulary
        self._model = load_clip(model, "cuda" if torch.cuda.is_available() else "cpu")
        self._images: dict[int, Tensor] = {}

    def __call__(self, indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the scores `(B, K)` of K captions of each image."""
        missing = [index for index in indices.tolist() if index not in self._images]
        if missing:
            self._images |= dict(zip(missing, self._model.embed_images(self._open(np.array(missing))), strict=True))
        seen = torch.stack([self._images[index] for index in indices.tolist()])
        B, K = tokens.shape[:2]
        said = self._model.embed_texts([self._vocabulary.decode(row) for row in tokens.reshape(B * K, -1).tolist()])
        return clip_score(seen.repeat_interleave(K, dim=0), said).reshape(B, K).double().cpu().numpy()


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
            if name not in (*_BUILT_IN, _CLIP)
        }
        if _CLIP in parts:
            rewards[_CLIP] = ClipReward(split, vocabulary, config.clip)
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

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(cancel_futures=True)

    def _compute(self, indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        total = np.zeros(tokens.shape[:2])
        for weight, reward in self.terms:
            values = np.asarray(reward(indices, tokens), dtype=np.float64)
            if values.shape != total.shape or not np.isfinite(values).all():
                raise ConfigError(f"a reward must return finite numbers of the shape {total.shape}, one per caption")
            total += weight * values
        return total


class WordIds:
    """The ids of a vocabulary's tokens, and further ones for all other words, each word with its own.

    Released codes that score text compare words: two unknown words of references differ, and a token of the vocabulary
    that the PTB tokenizer splits or removes is compared in that form.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_token_id
        self._ids = dict(vocabulary.ids)
        self._next = len(vocabulary)
        pieces = {number: ptb_tokenize(token) for token, number in vocabulary.ids.items()}
        self._replaced = {
            number: self.encode(words) for number, words in pieces.items() if words != [vocabulary.tokens[number]]
        }

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word; a new word gets the next free id."""
        ids = []
        for word in words:
            if word not in self._ids:
                self._ids[word] = self._next
                self._next += 1
            ids.append(self._ids[word])
        return ids

    def wrap(self, reward: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
        """Return a reward of captions `(B, K, T)` in ids of the vocabulary, given one of captions in these ids."""
        if not self._replaced:
            return reward
        replaced = np.array(sorted(self._replaced))

        def on_words(indices: np.ndarray, tokens: np.ndarray) -> np.ndarray:
            return reward(indices, self._replace(tokens) if np.isin(tokens, replaced).any() else tokens)

        return on_words

    def _replace(self, tokens: np.ndarray) -> np.ndarray:
        rows = []
        for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
            end = row.index(self.eos_token_id) if self.eos_token_id in row else len(row)
            rows.append([number for token in row[:end] for number in self._replaced.get(token, [token])])
        out = np.full((len(rows), max(map(len, rows)) + 1), self.eos_token_id)
        for number, row in enumerate(rows):
            out[number, : len(row)] = row
        return out.reshape(*tokens.shape[:2], -1)
