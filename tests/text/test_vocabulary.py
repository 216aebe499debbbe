"""Vocabularies of captions, questions and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.text import AnswerVocabulary, QuestionVocabulary, Vocabulary

CAPTIONS = [["a", "red", "kite"], ["a", "kite"], ["a", "blue", "boat"], ["blue", "kite", "a"]]


def test_build_orders_by_frequency_then_alphabet():
    vocabulary = Vocabulary.build(CAPTIONS, min_count=1)
    assert vocabulary.tokens == ("<end>", "<unk>", "a", "kite", "blue", "boat", "red")
    assert (vocabulary.bos_token_id, vocabulary.eos_token_id, vocabulary.unk_token_id) == (0, 0, 1)
    assert len(vocabulary) == 7


@pytest.mark.parametrize(
    ("min_count", "tokens"), [(2, ("a", "kite", "blue")), (3, ("a", "kite")), (4, ("a",)), (5, ())]
)
def test_build_removes_rare_tokens(min_count, tokens):
    assert Vocabulary.build(CAPTIONS, min_count=min_count).tokens[2:] == tokens


def test_min_count_is_five_by_default():
    assert Vocabulary.build([["often"] * 5, ["seldom"] * 4]).tokens[2:] == ("often",)


def test_special_tokens_in_a_caption_are_unknown():
    vocabulary = Vocabulary.build([["<end>", "<unk>", "a"]], min_count=1)
    assert vocabulary.tokens == ("<end>", "<unk>", "a")
    assert vocabulary.encode(["<end>", "a", "<unk>", "b"]) == [1, 2, 1, 1]


def test_special_tokens_may_have_any_id():
    released = Vocabulary(("<unk>", "<pad>", "<begin>", "<end>", "a", "kite"))
    assert (released.bos_token_id, released.eos_token_id, released.unk_token_id) == (2, 3, 0)
    assert released.encode(["kite", "boat", "<begin>"]) == [5, 0, 0]
    assert released.decode([5, 0, 4, 3, 5]) == "kite <unk> a"


def test_encode_without_unk_token_raises():
    narrow = Vocabulary(("<end>", "a"))
    assert narrow.unk_token_id is None
    with pytest.raises(LegendaError, match="'kite' is not in the vocabulary"):
        narrow.encode(["a", "kite"])


@pytest.mark.parametrize(
    ("ids", "text"), [([], ""), ([0, 2], ""), ([2, 3, 0, 2], "a kite"), ([3, 1, 2], "kite <unk> a"), ([2], "a")]
)
def test_decode_stops_at_eos(ids, text):
    assert Vocabulary(("<end>", "<unk>", "a", "kite")).decode(ids) == text


@pytest.mark.parametrize("number", [-1, 4, 9487])
def test_decode_raises_for_ids_out_of_range(number):
    with pytest.raises(LegendaError, match=f"id {number} is out of range for a vocabulary of 4 tokens"):
        Vocabulary(("<end>", "<unk>", "a", "kite")).decode([2, number])


@given(st.lists(st.lists(st.sampled_from(["a", "kite", "2\u00a03/8", "n't", "é"]), max_size=6)))
def test_decode_inverts_encode(captions):
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
        ("<end>\n<unk>\na\nkite\na\n", "'a' is on lines 3 and 5"),
        ("<end>\n<unk>\n<end>\n", "'<end>' is on lines 1 and 3"),
    ],
)
def test_load_names_the_invalid_line(tmp_path, text, problem):
    path = tmp_path / "some.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LegendaError, match=rf"some\.txt is not a vocabulary: .*{problem}"):
        Vocabulary.load(path)


def test_load_names_a_missing_file(tmp_path):
    with pytest.raises(LegendaError, match=r"absent\.txt cannot be read"):
        Vocabulary.load(tmp_path / "absent.txt")


@pytest.mark.parametrize("tokens", [("a", "b"), ("<end>", "<unk>", ""), ("<end>", "<unk>", "a\nb"), ("<end>", "\x9b")])
def test_constructor_raises_for_invalid_tokens(tokens):
    with pytest.raises(LegendaError, match="are not a vocabulary"):
        Vocabulary(tokens)


def test_question_words_are_in_order_of_first_occurrence():
    questions = [["is", "it", "red"], ["red", "is", "what"], ["<unk>", "<pad>"]]
    vocabulary = QuestionVocabulary.build(questions)
    assert vocabulary.tokens == ("<pad>", "<unk>", "is", "it", "red", "what")
    assert QuestionVocabulary.build(questions, with_cls=True).tokens[:4] == ("<pad>", "<unk>", "<cls>", "is")
    assert vocabulary.encode(["what", "is", "blue", "<pad>"]) == [5, 2, 1, 1]


def test_question_vocabulary_save_and_load(tmp_path):
    vocabulary = QuestionVocabulary.build([["café", "日本"]])
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert QuestionVocabulary.load(tmp_path / "vocabulary.txt") == vocabulary


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("<end>\n<unk>\nred\n", "the first two words are not <pad> and <unk>"),
        ("<pad>\n<unk>\n\nred\n", "line 3 is empty"),
        ("<pad>\n<unk>\nred one\n", "line 3 contains white space"),
        ("<pad>\n<unk>\nred\nred\n", "'red' is on lines 3 and 4"),
    ],
)
def test_load_names_the_invalid_line_of_a_question_vocabulary(tmp_path, lines, problem):
    path = tmp_path / "vocabulary.txt"
    path.write_text(lines)
    with pytest.raises(LegendaError, match=f"vocabulary.txt is not a vocabulary of questions: {problem}"):
        QuestionVocabulary.load(path)


def test_answer_build_removes_rare_answers():
    answers = ["no"] * 3 + ["yes"] * 4 + [""] * 5 + ["2"]
    assert AnswerVocabulary.build(answers, min_count=4).tokens == ("yes", "")
    assert AnswerVocabulary.build(answers, min_count=1).tokens == ("no", "yes", "", "2")
    assert len(AnswerVocabulary.build(["yes"] * 9)) == 1
    with pytest.raises(LegendaError, match="there is no answer"):
        AnswerVocabulary.build(["yes"] * 8)


@pytest.mark.parametrize("answers", [("yes", "", "no"), ("", "yes"), ("yes", ""), ("",)])
def test_answer_vocabulary_save_and_load(tmp_path, answers):
    vocabulary = AnswerVocabulary(answers)
    vocabulary.save(tmp_path / "answers.txt")
    assert AnswerVocabulary.load(tmp_path / "answers.txt") == vocabulary
    assert [vocabulary.ids[answer] for answer in answers] == list(range(len(answers)))


@pytest.mark.parametrize(
    ("answers", "problem"), [(("a", "b", "a"), "'a' is on lines 1 and 3"), (("a", "b\nc"), "contains a line break")]
)
def test_answer_vocabulary_raises_for_invalid_answers(answers, problem):
    with pytest.raises(LegendaError, match=problem):
        AnswerVocabulary(answers)


def test_words_that_a_terminal_obeys_are_not_in_built_vocabularies():
    caption = ("a", "\x1b]0;title\x07", "b\x9b", "犬", "é")
    assert Vocabulary.build([caption], min_count=1).tokens == ("<end>", "<unk>", "a", "é", "犬")
    assert QuestionVocabulary.build([caption]).tokens == ("<pad>", "<unk>", "a", "犬", "é")


def test_half_of_a_surrogate_pair_is_no_word():
    with pytest.raises(LegendaError, match="entry of line 2 contains a control character or half of a surrogate pair"):
        Vocabulary(("<end>", "\ud800"))
    assert Vocabulary.build([["a", "\udfff"]], min_count=1).tokens == ("<end>", "<unk>", "a")
