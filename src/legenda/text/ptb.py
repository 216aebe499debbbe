"""The Penn Treebank tokenizer that COCO scores are computed with, in pure Python.

The reference is what pycocoevalcap runs: PTBTokenizer of Stanford CoreNLP 3.4.1 with -preserveLines -lowerCase, then
the removal of a list of punctuation tokens. The rules of ptb_tables.toml, a pattern and a conversion for each kind of
token, reproduce its output on all captions of COCO, single characters of every kind, short words followed by a full
stop, and random strings. At each position the rule with the longest match applies, the first of equal length. Most
punctuation is removed in the end, so a rule may drop its token at once.
"""

import functools
import re
import tomllib
from collections.abc import Callable
from importlib.resources import files

_TABLES = tomllib.loads(files("legenda.text").joinpath("ptb_tables.toml").read_text(encoding="utf-8"))
_WORDS: dict[str, str] = _TABLES["words"]
_CONTRACTIONS: dict[str, str] = _TABLES["contractions"]
_BRACKETS: dict[str, str] = _TABLES["brackets"]
_REWRITTEN = _BRACKETS | _TABLES["rewritten"]
_PLAIN_QUOTES = {ord(quote): plain for plain, quotes in _TABLES["plain_quotes"].items() for quote in quotes}


def _any_of(words: str) -> str:
    return "(?:" + "|".join(map(re.escape, words.split())).replace("'", "{apostrophe}") + ")"


_PARTS = {
    **_TABLES["characters"],
    **{name: _any_of(words) for name, words in _WORDS.items()},
    "rewritten": re.escape("".join(key for key in _REWRITTEN if len(key) == 1)),
    **_TABLES["parts"],
}


def _expand(pattern: str) -> str:
    """Return a pattern with each {name} replaced by the part of that name."""
    return re.sub(r"\{([a-z_]+)\}", lambda part: _expand(_PARTS[part[1]]), pattern)


_CHARACTER, _DIGIT = _expand("{character}"), _expand("{digit}")


def _unbroken(token: str) -> str:
    """Return one token whose spaces become U+00A0."""
    return re.sub("[ \t]", "\u00a0", token.lower())


def _split_contraction(token: str) -> str:
    """Return a word in lower case; words such as "cannot" become two tokens, separated by a space."""
    token = token.lower()
    return _CONTRACTIONS.get(token, token).replace("\u00ad", "")


def _quotes(token: str) -> str:
    plain = token.translate(_PLAIN_QUOTES)
    return "" if plain in ("'", "''", "`", "``") else plain


_CONVERSIONS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "drop": lambda _: "",
    "keep": lambda token: token.lower().replace("\u00ad", ""),
    "split_contraction": _split_contraction,
    "rewrite": lambda token: _REWRITTEN[token.lower()],
    "straight": lambda token: token.lower().replace("&apos;", "'").translate(_PLAIN_QUOTES),
    "ampersand": lambda token: token.lower().replace("&amp;", "&"),
    "stop": lambda token: f"{token.lower()}.",
    "unbroken": _unbroken,
    "bracketed": lambda token: re.sub(r"[()]", lambda bracket: _BRACKETS[bracket[0]], _unbroken(token)),
    "quotes": _quotes,
    "run": lambda token: token if len(token) > 1 else "",
}

_RULES = [
    (kinds, _expand(pattern), _CONVERSIONS[name], tuple(map(_expand, ahead)))
    for kinds, pattern, name, *ahead in _TABLES["tokens"]["rules"]
]
"""The kinds of first characters, the pattern and the conversion of each kind of token, and what lies ahead of it."""

# Fast paths: most captions consist of plain words, commas and a full stop; most other words are delimited by spaces.
_ALL_PLAIN = re.compile(r"([A-Za-z ,]*[A-Za-z])[ ,]*+\.? *").fullmatch
_DELIMITED = re.compile(
    r"(?:[ \t]\s*)?([A-Za-z]+(?:-[A-Za-z]+)*|[0-9]+(?=[ \t][A-Za-z]))('s)?(?=[ \t]|,(?!\S)|(\.?)\s*\Z)"
).match
_GAP = re.compile(r"[ \t]\s*").match
_MAY_KEEP_FULL_STOP = frozenset(
    f"{_WORDS['ending']} {_WORDS['states']} {_WORDS['titles']} mfg mtg pte ptes pty ptys ppte pptes ppty pptys".split()
) | frozenset("abcdefghijklmnopqrstuvwxyz")


_Rule = tuple[Callable[[str, int], re.Match[str] | None], Callable[[str], str], tuple[str, ...]]


@functools.cache
def _rules(kind: str) -> list[_Rule]:
    """Return the rules for tokens that begin with one kind of character."""
    return [(_compiled(pattern).match, convert, ahead) for kinds, pattern, convert, ahead in _RULES if kind in kinds]


class _Ahead:
    """Whether a rule can match, by what lies ahead; every part of a line is searched once, since positions ascend."""

    def __init__(self, line: str, part: str, barrier: str) -> None:
        self._line, self._part, self._barrier = line, _compiled(part).search, _compiled(barrier).search
        self._next_part = self._next_barrier = -1

    def can_match(self, position: int) -> bool:
        """Return whether the part of every match comes before the barrier."""
        if self._next_part < position:
            part = self._part(self._line, position)
            self._next_part = part.start() if part else len(self._line) + 1
        if self._next_barrier <= position:
            part = self._barrier(self._line, position + 1)
            self._next_barrier = part.start() if part else len(self._line)
        return self._next_part <= self._next_barrier


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


@functools.lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    if character in "'\u0092\u2019":
        return "q"
    if character == "&":
        return "&"
    if _compiled(_CHARACTER).match(character):
        return "l"
    return "d" if _compiled(_DIGIT).match(character) else "s"


def ptb_tokenize(caption: str) -> list[str]:
    """Return the tokens of one caption, in lower case and without punctuation, as in COCO's evaluation.

    A token contains U+00A0 where the reference keeps a space inside it ("3 1/2" is one token), so join and split tokens
    at " " only. Brackets become "-lrb-", "-rrb-" and so on. A line feed is a space; the caption ends at any other line
    break, since the reference takes what follows for another caption.

    Source: pycocoevalcap 1.2, `PTBTokenizer`, applied to each caption separately (in a file, the first word of the next
    caption affects whether a final "K." keeps its full stop).
    """
    if plain := _ALL_PLAIN(caption):
        words = plain[1].lower().replace(",", " ").split()
        if words[-1] not in _MAY_KEEP_FULL_STOP and _CONTRACTIONS.keys().isdisjoint(words):
            return words
    line = re.split("[\r\v\f\u2028\u2029]", caption, maxsplit=1)[0].replace("\n", " ")
    pieces = []
    ahead: dict[tuple[str, ...], _Ahead] = {}
    position = 0
    while position < len(line):
        word = _DELIMITED(line, position)
        if word and not (word[3] and word[1].lower() in _MAY_KEEP_FULL_STOP):
            pieces += [word[1].lower(), word[2]] if word[2] else [_split_contraction(word[1])]
            position = word.end()
        else:
            piece, position = _match_longest(line, position, ahead)
            pieces.append(piece)
    tokens = " ".join(filter(None, pieces)).rstrip()
    return tokens.split(" ") if tokens else []


def _match_longest(line: str, position: int, ahead: dict[tuple[str, ...], _Ahead]) -> tuple[str, int]:
    """Return the token at a position of the line, "" for spaces and dropped characters, and where it ends."""
    if gap := _GAP(line, position):
        return "", gap.end()
    token, end, longest, convert = "", position, position, _CONVERSIONS["drop"]
    for match, convert_match, needed in _rules(_kind(line[position])):
        if needed:
            if needed not in ahead:
                ahead[needed] = _Ahead(line, *needed)
            if not ahead[needed].can_match(position):
                continue
        part = match(line, position)
        if part and part.end() > longest:
            group = part.lastindex or 0
            token, end, longest, convert = part[group], part.end(group), part.end(), convert_match
    return convert(token), end
