"""The Penn Treebank tokenizer that COCO scores are computed with, in pure Python.

The reference is what pycocoevalcap runs: PTBTokenizer of Stanford CoreNLP 3.4.1 with -preserveLines -lowerCase, then
the removal of a list of punctuation tokens. The rules below are our own, fitted to the answers of that program on all
captions of COCO's val2014 and on some six hundred tricky ones; beyond what those show (a rare abbreviation or symbol)
they are a best guess. Since most punctuation is removed in the end, they say what is kept and drop the rest at once.
"""

import re
from collections.abc import Callable

_LETTERS = (  # Latin, combining marks, Greek to Thai, kana, ideographs, Hangul, full-width forms
    "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0300-\u1fff"
    "\u3005\u3040-\u31ff\u3400-\ud7ff\uf900-\ufb06\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc"
)
_LETTER = f"[{_LETTERS}]"
_WORD = f"[{_LETTERS}0-9]+"
_COMPOUND = f"{_WORD}(?:[-_]{_WORD})*"
_END = f"(?![{_LETTERS}0-9])"
_APOSTROPHE = "['\u2019]"
_SIGNS = (
    "#%&*+/<=>@\\\\^|~\u00a1\u00a7\u00a9\u00ae\u00b0\u00b1\u00d7\u00f7\u201e\u2020-\u2022\u2030-\u2033\u2116"
    "\u2190-\u2bff\u3001\u3002\uff0c"
)


def _any_of(words: str) -> str:
    return "(?:" + "|".join(map(re.escape, words.split())).replace("'", _APOSTROPHE) + ")"


_ABBREVIATIONS = _any_of(
    # names
    "mr mrs ms dr drs prof profs sen sens rep reps gov govs gen col lt lieut maj capt cmdr comdr sgt cpl pvt pfc spc "
    "adm brig rev hon pres supt det atty attys messrs st ste mt ave jr sr esq bros blvd rd "
    # companies and institutions
    "inc co cos corp ltd plc dept assn univ intl bancorp "
    # months and days
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri "
    # states
    "ala ariz calif colo conn ct dak fla ga ind kan kans ky md mich minn mo mont neb nev okla penn tenn va vt wis wisc "
    "wyo "
    # the rest
    "etc al cf vs est ft eq bldg ph.d ed.d"
)
_CAPITAL_ABBREVIATIONS = _any_of("Ark Az Del Ill La Mass Miss Ore Pa Tex Wash")  # states; something else in lower case
_NUMBERED_ABBREVIATIONS = _any_of("no nos fig figs")
_APOSTROPHE_WORDS = _any_of("o'clock dunkin' somethin' ol' 'em 'n' cap'n c'mon s'mores ev'ry li'l nat'l")
_SENTENCE_STARTERS = _any_of(  # an initial in front of them ends its sentence and loses its full stop
    "A After An As At But He Her Here However If In It Many More Now Once One Other Our She Since So Some Such That "
    "The Their Then There These They This We What When While Yet You"
)

_CONTRACTIONS = {
    "cannot": "can not",
    "gonna": "gon na",
    "gotta": "got ta",
    "wanna": "wan na",
    "lemme": "lem me",
    "gimme": "gim me",
}
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_REWRITTEN = _BRACKETS | {
    "\u00a3": "#",
    "\u20ac": "$",
    "\u0080": "$",
    "\u00a2": "cents",
    "\u00bc": "1/4",
    "\u00bd": "1/2",
    "\u00be": "3/4",
    "\u2153": "1/3",
    "\u2154": "2/3",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
}


def _drop(_: str) -> str:
    return ""


def _keep(token: str) -> str:
    return token.lower()


def _word(token: str) -> str:
    token = token.lower()
    return _CONTRACTIONS.get(token, token)


def _straight(token: str) -> str:
    return token.lower().replace("\u2019", "'")


def _apart(token: str) -> str:
    """The two halves of 'tis and 'twas."""
    token = _straight(token)
    return f"{token[:2]} {token[2:]}"


def _unbroken(token: str) -> str:
    """One token in spite of its spaces, which become U+00A0."""
    return re.sub(r"\s", "\u00a0", token.lower())


def _bracketed(token: str) -> str:
    return re.sub(r"[()]", lambda bracket: _BRACKETS[bracket[0]], _unbroken(token))


# Tried in this order at every place of the caption, with what becomes of the text that matches.
_RULES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (r"\s+", _drop),
    (r"[A-Za-z]+(?=[\s,]|\Z)", _word),  # most of all words, without a try of the rest
    # numbers
    (r"\(\d{3}\)\s?\d{3}[- ]\d{4}", _bracketed),  # a telephone
    (rf"\d{{1,2}}/\d{{1,2}}/\d{{1,4}}{_END}", _keep),  # a date
    (rf"(?:\d{{1,4}}[- ])?\d{{1,4}}/\d{{1,4}}{_END}", _unbroken),  # 3 1/2
    (r"[-+]?\d*(?:[.:,]\d+)+", _keep),  # 10:30, 1,000
    (r"[-+]\d+", _keep),
    (r"(?:US|HK|NZ|[ACMS])?\$", _keep),
    # full stops inside a token
    (r"(?:https?://|www\.)[^\s\"<>()]*[^\s\"<>().,;:!?']", _keep),
    (r"(?:mailto:)?[\w.+-]+@[\w-]+(?:\.[\w-]+)*", _keep),
    (rf"{_LETTER}(?:\.{_LETTER})+(?:\.(?:-{_COMPOUND})?|{_END})", _keep),  # t.v., u.s.-made, s.u.v
    (rf"(?i:{_ABBREVIATIONS})\.", _keep),
    (rf"{_CAPITAL_ABBREVIATIONS}\.", _keep),
    (rf"(?i:{_NUMBERED_ABBREVIATIONS})\.(?=\s?\d)", _keep),
    (rf"{_LETTER}\.(?!{_LETTER}|\s+{_SENTENCE_STARTERS}\s)", _keep),  # an initial
    (rf"{_LETTER}+(?:\.{_LETTER}+)+", _keep),  # foo.com, and a sentence that begins without a space
    (rf"{_WORD}\.(?=[,;:])", _keep),
    # apostrophes inside a token, and tokens that begin with one
    (rf"(?i:{_APOSTROPHE_WORDS}){_END}", _keep),
    (rf"(?i:{_APOSTROPHE}t(?:is|was)){_END}", _apart),
    (rf"{_APOSTROPHE}\d0s{_END}", _keep),
    (rf"(?i:{_WORD}(?=n{_APOSTROPHE}t{_END}))", _keep),  # the did of didn't
    (rf"(?i:n{_APOSTROPHE}t){_END}", _straight),
    (rf"{_APOSTROPHE}(?:[sdmnSDM]|re|ve|ll){_END}", _straight),
    (rf"[Yy]{_APOSTROPHE}(?=all{_END})", _straight),
    (rf"[cdljA-HJ-XZ]{_APOSTROPHE}{_LETTER}{{2,}}(?:-{_WORD})*", _keep),  # d'arc, o'connor
    (rf"{_LETTER}*[aeiouyAEIOUY]{_APOSTROPHE}[aeiou]{_LETTER}*", _keep),  # graffiti'ed
    # other words
    (r"[A-Z]+(?:&[A-Z]+)+", _keep),  # at&t
    (rf"{_COMPOUND}(?:/{_COMPOUND})+", _keep),
    (r"C\+\+", _keep),
    (_COMPOUND, _word),
    # signs
    (r"<(?:!--[^>]*--|/?[A-Za-z][^<>]*)>", _unbroken),  # a tag of a web page
    (r"&(?:amp|lt|gt);", _REWRITTEN.__getitem__),
    (r"&(?:quot|apos);", _drop),
    (r"&#\d+;", _keep),
    (rf"[@#]{_LETTER}[{_LETTERS}0-9_]*(?<!_)", _keep),
    (rf"[:;=]{_APOSTROPHE}?[-o*]?[DP]{_END}|\^_\^", _keep),  # faces
    (rf"[:;=](?:{_APOSTROPHE}|[-o*])[()]", _bracketed),
    (r"-[LR][RSC]B-", _keep),
    (r"[!?]{2,}|-{5,}|_+", _keep),
    (f"[{re.escape(''.join(key for key in _REWRITTEN if len(key) == 1))}]", _REWRITTEN.__getitem__),
    (f"[{_SIGNS}]", _keep),
    (r".", _drop),
)
_TOKEN = re.compile("|".join(f"({pattern})" for pattern, _ in _RULES), re.DOTALL)
_TREATMENTS = (_drop, *(treatment for _, treatment in _RULES))


def ptb_tokenize(caption: str) -> list[str]:
    """The tokens of one caption, in lower case and without punctuation, as COCO's evaluation sees them.

    A token may hold U+00A0 where the reference keeps a space inside it ("3 1/2" is one token), so join and split with
    " " alone. Brackets stay, as "-lrb-" and the like. A line feed is a space; at any other line break the caption ends,
    since the reference gives what follows to the next one.

    Source: pycocoevalcap 1.2, `PTBTokenizer`, on each caption alone (in a file the reference lets the first word of the
    next caption decide whether a final "K." keeps its full stop).
    """
    line = re.split("[\r\v\f\u2028\u2029]", caption, maxsplit=1)[0]
    pieces = [_TREATMENTS[match.lastindex or 0](match[0]) for match in _TOKEN.finditer(line)]
    return " ".join(filter(None, pieces)).split(" ") if any(pieces) else []
