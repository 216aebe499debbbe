"""The search in NumPy finds what PyTorch's finds: the same tokens, scores and attention, for every option."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from legenda.decoding import Decoder, GenerationConfig
from legenda.decoding.search import search as search_in_torch
from legenda.errors import ConfigError, DataError
from legenda.regions import Memory, Regions, masked_mean
from legenda.runtime import search as runtime
from legenda.runtime.settings import override
from legenda.text import Vocabulary

V, IMAGES, MAX_LENGTH = 9, 3, 6
VOCABULARY = Vocabulary(("<end>", "<unk>", "a", "b", "c", "d", "e", "f", "g"))


@dataclass(frozen=True, eq=False)
class State:
    """The tokens of each row so far as one number."""

    prefix: Tensor
    attention: Tensor | None = None

    def reorder(self, beams: Tensor) -> State:
        assert self.attention is not None
        image = torch.arange(len(beams)).unsqueeze(1)
        return State(self.prefix[image, beams], self.attention[image, beams])


def logits_after(image: np.ndarray, prefix: np.ndarray, scale: float = 1.5) -> np.ndarray:
    """Logits that depend on the image and all tokens before, `(B, K, V)`; the end is likely."""
    angles = (image[..., None] + 1.7) * 7.3 + np.sqrt(prefix)[..., None] * 13.1 + np.arange(V) * 2.9
    return (np.sin(angles) * scale + (np.arange(V) == 0) * 0.4).astype(np.float32)


def weights_after(prefix: np.ndarray) -> np.ndarray:
    """Attention weights in two heads over three regions `(B, K, 2, 3)`, which identify the step."""
    return np.stack([np.stack([prefix, prefix + 1, prefix % 7], -1)] * 2, axis=-2).astype(np.float32)


class Twin(Decoder):
    """A model of PyTorch and a function of NumPy with the same logits."""

    generation_config = GenerationConfig(max_length=MAX_LENGTH, suppress_tokens=(1,))
    scale = 1.5

    @property
    def decoder(self) -> Decoder:
        return self

    def encode(self, regions: Regions) -> Memory:
        mask = regions.mask_or_ones
        return Memory(regions.features, mask, masked_mean(regions.features, mask))

    def init_state(self, memory: Memory, num_rows: int) -> State:
        return State(torch.zeros(len(memory), num_rows, dtype=torch.long))

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        prefix = state.prefix * V + tokens + 1
        image = memory.states[:, :1, 0].numpy()
        logits = torch.from_numpy(logits_after(image, prefix.numpy(), self.scale))
        return logits, State(prefix, torch.from_numpy(weights_after(prefix.numpy())))

    def decode(self, tokens, state, *, need_attention):
        prefix = state["state.prefix"] * V + tokens + 1
        attention = weights_after(prefix) if need_attention else None
        return logits_after(state["image"], prefix, self.scale), attention, {**state, "state.prefix": prefix}

    @property
    def regions(self) -> Regions:
        return Regions(torch.arange(float(IMAGES)).view(-1, 1, 1).expand(-1, 3, 1))

    @property
    def start(self) -> dict[str, np.ndarray]:
        return {"image": np.arange(float(IMAGES))[:, None], "state.prefix": np.zeros((IMAGES, 1), np.int64)}


@pytest.fixture
def twin() -> Twin:
    return Twin()


def run_both(twin: Twin, options: dict, num_captions: int = 1):
    names = [f"{number}.jpg" for number in range(IMAGES)]
    config = override(twin.generation_config, options, VOCABULARY)
    expected = search_in_torch(twin, twin.regions, config, num_captions=num_captions, names=names, need_attention=True)
    actual = runtime.search(
        twin.decode, twin.start, IMAGES, config, num_captions=num_captions, names=names, need_attention=True
    )
    return expected, actual


def check_equal(expected, actual) -> None:
    np.testing.assert_array_equal(actual.tokens, expected.tokens.numpy())
    np.testing.assert_allclose(actual.scores, expected.scores.numpy(), atol=1e-5)
    np.testing.assert_allclose(actual.log_probs, expected.log_probs.numpy(), atol=1e-5)
    np.testing.assert_array_equal(actual.attention, expected.attention.numpy())


RULES = [
    {},
    {"length_penalty": 0.7, "length_normalization": "gnmt"},
    {"no_repeat_ngram_size": 2, "no_immediate_repeat": True},
    {"forbidden_last_tokens": (2, 5), "beam_suppress_tokens": (4,), "pad_token_id": 1},
    {"no_repeat_sets": ((2, 3), (4,)), "max_length": 9},
    {"bos_token_id": 3, "max_length": 9, "length_penalty": 1.3},
]


@pytest.mark.parametrize("finished_beams", ["keep", "release"])
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("beams", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 6, "num_beam_groups": 3}], ids=str)
def test_beam_search_equals_that_of_pytorch(twin, finished_beams, rules, beams):
    twin.generation_config = twin.generation_config.replace(finished_beams=finished_beams, **rules)
    for temperature, num_captions in ((1.0, 1), (0.6, beams["beam_size"])):
        check_equal(*run_both(twin, {"temperature": temperature, **beams}, num_captions))


@pytest.mark.parametrize("options", [{"beam_size": 4}, {"do_sample": True}], ids=["beam", "sample"])
def test_a_sequence_has_one_token_of_a_set_once(twin, options):
    def said(output) -> int:
        return max(sum(token in (2, 3) for token in row) for image in output.tokens.tolist() for row in image)

    twin.generation_config = twin.generation_config.replace(max_length=9)
    _, free = run_both(twin, options, 4)
    twin.generation_config = twin.generation_config.replace(no_repeat_sets=((2, 3),))
    expected, actual = run_both(twin, options, 4)
    check_equal(expected, actual)
    assert said(free) > said(actual) == 1


def test_options_of_the_call_are_over_those_of_the_model(twin):
    options = {"max_length": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 1, "forbidden_last_words": ("b", "C")}
    expected, actual = run_both(twin, options, 3)
    check_equal(expected, actual)
    assert actual.tokens.shape[2] <= 4
    with pytest.raises(ConfigError, match="zebra"):
        run_both(twin, {"forbidden_last_words": ("zebra",)})


@pytest.mark.parametrize("must", [("c",), ("c", "d|e"), ("c", "d", "g", "b")], ids=str)
def test_required_words_occur_as_in_pytorch(twin, must):
    expected, actual = run_both(twin, {"beam_size": 3, "must": must, "max_length": 7}, 3)
    check_equal(expected, actual)
    assert "c" in VOCABULARY.decode(actual.tokens[0, 0])
    options = {"beam_size": 4, "must": must, "max_length": 7, "num_beam_groups": 2}
    with pytest.raises(ConfigError):
        run_both(twin, options)
    config = override(twin.generation_config, options, VOCABULARY)
    with pytest.raises(ConfigError):
        runtime.search(twin.decode, twin.start, IMAGES, config)


def test_words_that_do_not_fit_are_refused(twin):
    options = {"must": ("c", "d", "g", "b"), "max_length": 3}
    config = override(twin.generation_config, options, VOCABULARY)
    with pytest.raises(ConfigError):
        runtime.search(twin.decode, twin.start, IMAGES, config)
    many = {"must": ("a", "b", "c", "d", "e", "f", "g")}
    with pytest.raises(ConfigError):
        runtime.search(twin.decode, twin.start, IMAGES, override(config, many, VOCABULARY))


@pytest.mark.parametrize("chosen", [{}, {"top_k": 4}, {"top_p": 0.7}, {"top_k": 5, "top_p": 0.6, "temperature": 1.7}])
def test_samples_are_those_of_pytorch(twin, chosen):
    twin.generation_config = twin.generation_config.replace(trigram_penalty=2.0, max_length=9)
    drawn = set()
    for seed in range(4):
        expected, actual = run_both(twin, {"do_sample": True, "seed": seed, **chosen}, 5)
        check_equal(expected, actual)
        drawn.add(actual.tokens[:, :, :2].tobytes())
    assert len(drawn) == 4


def test_scores_that_are_not_numbers_are_refused(twin):
    twin.scale = float("nan")
    for options in ({}, {"do_sample": True}):
        with pytest.raises(DataError):
            runtime.search(twin.decode, twin.start, IMAGES, twin.generation_config.replace(**options))


@pytest.mark.filterwarnings("error")
def test_a_length_penalty_beyond_all_numbers_warns_of_nothing(twin):
    check_equal(*run_both(twin, {"beam_size": 2, "length_penalty": 2.0**31}, 2))


def test_the_largest_values_are_found_in_order():
    values = np.array([[3.0, 7.0, 7.0, -np.inf, 1.0]], np.float32)
    assert runtime.largest(values, 4).tolist() == [[1, 2, 0, 4]]
    assert runtime.largest(values, 9).shape == (1, 5)
    wide = np.random.default_rng(0).standard_normal((2, 3, 500)).astype(np.float32)
    np.testing.assert_array_equal(runtime.largest(wide, 90)[..., :5], runtime.largest(wide, 5))
