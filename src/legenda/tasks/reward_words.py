"""Rewards of PTB tokens: ids for words outside a vocabulary, and captions in these ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from legenda.text import Vocabulary, ptb_tokenize


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
