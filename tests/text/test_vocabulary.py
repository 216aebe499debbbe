"""Vocabularies of captions, questions and answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import LegendaError
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary, encode_tokens, read_answers
from legenda.text import Vocabulary

CAPTIONS = [["a", "red", "kite"], ["a", "kite"], ["a", "blue", "boat"], ["blue", "kite", "a"]]


@pytest.mark.parametrize(
    ("min_count", "tokens"),
    [(1, ("a", "kite", "blue", "boat", "red")), (2, ("a", "kite", "blue")), (4, ("a",)), (5, ())],
)
def test_frequent_tokens_by_frequency_then_alphabet(min_count, tokens):
    vocabulary = Vocabulary.build(CAPTIONS, min_count=min_count)
    assert vocabulary.tokens == ("<end>", "<unk>", *tokens)
    assert (vocabulary.bos_token_id, vocabulary.eos_token_id, vocabulary.unk_token_id) == (0, 0, 1)


def test_special_tokens_in_a_caption_are_unknown_and_control_characters_are_no_words():
    caption = ["<end>", "<unk>", "a", "\x1b]0;title\x07", "b\x9b", "\udfff", "犬"]
    vocabulary = Vocabulary.build([caption], min_count=1)
    assert vocabulary.tokens == ("<end>", "<unk>", "a", "犬")
    assert vocabulary.encode(["<end>", "a", "<unk>", "b"]) == [1, 2, 1, 1]
    assert QuestionVocabulary.build([caption]).tokens == ("<pad>", "<unk>", "<end>", "a", "犬")


def test_an_empty_token_of_a_data_set_is_no_word():
    vocabulary = Vocabulary.build([["a", "", "dog"]], min_count=1)
    assert vocabulary.tokens == ("<end>", "<unk>", "a", "dog")
    assert vocabulary.encode(["a", ""]) == [2, 1]


@given(st.lists(st.lists(st.sampled_from(["a", "kite", "2\u00a03/8", "n't", "é"]), max_size=6)))
def test_decode_inverts_encode_and_stops_at_eos(captions):
    vocabulary = Vocabulary.build(captions, min_count=1)
    for caption in captions:
        assert vocabulary.decode([*vocabulary.encode(caption), vocabulary.eos_token_id, 2]) == " ".join(caption)


@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary(("<end>", "<unk>", "a", "2\u00a03/8", "x\u0085y", "crème")),
        Vocabulary(("<unk>", "<end>", " ", "  ", "\n", "\n ", "\\n", "\\", "\\\\n", "a\\b")),
        QuestionVocabulary.build([["café", "日本"]]),
        AnswerVocabulary(("yes", "", "no")),
        AnswerVocabulary(("",)),
    ],
)
def test_a_saved_vocabulary_is_loaded(tmp_path, vocabulary):
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert type(vocabulary).load(tmp_path / "vocabulary.txt") == vocabulary
    with pytest.raises(LegendaError):
        type(vocabulary).load(tmp_path / "absent.txt")


def test_files_of_other_programs_may_hold_backslashes(tmp_path):
    (tmp_path / "words.txt").write_text("<end>\n\\\na\\b\n:\\\n")
    assert Vocabulary.load(tmp_path / "words.txt").tokens == ("<end>", "\\", "a\\b", ":\\")


def test_each_token_is_one_word_on_one_line():
    vocabulary = Vocabulary(("<end>", "<unk>", "a", "2\u00a03/8", " ", "\n", "inch"))
    assert vocabulary.words([2, 3, 4, 5, 6, 0, 2]) == ("a", "2\u00a03/8", " ", " ", "inch")
    assert vocabulary.decode([2, 3, 6]) == "a 2\u00a03/8 inch"
    for token in ("\r", "\x1b", "\n\x07"):
        with pytest.raises(LegendaError):
            Vocabulary(("<end>", token))


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        (Vocabulary, "", "<end>"),
        (Vocabulary, "<end>\n<unk>\na\n\nkite\n", "line 4"),
        (Vocabulary, "<end>\n<unk>\na\nkite\na\n", "lines 3 and 5"),
        (QuestionVocabulary, "<end>\n<unk>\nred\n", "<pad>"),
        (QuestionVocabulary, "<pad>\n<unk>\nred\nred\n", "lines 3 and 4"),
    ],
)
def test_the_invalid_line_is_named(tmp_path, kind, content, problem):
    path = tmp_path / "some.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(LegendaError, match=rf"some\.txt.*{problem}"):
        kind.load(path)
    with pytest.raises(LegendaError):
        kind(tuple(content.removesuffix("\n").split("\n")))


def test_question_words_are_in_order_of_first_occurrence():
    questions = [["is", "it", "red"], ["red", "is", "what"], ["<unk>", "<pad>"]]
    vocabulary = QuestionVocabulary.build(questions)
    assert vocabulary.tokens == ("<pad>", "<unk>", "is", "it", "red", "what")
    assert QuestionVocabulary.build(questions, with_cls=True).tokens[:4] == ("<pad>", "<unk>", "<cls>", "is")
    assert encode_tokens([["what", "is", "blue"], ["it"]], vocabulary, 2).tolist() == [[5, 2], [3, 0]]


def test_frequent_answers_in_order_of_first_occurrence():
    answers = ["no"] * 3 + ["yes"] * 4 + [""] * 5 + ["2"]
    assert AnswerVocabulary.build(answers, min_count=4).tokens == ("yes", "")
    assert AnswerVocabulary.build(answers, min_count=1).tokens == ("no", "yes", "", "2")
    with pytest.raises(LegendaError):
        AnswerVocabulary.build(["yes"] * 8)


@pytest.mark.parametrize(
    "content", [["", "net", "bed"], {"net": 1, "": 0, "bed": 2}, [{"net": 1, "": 0, "bed": 2}, {"0": ""}]]
)
def test_answers_are_read_from_every_layout(tmp_path, content):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(content))
    assert read_answers(path).tokens == ("", "net", "bed")
