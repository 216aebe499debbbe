"""Tokens of questions as MCAN's released code splits them."""

import pytest

from legenda.text.questions import tokenize_question


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
def test_tokenize_question_removes_punctuation(text, tokens):
    assert tokenize_question(text) == tokens
