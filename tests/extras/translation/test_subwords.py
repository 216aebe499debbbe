"""Text into pieces and back."""

import pytest

from legenda.errors import LegendaError
from legenda.extras.translation.subwords import BPETokenizer, SentencePieceTokenizer, load_subwords

pytest.importorskip("sentencepiece", reason="needs sentencepiece")

LINES = [f"Der {wer} {tut} über die {was}." for wer in ("Mann", "Hund") for tut in ("läuft", "springt") for was in "AB"]

# learned from: low x 5, lower x 2, newest x 6, widest x 3, as in Sennrich et al. (2016), Algorithm 1
MERGES = "#version: 0.2\ne s\nes t</w>\nl o\nlo w</w>\nn e\nne w\nnew est</w>\nlo w\n"


@pytest.fixture(scope="module")
def learned():
    return SentencePieceTokenizer.train(LINES, 60)


def test_learned_pieces_give_every_line_back(learned):
    for line in LINES:
        pieces = learned.tokenize(line)
        assert "".join(pieces).replace("▁", " ").strip() == line
        assert learned.detokenize(pieces) == line
    assert learned.detokenize([]) == BPETokenizer().detokenize([]) == ""


def test_frequent_words_are_one_piece_and_new_ones_are_spelled(learned):
    assert learned.tokenize("die")[-1] == "▁die"
    assert len(learned.tokenize("Hundert")) > 1
    assert learned.detokenize(learned.tokenize("Der Hundert")) == "Der Hundert"


def test_vocabulary_has_every_piece_once_after_the_end_and_the_unknown_one(learned):
    vocabulary = learned.vocabulary()
    assert len(vocabulary) == 60 + 1  # the pieces, unknown included, and the end
    assert vocabulary.tokens[:2] == ("<end>", "<unk>")
    for line in LINES:
        assert vocabulary.unk_token_id not in vocabulary.encode(learned.tokenize(line))
    assert vocabulary.unk_token_id in vocabulary.encode(learned.tokenize("日本"))


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("newest", ["newest"]),
        ("low", ["low"]),
        ("lowest", ["low@@", "est"]),
        ("lower", ["low@@", "e@@", "r"]),
        ("widest", ["w@@", "i@@", "d@@", "est"]),
        ("es", ["e@@", "s"]),
        ("loloest", ["lo@@", "lo@@", "est"]),
        ("x", ["x"]),
    ],
)
def test_merges_apply_in_the_order_they_were_learned(word, pieces):
    assert BPETokenizer(MERGES).tokenize(word) == pieces


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("the low@@ est , new@@ est price !", "the lowest, newest price!"),
        ("( Really ? ) Yes !", "(Really?) Yes!"),
        ('He said : " Go away ! "', 'He said: "Go away!"'),
        ("&quot; A &quot; &amp; b", '"A" & b'),
        ("The dog &apos;s well @-@ known &#91; bone &#93;", "The dog's well-known [bone]"),
        ("well ##AT##-##AT## known", "well-known"),
        ("Zwei „ junge “ Männer", "Zwei „junge“ Männer"),
    ],
)
def test_pieces_become_running_text(pieces, text):
    assert BPETokenizer(MERGES).detokenize(pieces.split()) == BPETokenizer().detokenize(pieces.split()) == text


@pytest.mark.parametrize(
    "made", [lambda: SentencePieceTokenizer.train(LINES, 60), lambda: BPETokenizer(MERGES), BPETokenizer]
)
def test_saved_subwords_come_back(made, tmp_path):
    subwords = made()
    subwords.save(tmp_path / "subwords.model")
    again = load_subwords(tmp_path / "subwords.model")
    assert type(again) is type(subwords)
    for line in (*LINES, "newest lower es"):
        assert again.tokenize(line) == subwords.tokenize(line)


@pytest.mark.parametrize("merges", ["#version: 0.2\n", "", "#version: 0.2\na \n"])
def test_merges_without_a_pair_are_refused(merges):
    with pytest.raises(LegendaError, match="pair"):
        BPETokenizer(merges)


def test_a_word_that_would_take_long_is_refused():
    with pytest.raises(LegendaError, match="1,001"):
        BPETokenizer(MERGES).tokenize("a " + "b" * 1001)
