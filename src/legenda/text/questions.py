"""Tokens of questions and of referring expressions."""

_PUNCTUATION = str.maketrans("-/", "  ", ".,'!?\"()*#:;")


def tokenize_question(text: str) -> list[str]:
    """Return the words of a question as the released codes of MCAN and OpenVQA split them.

    Words are in lower case; hyphens and slashes become spaces, and other punctuation is removed.
    """
    return text.lower().translate(_PUNCTUATION).split()
