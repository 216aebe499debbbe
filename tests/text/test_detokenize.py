"""Tokens back to running text."""

import pytest

from legenda.text.detokenize import detokenize


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("A man , 42 , walks .", "A man, 42, walks."),
        ("( Really ? ) Yes !", "(Really?) Yes!"),
        ('He said : " Go away ! "', 'He said: "Go away!"'),
        ('" A " and " B " .', '"A" and "B".'),
        ("&quot; A &quot; &amp; b", '"A" & b'),
        ("The dog &apos;s well @-@ known [ bone ] ...", "The dog's well-known [bone]..."),
        ("don &apos;t", "don't"),
        ("well ##AT##-##AT## known", "well-known"),
        ("a @-@ b @-@ c", "a-b-c"),
        ("It costs $ 5 or # 1 .", "It costs $5 or #1."),
        ("Ein ' Wort ' fehlt .", "Ein 'Wort' fehlt."),
        ("Zwei junge weiße Männer", "Zwei junge weiße Männer"),
        ("&bar; &bra; x &ket;", "| [x]"),
        ("", ""),
    ],
)
def test_text_as_it_is_printed(tokens, text):
    assert detokenize(tokens.split()) == text
