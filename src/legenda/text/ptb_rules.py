"""The rules of the Penn Treebank tokenizer: character classes, abbreviations, and a pattern for each kind of token.

The reference is Stanford CoreNLP 3.4.1 as pycocoevalcap runs it; see `legenda.text.ptb`. Most punctuation is removed in
the end, so a rule may drop its token at once.
"""

import re
import tomllib
from collections.abc import Callable
from importlib.resources import files

_TABLES = tomllib.loads(files("legenda.text").joinpath("ptb_tables.toml").read_text(encoding="utf-8"))
_MARKS, _SIGNS, _QUOTES = (_TABLES["characters"][name] for name in ("marks", "signs", "quotes"))
_NOT_LETTERS = _TABLES["characters"]["numeric"] + _TABLES["characters"]["newer"]
_WORDS: dict[str, str] = _TABLES["words"]
TITLES = _WORDS["titles"]
ENDING_ABBREVIATIONS = _WORDS["ending"]
STATES = _WORDS["states"]
CONTRACTIONS: dict[str, str] = _TABLES["contractions"]
_BRACKETS: dict[str, str] = _TABLES["brackets"]
_REWRITTEN = _BRACKETS | _TABLES["rewritten"]
_PLAIN_QUOTES = {ord(quote): plain for plain, quotes in _TABLES["plain_quotes"].items() for quote in quotes}
_BLANK = r"[ \t\u00a0]"

_LETTER = rf"[^\W\d_{_NOT_LETTERS}]"
DIGIT = r"[^\D\u0de6-\u0def\ua9f0-\ua9f9\U00010000-\U0010ffff]"
_LETTER_OR_DIGIT = rf"[^\W_{_NOT_LETTERS}]"
_ENTITY = "&[aeiouAEIOU](?:acute|grave|uml);"
CHARACTER = rf"(?:{_LETTER}|[{_MARKS}]|{_ENTITY})"
_MORE = rf"(?:{_LETTER_OR_DIGIT}|[{_MARKS}]|{_ENTITY})"
_WORD = rf"{CHARACTER}{_MORE}*+(?:[.!?]{CHARACTER}{_MORE}*+)*+"
_APOSTROPHE = "(?:['\u0092\u2019]|&apos;)"
_MARK = f"(?:{_APOSTROPHE}|[`\u0091\u2018\u201b])"  # an apostrophe, or a quotation mark used as one
_SHORT_VERB = f"{_APOSTROPHE}(?i:[sdm]|re|ve|ll)"
_NOT = f"(?i:n{_MARK}t)"
_PART = rf"(?:[dDoOlL]{_MARK}{_LETTER_OR_DIGIT})?{_LETTER_OR_DIGIT}+"
_COMPOUND = rf"{_PART}(?:[-_\u058a\u2010\u2011]{_PART})*"
_PLAIN_PART = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_NUMBER = rf"(?:{DIGIT}*(?:[.:,\u00ad\u066b\u066c]{DIGIT}+)+|{DIGIT}+)"
_INITIALS = r"[A-Za-z](?:\.[A-Za-z])+"
_NAME = "[A-Za-z][A-Za-z0-9_:.-]*"
_ATTRIBUTE = rf"{_NAME}(?:{_BLANK}*={_BLANK}*(?:'[^']*'|\"[^\"]*\"))?"
_TAG = rf"<(?:[!?][A-Za-z-][^>]*|/{_NAME}{_BLANK}*|{_NAME}(?:{_BLANK}+{_ATTRIBUTE})*{_BLANK}*/?)>"
_ADDRESS = r'[^ \t"<>|(){}'  # the beginning of a negated character class


def _any_of(words: str) -> str:
    return "(?:" + "|".join(map(re.escape, words.split())).replace("'", _APOSTROPHE) + ")"


_ELISIONS = _any_of(_WORDS["elisions"])
_LIMITED = "[Pp]p?t[ye]s?"
_FULL_STOP = rf"(?:(?i:{_any_of(ENDING_ABBREVIATIONS)})|(?=[A-Z])(?i:{_any_of(STATES)})|{_LIMITED})"


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


# The kinds of first characters (l: letter, d: digit, q: apostrophe, &: ampersand, s: sign), the pattern, and the
# function that converts the match to a token. Where a pattern has a group, only the group is the token; the rest of the
# match counts for its length.
RULES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("s", _TAG, _unbroken),
    ("&", "&(?i:[mn]dash);|&(?:nbsp|quot|apos);", drop),
    ("&", "(?i:&(?:amp|lt|gt);)", _rewrite),
    ("&", "&(?:HT|TL|UR|LR|QC|QL|QR|odq|cdq|#[0-9]+);", _keep),
    # words and apostrophes
    ("l&", f"({_WORD}){_SHORT_VERB}", _keep),
    ("l", rf"([A-Za-z\u00ad]*[A-MO-Za-mo-z]\u00ad*){_NOT}", _keep),
    ("l&", _WORD, split_contraction),
    (
        "lq&",
        rf"(?i:{_any_of(_WORDS['elisions'])}|{_APOSTROPHE}n{_APOSTROPHE}?|[ldj]{_APOSTROPHE}|cont{_APOSTROPHE}d\.)",
        _keep,
    ),
    ("q&", f"{_APOSTROPHE}[2-9]0s", _keep),
    ("l", f"[A-HJ-XZn]{_MARK}{_LETTER}{{2,}}", _keep),
    ("l", f"{_LETTER}+[aeiouyAEIOUY]{_MARK}[aeiouA-Z]{_LETTER}*", _keep),
    ("l", f"([yY]{_APOSTROPHE}){_LETTER}", _keep),
    ("q", "(?i:(['\u0092\u2019]t)(?:is|was))", _straight),
    ("q&", f"({_SHORT_VERB})[^A-Za-z]", _straight),
    ("q", r"(')[A-Za-z][^ \t\u00a0]", drop),
    ("lq&", f"{_SHORT_VERB}|{_NOT}", _straight),
    # addresses
    ("l", rf"(?i:https?)://{_ADDRESS}]+{_ADDRESS}.!?,-]", str.lower),
    (
        "ldsq&",
        rf"(?:www\.(?:{_ADDRESS}.!?,]+\.)+[A-Za-z]{{2,4}}|(?:{_ADDRESS}`'.!?$,-_]+\.)+(?:com|net|org|edu))"
        r'(?:/[^ \t"<>|()]+' + _ADDRESS + ".!?,-])?",
        str.lower,
    ),
    (
        "lds&",
        rf"(?:<|&lt;)?[A-Za-z0-9]{_ADDRESS}\u00a0]*@(?:{_ADDRESS}.\u00a0]+\.)*{_ADDRESS}.\u00a0]+(?:>|&gt;)?",
        str.lower,
    ),
    ("s", f"@[A-Za-z_][A-Za-z_0-9]*|#{CHARACTER}+", str.lower),
    # numbers
    ("d", f"{DIGIT}{{1,2}}[-/]{DIGIT}{{1,2}}[-/]{DIGIT}{{2,4}}", _keep),
    ("lds", f"[-+]?{_NUMBER}", _keep),
    ("s", "[\u207a\u207b\u208a\u208b]?(?:[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+|[\u2080-\u2089]+)", _keep),
    ("d", rf"(?:{DIGIT}{{1,4}}[- \u00a0])?{DIGIT}{{1,4}}(?:\\?/|\u2044){DIGIT}{{1,4}}", _unbroken),  # 3 1/2
    (  # a telephone
        "ds",
        r"(?:\([0-9]{2,3}\)[ \u00a0]?|(?:\+\+?)?(?:[0-9]{2,4}[- \u00a0])?[0-9]{2,4}[- \u00a0/])"
        r"[0-9]{3,4}[- \u00a0]?[0-9]{3,5}",
        _bracketed,
    ),
    ("ls", r"[A-Z]*\$", _keep),
    # compounds
    ("ls", r"-(?i:[LR][RSC]B)-|(?i:c\.d\.s|pro-|anti-)|S(?:&|&amp;)(?:P-500|Ls)", _ampersand),
    ("q&", rf"({_APOSTROPHE}[0-9]{{2}}){_BLANK}", _keep),
    ("ld", _COMPOUND, split_contraction),
    ("l", "[A-Z]+(?:(?:[+&]|&amp;)[A-Z]+)+", _ampersand),
    ("ld", rf"{_PLAIN_PART}(?:\\?/{_PLAIN_PART}){{1,2}}", _keep),
    ("l", r"[cC]\+\+|[cCfF]#", _keep),
    # full stops inside and after a token
    ("l", rf"([A-Za-z])\.{_BLANK}+(?:(?=[A-Z])(?i:{_any_of(_WORDS['starters'])})|{_TAG}){_BLANK}", _keep),
    ("l", rf"({_FULL_STOP}\.)..", _keep),
    ("l", rf"({_FULL_STOP})\.(?=.?\Z)", _stop),  # the full stop is matched again
    ("l", rf"(?i:{_any_of(TITLES)})\.|[Mm][ft]g\.", _keep),
    ("l", rf"((?i:{_any_of(_WORDS['before_numbers'])})\.){_BLANK}?{DIGIT}", _keep),
    ("l", rf"(?:{_INITIALS}|[A-Za-z])\.", _keep),
    ("ld", rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*(?:-(?:{_INITIALS}\.|[A-Za-z0-9\u00ad]+))+", _keep),
    ("ld&", rf"({_MORE}+(?:\.{_MORE}+)*\.(?i:{_any_of(_WORDS['extensions'])}))(?:[.?!,]|{_BLANK})", str.lower),
    ("ld&", rf"((?:{_WORD}|{_COMPOUND})\.)[,;:\u3001\u037e]", _keep),
    # emoticons and signs
    ("s", r"([<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]])[^A-Za-z0-9]", _bracketed),
    ("lsq", r"[-^x=~<>']_[-^x=~<>']|\([-^x=~<>'][_.]?[-^x=~<>']\)", _bracketed),
    ("s", r"-{5,}|_+|##+|@@+|<<|>>|\*+|(?:\\\*){1,3}", _keep),
    ("s", r"-+|\.{3,5}|\.(?:[ \u00a0]\.){2,4}", drop),
    ("s", "[!?]+", _run),
    ("q", "''", drop),
    ("sq", f"[{_QUOTES}]{{1,2}}", _quotes),
    ("s&", f"[{re.escape(''.join(key for key in _REWRITTEN if len(key) == 1))}]", _rewrite),
    ("s&", f"[{_SIGNS}]", _keep),
    ("ldqs&", ".", drop),
)
