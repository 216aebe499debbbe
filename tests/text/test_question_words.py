"""Questions become words and ids as MCAN's code makes them, and answers keep their numbers."""

import pytest

from legenda.errors import UserError
from legenda.text.questions import AnswerVocabulary, QuestionVocabulary, tokenize_question


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("What's in the man's hand?", ["whats", "in", "the", "mans", "hand"]),
        ("Is this a t-shirt/top?", ["is", "this", "a", "t", "shirt", "top"]),
        ('How many (red) "dogs", #3: 1*2; yes!', ["how", "many", "red", "dogs", "3", "12", "yes"]),
        ("  \tU.S.A.\n", ["usa"]),
        ("?!", []),
        ("$5 & [6]", ["$5", "&", "[6]"]),
    ],
)
def test_marks_vanish_and_hyphens_split(text, tokens):
    assert tokenize_question(text) == tokens


def test_words_keep_the_order_in_which_they_are_first_seen():
    questions = [["is", "it", "red"], ["red", "is", "what"], ["<unk>", "<pad>"]]
    vocabulary = QuestionVocabulary.build(questions)
    assert vocabulary.words == ("<pad>", "<unk>", "is", "it", "red", "what")
    assert QuestionVocabulary.build(questions, with_cls=True).words[:4] == ("<pad>", "<unk>", "<cls>", "is")
    assert vocabulary.encode(["what", "is", "blue", "<pad>"]) == [5, 2, 1, 1]


def test_a_vocabulary_survives_its_file(tmp_path):
    vocabulary = QuestionVocabulary.build([["café", "日本"]])
    vocabulary.save(tmp_path / "vocabulary.txt")
    assert QuestionVocabulary.load(tmp_path / "vocabulary.txt") == vocabulary


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("<end>\n<unk>\nred\n", "the first two words are not <pad> and <unk>"),
        ("<pad>\n<unk>\n\nred\n", "line 3 is empty"),
        ("<pad>\n<unk>\nred one\n", "line 3 is empty or holds white space"),
        ("<pad>\n<unk>\nred\nred\n", "'red' stands on lines 3 and 4"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, lines, problem):
    path = tmp_path / "vocabulary.txt"
    path.write_text(lines)
    with pytest.raises(UserError, match=f"vocabulary.txt is no vocabulary of questions: {problem}"):
        QuestionVocabulary.load(path)


def test_answers_seen_more_often_than_asked_are_kept():
    told = ["no"] * 3 + ["yes"] * 4 + [""] * 5 + ["2"]
    assert AnswerVocabulary.build(told, more_than=3).answers == ("yes", "")
    assert AnswerVocabulary.build(told, more_than=0).answers == ("no", "yes", "", "2")
    assert len(AnswerVocabulary.build(["yes"] * 9)) == 1
    with pytest.raises(UserError, match="no answer to choose from"):
        AnswerVocabulary.build(["yes"] * 8)


@pytest.mark.parametrize("answers", [("yes", "", "no"), ("", "yes"), ("yes", ""), ("",)])
def test_an_empty_answer_survives_its_file(tmp_path, answers):
    vocabulary = AnswerVocabulary(answers)
    vocabulary.save(tmp_path / "answers.txt")
    assert AnswerVocabulary.load(tmp_path / "answers.txt") == vocabulary
    assert [vocabulary.ids[answer] for answer in answers] == list(range(len(answers)))


@pytest.mark.parametrize(
    ("answers", "problem"), [(("a", "b", "a"), "'a' is listed twice"), (("a", "b\nc"), "holds a line break")]
)
def test_answers_that_cannot_be_kept_apart_are_refused(answers, problem):
    with pytest.raises(UserError, match=problem):
        AnswerVocabulary(answers)
