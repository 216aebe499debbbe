"""Captions as numbered tokens."""

from legenda.data.tokens import TokenizedCaptions
from legenda.text import Vocabulary, ptb_tokenize

REFERENCES = (("A dog runs.", "Dogs, running!", ""), ("A cat.",), ("...", "a red dog and a cat"))
VOCABULARY = Vocabulary(("<end>", "<unk>", "a", "dog", "cat"))


def test_ids_are_those_of_every_caption_tokenized_alone():
    expected = [[VOCABULARY.encode(ptb_tokenize(caption)) for caption in captions] for captions in REFERENCES]
    assert TokenizedCaptions.of(REFERENCES).ids(VOCABULARY.encode) == expected
    assert expected[0] == [[2, 3, 1], [1, 1], []]


def test_tokens_are_kept():
    tokens = [[["a", "dog"], []], [["Dog"]]]
    assert TokenizedCaptions.of_tokens(tokens).ids(VOCABULARY.encode) == [[[2, 3], []], [[1]]]
    assert TokenizedCaptions.of_tokens(tokens).counts() == {"a": 1, "dog": 1, "Dog": 1}
