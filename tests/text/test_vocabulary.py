"""Words and their ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import UserError
from legenda.text import Vocabulary

CAPTIONS = [["a", "red", "kite"], ["a", "kite"], ["a", "blue", "boat"], ["blue", "kite", "a"]]


def test_build_orders_by_frequency_then_alphabet():
    vocabulary = Vocabulary.build(CAPTIONS, min_count=1)
    assert vocabulary.words == ("<end>", "<unk>", "a", "kite", "blue", "boat", "red")
    assert (vocabulary.bos_token_id, vocabulary.eos_token_id, vocabulary.unk_token_id) == (0, 0, 1)
    assert len(vocabulary) == 7


@pytest.mark.parametrize(("min_count", "words"), [(2, ("a", "kite", "blue")), (3, ("a", "kite")), (4, ("a",)), (5, ())])
def test_build_leaves_out_rare_words(min_count, words):
    assert Vocabulary.build(CAPTIONS, min_count=min_count).words[2:] == words


def test_min_count_is_five_by_default():
    assert Vocabulary.build([["often"] * 5, ["seldom"] * 4]).words[2:] == ("often",)


def test_special_words_in_a_caption_are_unknown():
    vocabulary = Vocabulary.build([["<end>", "<unk>", "a"]], min_count=1)
    assert vocabulary.words == ("<end>", "<unk>", "a")
    assert vocabulary.encode(["<end>", "a", "<unk>", "b"]) == [1, 2, 1, 1]


def test_special_words_may_stand_anywhere():
    released = Vocabulary(("<unk>", "<pad>", "<begin>", "<end>", "a", "kite"))
    assert (released.bos_token_id, released.eos_token_id, released.unk_token_id) == (2, 3, 0)
    assert released.encode(["kite", "boat", "<begin>"]) == [5, 0, 0]
    assert released.decode([5, 0, 4, 3, 5]) == "kite <unk> a"


def test_a_vocabulary_without_an_unknown_word_refuses_one():
    narrow = Vocabulary(("<end>", "a"))
    assert narrow.unk_token_id is None
    with pytest.raises(UserError, match="'kite' is not in the vocabulary"):
        narrow.encode(["a", "kite"])


@pytest.mark.parametrize(
    ("ids", "text"), [([], ""), ([0, 2], ""), ([2, 3, 0, 2], "a kite"), ([3, 1, 2], "kite <unk> a"), ([2], "a")]
)
def test_decode_stops_at_the_end(ids, text):
    assert Vocabulary(("<end>", "<unk>", "a", "kite")).decode(ids) == text


@pytest.mark.parametrize("number", [-1, 4, 9487])
def test_decode_refuses_ids_outside(number):
    with pytest.raises(UserError, match=f"Id {number} is outside a vocabulary of 4 words"):
        Vocabulary(("<end>", "<unk>", "a", "kite")).decode([2, number])


@given(st.lists(st.lists(st.sampled_from(["a", "kite", "2\u00a03/8", "n't", "é"]), max_size=6)))
def test_known_words_come_back(captions):
    vocabulary = Vocabulary.build(captions, min_count=1)
    for caption in captions:
        assert vocabulary.decode([*vocabulary.encode(caption), vocabulary.eos_token_id, 2]) == " ".join(caption)


def test_save_and_load(tmp_path):
    vocabulary = Vocabulary(("<end>", "<unk>", "a", "2\u00a03/8", "x\u0085y", "crème"))
    path = tmp_path / "vocabulary.txt"
    vocabulary.save(path)
    assert path.read_bytes().decode() == "<end>\n<unk>\na\n2\u00a03/8\nx\u0085y\ncrème\n"
    assert Vocabulary.load(path) == vocabulary
    assert Vocabulary.load(path).encode(["crème"]) == [5]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no line is <end>"),
        ("a\nkite\n", "no line is <end>"),
        ("<end>\n<unk>\na\n\nkite\n", "line 4 is empty"),
        ("<end>\n<unk>\na\n\n", "line 4 is empty"),
        ("<end>\n<unk>\na\nkite\na\n", "'a' stands on lines 3 and 5"),
        ("<end>\n<unk>\n<end>\n", "'<end>' stands on lines 1 and 3"),
    ],
)
def test_load_refuses_what_is_no_vocabulary(tmp_path, text, problem):
    path = tmp_path / "words.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"words\.txt is not a vocabulary: .*{problem}"):
        Vocabulary.load(path)


def test_load_names_an_absent_file(tmp_path):
    with pytest.raises(UserError, match=r"absent\.txt cannot be read"):
        Vocabulary.load(tmp_path / "absent.txt")


@pytest.mark.parametrize("words", [("a", "b"), ("<end>", "<unk>", ""), ("<end>", "<unk>", "a\nb")])
def test_constructor_refuses_what_is_no_vocabulary(words):
    with pytest.raises(UserError, match="no vocabulary"):
        Vocabulary(words)
