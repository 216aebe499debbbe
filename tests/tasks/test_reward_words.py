"""Rewards of PTB tokens: unknown words differ from each other, and text is compared as the PTB tokenizer has it."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from legenda.data.captions import CaptionDataset
from legenda.metrics import CiderD
from legenda.tasks.base import SelfCriticalConfig
from legenda.tasks.self_critical import Rewards, WordIds
from legenda.text import Vocabulary, ptb_tokenize

VOCABULARY = Vocabulary(("<unk>", "<pad>", "<begin>", "<end>", "a", "dog", "runs", "(", "12pm"))
REFERENCES = (("A dog runs.", "A zebra runs past Ohio."), ("A giraffe runs.", "a (dog) at 12pm"))
EOS = VOCABULARY.eos_token_id


def compute(tokens, **settings) -> np.ndarray:
    def read(_):
        raise AssertionError

    split = CaptionDataset(("0", "1"), REFERENCES, read, "test", "test")
    config = SelfCriticalConfig(reward_includes_eos=False, df_unit="captions", **settings)
    rewards = Rewards.from_config(config, split, VOCABULARY)
    return rewards.result(rewards.start(np.arange(2), tokens))


SAMPLES = [[[4, 5, 6, EOS, EOS], [4, 0, 6, EOS, EOS]], [[4, 7, 5, 8, EOS], [5, EOS, EOS, EOS, EOS]]]


def test_rewards_are_those_of_the_text():
    numbers: dict[str, int] = defaultdict(lambda: len(numbers) + 1)

    def encode(text: str) -> list[int]:
        return [numbers[word] for word in ptb_tokenize(text)]

    oracle = CiderD([[encode(caption) for caption in group] for group in REFERENCES], eos="drop", df="captions")
    texts = [[VOCABULARY.decode(row) for row in group] for group in SAMPLES]
    encoded = [[encode(text) for text in group] for group in texts]
    width = max(len(row) for group in encoded for row in group) + 1
    padded = np.array([[row + [0] * (width - len(row)) for row in group] for group in encoded])
    expected = oracle(range(2), padded)
    found = compute(torch.tensor(SAMPLES), reward_on_words=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert found[1, 0] > 0  # "a ( dog 12pm" has two words of "a (dog) at 12pm" in a row only without the bracket


def test_unknown_words_of_references_differ_only_on_words():
    on_ids, on_words = (compute(torch.tensor(SAMPLES), reward_on_words=value) for value in (False, True))
    assert on_ids[0, 1] > on_words[0, 1]  # "a <unk> runs" does not match "a zebra runs" as text


@pytest.mark.parametrize("eos", [True, False])
def test_replaced_tokens_keep_the_end(eos):
    ids = WordIds(VOCABULARY)
    seen = []
    row = [4, 7, 5, EOS, 6] if eos else [4, 7, 5, 5, 6]
    ids.wrap(lambda _, tokens: seen.append(tokens) or np.zeros(tokens.shape[:2]))(np.arange(1), np.array([[row]]))
    bracket = ids.encode(["-lrb-"])[0] if ptb_tokenize("(") else None
    expected = [4, *([] if bracket is None else [bracket]), 5] + ([] if eos else [5, 6])
    assert seen[0][0, 0].tolist()[: len(expected) + 1] == [*expected, EOS]
