"""A model with a table of its logits after every prefix, so that all sequences can be enumerated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import legenda
from legenda.decoding import Decoder, GenerationConfig
from legenda.regions import Memory, Regions, masked_mean

EOS = 0


@dataclass(frozen=True, eq=False)
class TableState:
    """The prefix of each row as one index: 0 when empty, then `index * vocab_size + token + 1` for each token."""

    prefix: Tensor | None
    attention: Tensor | None = None

    def reorder(self, beams: Tensor) -> TableState:
        assert self.prefix is not None
        assert self.attention is not None
        image = torch.arange(len(beams)).unsqueeze(1)
        return TableState(self.prefix[image, beams], self.attention[image, beams])


class TableDecoder(Decoder):
    """Logits `(images, prefixes, V)`, all independent.

    The attention weights are `(index of the prefix, number of the image + 1)`, so they identify the step.
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits
        self.steps = 0

    def init_state(self, memory: Memory, num_rows: int) -> TableState:
        assert len(memory) > 0
        assert num_rows > 0
        return TableState(None)

    def step(self, tokens: Tensor, state: TableState, memory: Memory) -> tuple[Tensor, TableState]:
        self.steps += 1
        if state.prefix is None:
            assert (tokens == EOS).all()
            prefix = torch.zeros_like(tokens)
        else:
            prefix = state.prefix * self.logits.shape[-1] + tokens + 1
        image = memory.states[:, 0, 0].long().unsqueeze(1).expand_as(prefix)
        weights = torch.stack([prefix, image + 1], dim=-1).unsqueeze(2).double()
        return self.logits[image, prefix], TableState(prefix, weights)


@dataclass(frozen=True)
class Sequence:
    """A sequence of tokens up to eos, and the log-probability of each."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]

    @property
    def score(self) -> float:
        return sum(self.log_probs)


class TableModel:
    """A model with random logits for `images` images and sequences of at most `max_length` tokens."""

    def __init__(self, vocab_size: int, max_length: int, images: int = 1, seed: int = 0, scale: float = 1.5) -> None:
        prefixes = sum(vocab_size**length for length in range(max_length))
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(images, prefixes, vocab_size, generator=generator, dtype=torch.float64) * scale
        self.decoder = TableDecoder(logits)
        self.generation_config = GenerationConfig(bos_token_id=EOS, eos_token_id=EOS, max_length=max_length)

    def encode(self, regions: Regions) -> Memory:
        mask = regions.mask_or_ones
        return Memory(regions.features, mask, masked_mean(regions.features, mask))

    @property
    def regions(self) -> Regions:
        """All images, each of two regions that hold its number."""
        return Regions(torch.arange(len(self.decoder.logits)).view(-1, 1, 1).expand(-1, 2, 1).double())

    def with_options(self, **changes: object) -> TableModel:
        self.generation_config = self.generation_config.replace(**changes)  # type: ignore[arg-type]
        return self

    def sequences(self, image: int) -> Iterator[Sequence]:
        """Yield every sequence: those that end within the maximum length, and those that reach it without eos."""
        table = self.decoder.logits[image].log_softmax(dim=-1).tolist()

        def grow(prefix: int, tokens: tuple[int, ...], log_probs: tuple[float, ...]) -> Iterator[Sequence]:
            if len(tokens) == self.generation_config.max_length or (tokens and tokens[-1] == EOS):
                yield Sequence(tokens, log_probs)
                return
            for token, log_prob in enumerate(table[prefix]):
                if token not in self.generation_config.suppress_tokens:
                    yield from grow(prefix * len(table[prefix]) + token + 1, (*tokens, token), (*log_probs, log_prob))

        return grow(0, (), ())

    def attention_of(self, tokens: tuple[int, ...] | list[int], image: int) -> list[list[float]]:
        """Return the attention weights of the step before each token."""
        prefix, weights = 0, []
        for token in tokens:
            weights.append([float(prefix), float(image + 1)])
            prefix = prefix * self.decoder.logits.shape[-1] + token + 1
        return weights


@pytest.fixture(scope="session")
def table_model() -> type[TableModel]:
    """`table_model(vocab_size=4, max_length=4, images=3, seed=0)`."""
    return TableModel


@pytest.fixture
def build() -> Callable[..., legenda.models.Captioner]:
    """Small captioners in evaluation mode, by name and seed."""

    def create(name: str = "transformer", seed: int = 0, vocab_size: int = 9) -> legenda.models.Captioner:
        torch.manual_seed(seed)
        sizes = {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16}
        model = legenda.create_model(name, vocab_size=vocab_size, feature_dim=6, **sizes)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
        return model.eval()

    return create


@pytest.fixture
def regions(draw_regions: Callable[..., Regions]) -> Regions:
    """Two images with four regions and two, for the models of `build`."""
    return draw_regions((4, 2), dim=6)
