"""The rules of the Penn Treebank tokenizer, from ptb_tables.toml: a pattern and a conversion for each kind of token.

The reference is Stanford CoreNLP 3.4.1 as pycocoevalcap runs it; see `legenda.text.ptb`. Most punctuation is removed in
the end, so a rule may drop its token at once.
"""

import re
import tomllib
from collections.abc import Callable
from importlib.resources import files

_TABLES = tomllib.loads(files("legenda.text").joinpath("ptb_tables.toml").read_text(encoding="utf-8"))
_WORDS: dict[str, str] = _TABLES["words"]
TITLES = _WORDS["titles"]
ENDING_ABBREVIATIONS = _WORDS["ending"]
STATES = _WORDS["states"]
CONTRACTIONS: dict[str, str] = _TABLES["contractions"]
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


CHARACTER, DIGIT = _expand("{character}"), _expand("{digit}")


def drop(_: str) -> str:
    """Return no token."""
    return ""


def _keep(token: str) -> str:
    return token.lower().replace("\u00ad", "")


def split_contraction(token: str) -> str:
    """Return a word in lower case; words such as "cannot" become two tokens, separated by a space."""
    token = token.lower()
    return CONTRACTIONS.get(token, token).replace("\u00ad", "")


def _rewrite(token: str) -> str:
    return _REWRITTEN[token.lower()]


def _straight(token: str) -> str:
    return token.lower().replace("&apos;", "'").translate(_PLAIN_QUOTES)


def _ampersand(token: str) -> str:
    return token.lower().replace("&amp;", "&")


def _stop(token: str) -> str:
    return f"{token.lower()}."


def _unbroken(token: str) -> str:
    """Return one token whose spaces become U+00A0."""
    return re.sub("[ \t]", "\u00a0", token.lower())


def _bracketed(token: str) -> str:
    return re.sub(r"[()]", lambda bracket: _BRACKETS[bracket[0]], _unbroken(token))


def _quotes(token: str) -> str:
    plain = token.translate(_PLAIN_QUOTES)
    return "" if plain in ("'", "''", "`", "``") else plain


def _run(token: str) -> str:
    return token if len(token) > 1 else ""


_CONVERSIONS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "drop": drop,
    "keep": _keep,
    "split_contraction": split_contraction,
    "rewrite": _rewrite,
    "straight": _straight,
    "ampersand": _ampersand,
    "stop": _stop,
    "unbroken": _unbroken,
    "bracketed": _bracketed,
    "quotes": _quotes,
    "run": _run,
}

RULES = [
    (kinds, _expand(pattern), _CONVERSIONS[name], tuple(map(_expand, ahead)))
    for kinds, pattern, name, *ahead in _TABLES["tokens"]["rules"]
]
"""The kinds of first characters, the pattern and the conversion of each kind of token, and what lies ahead of it."""
