"""Join tokens of the Moses tokenizer into text."""

import html
import re
from collections.abc import Sequence

_CLOSING = re.compile(r"[,.?!:;%}\])»]+|\.\.\.")
_OPENING = re.compile(r"[(\[{¿¡$£#«]+")
_CLITIC = re.compile(r"['’][^\W\d_]+")
_HYPHEN = re.compile(r" (?:@-@|##AT##-##AT##) ")
_ESCAPED = {"&bar;": "|", "&bra;": "[", "&ket;": "]"}


def detokenize(tokens: Sequence[str]) -> str:
    """Return the text of tokens in English, German or another language with spaces between words.

    Full stops, commas, closing brackets and clitics such as "'s" are attached to the previous word, opening brackets to
    the next one, and straight quotes alternately to the next and the previous one. Moses' escapes ("&apos;", "@-@") are
    reversed. Ambiguous spaces, such as that in "3 %", follow English rules.
    """
    text = _HYPHEN.sub("-", f" {' '.join(tokens)} ")
    for escaped, plain in _ESCAPED.items():
        text = text.replace(escaped, plain)
    pieces: list[str] = []
    glued, quoted = True, {"'": False, '"': False}
    for token in html.unescape(text).split():
        if token in quoted:
            before = quoted[token]  # a closing quote is attached to the previous word, an opening one to the next
            quoted[token] = not before
            pieces.append(token if before or glued else f" {token}")
            glued = not before
        else:
            joins = glued or _CLOSING.fullmatch(token) or _CLITIC.fullmatch(token)
            pieces.append(token if joins else f" {token}")
            glued = _OPENING.fullmatch(token) is not None
    return "".join(pieces)
