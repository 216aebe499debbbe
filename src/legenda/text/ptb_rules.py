"""The rules of the Penn Treebank tokenizer: character classes, abbreviations, and a pattern for each kind of token.

The reference is Stanford CoreNLP 3.4.1 as pycocoevalcap runs it; see `legenda.text.ptb`. Most punctuation is removed in
the end, so a rule may drop its token at once.
"""

import re
from collections.abc import Callable

# Characters beyond ASCII, in the classes of the reference (Unicode 6). Letters are the alphabetic characters of the
# basic plane, and some marks; characters in no class, such as emoji, are dropped.
_NOT_LETTERS = (  # numeric, so that \w holds them
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u09f4-\u09f9\u0b72-\u0b77\u0bf0-\u0bf2\u0c78-\u0c7e\u0d58-\u0d5e\u0d70-\u0d78"
    "\u0f2a-\u0f33\u1369-\u137c\u16ee-\u16f0\u17f0-\u17f9\u19da\u2070\u2074-\u2079\u2080-\u2089\u2150-\u2182"
    "\u2185-\u2189\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u2cfd\u3007\u3021-\u3029\u3038-\u303a\u3192-\u3195"
    "\u3220-\u3229\u3248-\u324f\u3251-\u325f\u3280-\u3289\u32b1-\u32bf\ua6e6-\ua6ef\ua830-\ua835"
    # letters that are newer than the reference
    "\u037f\u0528-\u052f\u0560\u0588\u05ef\u0860-\u0887\u0889-\u088e\u08a1\u08ad-\u08c9\u0978\u0980\u09fc\u0af9\u0c34"
    "\u0c5a-\u0c5d\u0c80\u0cdd\u0d04\u0d54-\u0d56\u0d5f\u0e86\u0e89\u0e8c\u0e8e-\u0e93\u0e98\u0ea0\u0ea8\u0ea9\u0eac"
    "\u13f5-\u13fd\u16f1-\u16f8\u170d\u171f\u1878\u191d\u191e\u19b0-\u19c0\u19c8\u19c9\u1b4c\u1c80-\u1cbf\u1cf2\u1cf3"
    "\u1cfa\u2c2f\u2c5f\u312e\u312f\u31bb-\u31bf\u4db6-\u4dbf\u9fcd-\u9fff\ua698-\ua69d\ua78f\ua794-\ua79f"
    "\ua7ab-\ua7f7\ua8fd\ua8fe\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa7e\uaa7f\uab30-\uab5a\uab5c-\uab69"
    "\uab70-\uabbf"
    "\U00010000-\U0010ffff"
)
_MARKS = (
    "\u00ad\u02c2-\u02c5\u02d2-\u02df\u02e5-\u02eb\u02ed\u02ef-\u036f\u0375\u0378\u0379\u0384\u0385\u03f6"
    "\u0483-\u0487\u055a-\u055f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0615-\u061a\u064b-\u065e\u0670"
    "\u06d6-\u06e4\u06e7-\u06ed\u06fd\u06fe\u070f\u0711\u0730-\u074c\u07a6-\u07b0\u07eb-\u07f3\u0900-\u0903\u093c"
    "\u093e-\u094e\u0951-\u0955\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09cd\u09d7\u09e2\u09e3\u0a01-\u0a03"
    "\u0a3c-\u0a4f\u0a81-\u0a83\u0abc\u0abe-\u0acf\u0b82\u0bbe-\u0bcd\u0c01-\u0c03\u0c3e-\u0c56\u0d3e-\u0d48\u0e31"
    "\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u1885\u1886"
)
_SIGNS = (  # one token each
    "#%&+/<=>@\\\\^|~"
    "\u00a1\u00a5-\u00a9\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bf\u00d7\u00f7\u037e\u0387\u0589\u05be\u05c0\u05c3"
    "\u05c6\u05f3-\u0603\u0606-\u060c\u0614\u061b\u061e\u061f\u066a\u066d\u06d4\u0700-\u070d\u07f6-\u07f8\u0964\u0965"
    "\u0e3f\u0e4f\u1fbd\u2016\u2017\u2020-\u2023\u2030-\u2038\u203b\u203e-\u2042\u2044\u207a-\u207e\u208a-\u208e\u20a4"
    "\u2100\u2101\u2103-\u2106\u2108\u2109\u2114\u2116-\u2118\u211e-\u2123\u2125\u2127\u2129\u212e\u213a\u213b"
    "\u2140-\u2144\u214a-\u214d\u214f\u2155-\u215e\u2190-\u2bff\u3001\u3002\u3012\u30fb\uff01-\uff0f\uff1a-\uff20"
    "\uff3b-\uff40\uff5b-\uff65\uffe0\uffe1\uffe5\uffe6"
)
_QUOTES = "`\u0091-\u0094\u00ab\u00bb\u2018-\u201f\u2039\u203a"
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


ENDING_ABBREVIATIONS = (  # abbreviations that may end a sentence
    "al ala apr ariz assn aug bancorp bhd bldg blvd bros calif co colo conn corp cos ct dak dec ed.d esq est etc ext "
    "feb fla fri ga inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb nev nov oct okla "
    "penn ph.d plc rd rt sep sept seq sq sr sys tel tenn thu thurs tue tues univ va vt wed wis wisc wyo"
)
STATES = "ark az del ill la mass miss ore pa tex wash"  # the same, only with a capital letter
_LIMITED = "[Pp]p?t[ye]s?"
TITLES = (  # abbreviations that do not end one
    "adj adm adv alex assoc asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs elec ens ft gen "
    "gov govs hon insp invt jos lieut lt maj messrs mlle mme mr mrs ms msgr mt natl pfc ph pres prof profs pvt rep "
    "reps rev sen sens sfc sgt spc st ste supt supts vs wm"
)
_BEFORE_NUMBERS = "art ca fig figs no nos op pp prop"
_FULL_STOP = rf"(?:(?i:{_any_of(ENDING_ABBREVIATIONS)})|(?=[A-Z])(?i:{_any_of(STATES)})|{_LIMITED})"
_STARTERS = (  # before these words, an initial ends its sentence and loses its full stop
    "a about according additionally after an as at but earlier he her here however if in it last many more now once "
    "one other our she since so some such that the their then there these they this we what when while yet you"
)
_ELISIONS = "dunkin' somethin' ol' nor'easter c'mon e'er s'mores ev'ry li'l nat'l o'o cap'n c'est 'em 'till 'til 'cause"
_EXTENSIONS = (
    "bat bmp c cgi class cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php pl png ppt ps py "
    "sql tar txt wav x xml zip"
)
CONTRACTIONS = {
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
    "\u0080": "$",
    "\u00a4": "$",
    "\u20a0": "$",
    "\u20ac": "$",
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
_PLAIN_QUOTES = {
    ord(quote): plain
    for quotes, plain in (
        ("\u0091\u2018\u201b\u2039", "`"),
        ("\u0092\u2019\u203a", "'"),
        ("\u0093\u201c\u00ab", "``"),
        ("\u0094\u201d\u00bb", "''"),
    )
    for quote in quotes
}


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
    ("lq&", rf"(?i:{_any_of(_ELISIONS)}|{_APOSTROPHE}n{_APOSTROPHE}?|[ldj]{_APOSTROPHE}|cont{_APOSTROPHE}d\.)", _keep),
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
    ("l", rf"([A-Za-z])\.{_BLANK}+(?:(?=[A-Z])(?i:{_any_of(_STARTERS)})|{_TAG}){_BLANK}", _keep),
    ("l", rf"({_FULL_STOP}\.)..", _keep),
    ("l", rf"({_FULL_STOP})\.(?=.?\Z)", _stop),  # the full stop is matched again
    ("l", rf"(?i:{_any_of(TITLES)})\.|[Mm][ft]g\.", _keep),
    ("l", rf"((?i:{_any_of(_BEFORE_NUMBERS)})\.){_BLANK}?{DIGIT}", _keep),
    ("l", rf"(?:{_INITIALS}|[A-Za-z])\.", _keep),
    ("ld", rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*(?:-(?:{_INITIALS}\.|[A-Za-z0-9\u00ad]+))+", _keep),
    ("ld&", rf"({_MORE}+(?:\.{_MORE}+)*\.(?i:{_any_of(_EXTENSIONS)}))(?:[.?!,]|{_BLANK})", str.lower),
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
