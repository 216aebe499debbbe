"""Tokens of questions and of referring expressions."""

_MARKS = str.maketrans("-/", "  ", ".,'!?\"()*#:;")


def tokenize_question(text: str) -> list[str]:
    """Return the words of a question as the released codes of MCAN and OpenVQA split them.

    Words are in lower case; hyphens and slashes become spaces, and other punctuation is removed.
    """
    return text.lower().translate(_RULE).split()


@dataclass(frozen=True)
class QuestionVocabulary:
    """The words of questions in the order of their ids: "<pad>", "<unk>", perhaps "<cls>", then words as first seen.

    Raises UserError when it does not begin so, or a word is empty, holds white space or comes twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if problem := _problem(self.words):
            raise UserError(
                f"These words are no vocabulary of questions: {problem}; use QuestionVocabulary.build to make one"
            )

    @classmethod
    def build(cls, questions: Iterable[Sequence[str]], *, with_cls: bool = False) -> Self:
        """Every word of tokenized questions in the order in which they are first seen.

        with_cls: whether the unused third word of OpenVQA is there, which MCAN's own code does not have.
        """
        specials = _SPECIALS if with_cls else _SPECIALS[:2]
        words = dict.fromkeys(word for question in questions for word in question if word not in _SPECIALS)
        return cls((*specials, *words))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote; UserError names the file and what is wrong."""
        hint = "name the vocabulary.txt of a run that learns questions"
        words = tuple(read_text(path, hint).removesuffix("\n").split("\n"))
        if problem := _problem(words):
            raise UserError(f"{path} is no vocabulary of questions: {problem}; {hint}")
        return cls(words)

    def save(self, path: str | Path) -> None:
        """Writes one word a line in UTF-8: a word stands on line id + 1."""
        write_text(path, "\n".join(self.words) + "\n")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token; a word that is not known, or looks like a special one, is "<unk>", id 1."""
        return [self._ids.get(token, 1) for token in tokens]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if word not in _SPECIALS}


def _problem(words: Sequence[str]) -> str | None:
    if tuple(words[:2]) != (PAD, UNKNOWN):
        return f"the first two words are not {PAD} and {UNKNOWN}"
    first: dict[str, int] = {}
    for line, word in enumerate(words, start=1):
        if word.split() != [word]:
            return f"line {line} is empty or holds white space"
        if first.setdefault(word, line) != line:
            return f"{word!r} stands on lines {first[word]} and {line}"
    return None


@dataclass(frozen=True)
class AnswerVocabulary:
    """The answers that a model chooses from, in the order of their numbers; one of them may be empty.

    Raises UserError when there is none, one comes twice or one holds a line break.
    """

    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.answers:
            raise UserError("There is no answer to choose from; give a list of answers or ask for rarer ones too")
        twice = next((answer for answer, count in Counter(self.answers).items() if count > 1), None)
        if twice is not None:
            raise UserError(f"The answer {twice!r} is listed twice; leave one of them out")
        broken = next((answer for answer in self.answers if "\n" in answer), None)
        if broken is not None:
            raise UserError(f"The answer {broken!r} holds a line break; give answers of one line")

    @classmethod
    def build(cls, answers: Iterable[str], *, more_than: int = 8) -> Self:
        """Those of normalised answers that occur more than `more_than` times, in the order of their first."""
        return cls(tuple(answer for answer, count in Counter(answers).items() if count > more_than))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote."""
        text = read_text(path, "name the answers.txt of a run that learns answers")
        try:
            return cls(tuple(text.removesuffix("\n").split("\n")))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Writes one answer a line in UTF-8: an answer stands on line number + 1."""
        write_text(path, "\n".join(self.answers) + "\n")

    def __len__(self) -> int:
        return len(self.answers)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each answer."""
        return {answer: number for number, answer in enumerate(self.answers)}
