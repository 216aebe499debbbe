"""A model whose every probability is in a table, so that all captions can be counted out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from legenda.decoding import Decoder, DecodingRule
from legenda.regions import Memory, Regions, masked_mean

END = 0


@dataclass(frozen=True, eq=False)
class TableState:
    """What was said in each row, as one number: 0 for nothing, then `number * words + word + 1` for each word."""

    said: Tensor | None
    attention: Tensor | None = None

    def reorder(self, beams: Tensor) -> TableState:
        assert self.said is not None
        assert self.attention is not None
        image = torch.arange(len(beams)).unsqueeze(1)
        return TableState(self.said[image, beams], self.attention[image, beams])


class TableDecoder(Decoder):
    """The logits of each image after each history; they are as unlike as random numbers can be.

    A row looks at `(number of its history, number of its image)`, so what it says shows which path it came.
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits
        self.steps = 0

    def start(self, memory: Memory, rows: int) -> TableState:
        assert len(memory) > 0
        assert rows > 0
        return TableState(None)

    def step(self, tokens: Tensor, state: TableState, memory: Memory) -> tuple[Tensor, TableState]:
        self.steps += 1
        if state.said is None:
            assert (tokens == END).all()  # the id that begins a caption
            said = torch.zeros_like(tokens)
        else:
            said = state.said * self.logits.shape[-1] + tokens + 1
        image = memory.states[:, 0, 0].long().unsqueeze(1).expand_as(said)
        seen = torch.stack([said, image + 1], dim=-1).unsqueeze(2).double()
        return self.logits[image, said], TableState(said, seen)


@dataclass(frozen=True)
class Caption:
    """One caption of an image, its words with the end, and the log-probability of each."""

    words: tuple[int, ...]
    log_probs: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.log_probs)


class TableModel:
    """A Decodable over a table of random logits for `images` images and captions of at most `longest` words."""

    def __init__(self, words: int, longest: int, images: int = 1, seed: int = 0, spread: float = 1.5) -> None:
        histories = sum(words**length for length in range(longest))
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(images, histories, words, generator=generator, dtype=torch.float64) * spread
        self.decoder = TableDecoder(logits)
        self.decoding = DecodingRule(begin_id=END, end_id=END, max_length=longest)

    def encode(self, regions: Regions) -> Memory:
        mask = regions.mask_or_ones
        return Memory(regions.features, mask, masked_mean(regions.features, mask))

    @property
    def regions(self) -> Regions:
        """All images: each has two regions and holds its number."""
        return Regions(torch.arange(len(self.decoder.logits)).view(-1, 1, 1).expand(-1, 2, 1).double())

    def with_rule(self, **changes: object) -> TableModel:
        self.decoding = replace(self.decoding, **changes)  # type: ignore[arg-type]
        return self

    def captions(self, image: int) -> Iterator[Caption]:
        """Every caption there is: all that end within the greatest length, and all that reach it without an end."""
        table = self.decoder.logits[image].log_softmax(dim=-1).tolist()

        def grow(history: int, words: tuple[int, ...], log_probs: tuple[float, ...]) -> Iterator[Caption]:
            if len(words) == self.decoding.max_length or (words and words[-1] == END):
                yield Caption(words, log_probs)
                return
            for word, log_prob in enumerate(table[history]):
                if word not in self.decoding.banned_ids:
                    yield from grow(history * len(table[history]) + word + 1, (*words, word), (*log_probs, log_prob))

        return grow(0, (), ())

    def looks(self, words: Sequence[int], image: int) -> list[list[float]]:
        """Where a row that says these words looks before each of them."""
        number, seen = 0, []
        for word in words:
            seen.append([float(number), float(image + 1)])
            number = number * self.decoder.logits.shape[-1] + word + 1
        return seen


@pytest.fixture(scope="session")
def table_model() -> type[TableModel]:
    """`table_model(words=4, longest=4, images=3, seed=0)`."""
    return TableModel
