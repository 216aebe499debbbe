"""Numbers in words of two invented languages."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.data import numerals as number_words
from legenda.data.numerals import LARGEST, NumberWordsData, orrish, tavil
from legenda.errors import DataError

numbers = st.integers(0, LARGEST)


def read_tavil(text: str) -> int:
    """The number, read by the rules alone."""
    if text == "nol":
        return 0
    total, part, digit = 0, 0, 0
    for word in text.split():
        if word in number_words._DIGITS:
            part, digit = part + digit, number_words._DIGITS.index(word)
        elif word == "hun":
            part, digit = part + 100 * digit, 0
        elif word == "den":
            part, digit = part + 10 * digit, 0
        else:
            assert word == "tus"
            total, part, digit = 1000 * (part + digit), 0, 0
    return total + part + digit


def read_orrish(text: str) -> int:
    """The same: a rank begins a part, and the first part has none."""
    if text == "vaal":
        return 0
    total, rank = 0, 0
    for word in text.split():
        if word in number_words._RANKS:
            rank = number_words._RANKS.index(word)
        elif word in number_words._ONES:
            total += number_words._ONES.index(word) * 100**rank
        else:
            total += 10 * number_words._TENS.index(word) * 100**rank
    return total


@pytest.mark.parametrize(
    ("number", "first", "second"),
    [
        (0, "nol", "vaal"),
        (7, "nai", "ontu"),
        (10, "lam den", "oskri"),
        (21, "sor den lam", "osk ebri"),
        (100, "lam hun", "ung osk"),
        (1_000, "lam tus", "ung oskri"),
        (305_021, "mir hun fel tus sor den lam", "osk ebri ung drel wem ushti"),
        (999_999, "zin hun zin den zin tus zin hun zin den zin", "ewi ewri ung ewi ewri wem ewi ewri"),
    ],
)
def test_numbers_spelled_by_hand(number, first, second):
    assert tavil(number) == first
    assert orrish(number) == second


@given(numbers)
def test_tavil_reads_back(number):
    assert read_tavil(tavil(number)) == number


@given(numbers)
def test_orrish_reads_back(number):
    assert read_orrish(orrish(number)) == number


def test_words_of_the_two_languages_are_all_different():
    words = [*number_words._DIGITS, *number_words._ONES, *number_words._TENS, *number_words._RANKS]
    words += [*number_words._UNITS, "tus", "nol", "vaal"]
    assert not {word: count for word, count in Counter(filter(None, words)).items() if count > 1}


def test_order_is_everything():
    """Nearly every number becomes another one, with another translation, when its words change places."""
    split, shared = NumberWordsData().split("test"), 0
    for identity, sentence in zip(split.ids, split.sentences, strict=True):
        places = [identity.index(digit) for digit in sorted(set(identity) - {"0"})][:2]
        if len(places) == 2:
            digits = list(identity)
            digits[places[0]], digits[places[1]] = digits[places[1]], digits[places[0]]
            other = int("".join(digits))
            assert sorted(tavil(other).split()) == sorted(sentence.split())
            assert orrish(other) != orrish(int(identity))
            shared += 1
    assert shared > 0.99 * len(split)


def test_splits_share_no_number_and_do_not_depend_on_each_others_size():
    small, large = NumberWordsData(train=50), NumberWordsData(train=5_000, validation=400, test=2_000)
    sets = [set(large.split(name).ids) for name in ("train", "val", "test")]
    assert [len(part) for part in sets] == [5_000, 400, 2_000]
    assert not sets[0] & sets[1] | sets[0] & sets[2] | sets[1] & sets[2]
    assert large.split("train").ids[:50] == small.split("train").ids
    assert large.split("test").ids[:1_000] == small.split("test").ids


def test_every_word_is_known_and_gives_the_sentence_back():
    opened = NumberWordsData(train=3_000).open(lambda _: None)
    longest = 0
    for split in (opened.train, opened.validation, NumberWordsData().split("test")):
        for sentence, (reference,) in zip(split.sentences, split.references, strict=True):
            for text in (sentence, reference):
                pieces = opened.subwords.tokenize(text)
                longest = max(longest, len(pieces))
                assert opened.vocabulary.unk_token_id not in opened.vocabulary.encode(pieces)
                assert opened.subwords.detokenize(pieces) == text
    assert longest <= opened.max_length


@pytest.mark.parametrize("sizes", [{"test": 0}, {"test": 100_001}])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(DataError, match="the split test of number words takes 1 to 100000 examples"):
        NumberWordsData(**sizes).split("test")


def test_unknown_splits_and_numbers_are_refused():
    with pytest.raises(DataError, match="no split 'dev' of number words; choose from train, val, test"):
        NumberWordsData().split("dev")
    with pytest.raises(DataError, match="from 0 to 999999, not to 1000000"):
        tavil(1_000_000)
    with pytest.raises(DataError, match="not to -1"):
        orrish(-1)
