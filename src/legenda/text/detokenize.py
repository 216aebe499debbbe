"""Tokens, as the Moses tokenizer leaves them, back to running text."""

import html
import re
from collections.abc import Sequence

_CLOSING = re.compile(r"[,.?!:;%}\])»]+|\.\.\.")
_OPENING = re.compile(r"[(\[{¿¡$£#«]+")
_CLITIC = re.compile(r"['’][^\W\d_]+")
_HYPHEN = re.compile(r" (?:@-@|##AT##-##AT##) ")
_ESCAPED = {"&bar;": "|", "&bra;": "[", "&ket;": "]"}


def detokenize(tokens: Sequence[str]) -> str:
    """Running text of tokens in English, German or another language with spaces between its words.

    Full stops, commas and closing brackets join the word before them, opening brackets the one after; straight quotes
    do both in turn; "'s" and its like join the word before. Moses' escapes ("&apos;", "@-@") are undone. What cannot be
    told, such as the space in "3 %", comes out as English has it.
    """
    text = _HYPHEN.sub("-", f" {' '.join(tokens)} ")
    for escaped, plain in _ESCAPED.items():
        text = text.replace(escaped, plain)
    pieces: list[str] = []
    glued, quoted = True, {"'": False, '"': False}
    for token in html.unescape(text).split():
        if token in quoted:
            before = quoted[token]  # a closing quote joins what is before it, an opening one what comes after
            quoted[token] = not before
            pieces.append(token if before or glued else f" {token}")
            glued = not before
        else:
            joins = glued or _CLOSING.fullmatch(token) or _CLITIC.fullmatch(token)
            pieces.append(token if joins else f" {token}")
            glued = _OPENING.fullmatch(token) is not None
    return "".join(pieces)
