"""Scores of translations."""

import pytest

from legenda.errors import LegendaError
from legenda.extras.translation.metric import score_translations

pytest.importorskip("sacrebleu", reason="needs sacrebleu")


def score(output, *references, **options):
    return score_translations({"s": output}, {"s": references}, **options).corpus


def test_bleu_by_hand():
    """Precisions 4/5, 3/4, 2/3, 1/2; then all 1 with a brevity penalty of exp(1 - 5/4)."""
    assert score("a b c d e", "a b c d f")["BLEU"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert score("a b c d", "a b c d e")["BLEU"] == pytest.approx(100 * 2.718281828 ** (1 - 5 / 4))


def test_exact_counts_sentences_to_the_letter():
    output = {"1": "ein Hund", "2": "Ein Hund", "3": "zwei"}
    references = {"1": ("ein Hund",), "2": ("ein Hund",), "3": ("drei", "zwei"), "4": ("vier",)}
    assert score_translations(output, references).corpus["exact"] == pytest.approx(200 / 3)


def test_tokenized_bleu_splits_compounds():
    """Ein neuer Auto ##AT##-##AT## Test . against the same with Rest: 5/6, 3/5, 2/4 and 1/3 are right."""
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert score("Ein neuer Auto-Test.", "Ein neuer Auto-Rest.")["tokenized BLEU"] == pytest.approx(expected)
    assert score("Ein neuer Auto-Test.", "Ein neuer Auto-Rest.")["BLEU"] != pytest.approx(expected)


REFERENCES = {str(number): (f"the {number} dogs run over the green grass",) for number in range(40)}
GOOD = {name: lines[0] if int(name) % 8 else "a dog sleeps" for name, lines in REFERENCES.items()}
BAD = {name: lines[0] if int(name) % 2 else "a dog sleeps" for name, lines in REFERENCES.items()}


def test_margins():
    good, bad = (score_translations(output, REFERENCES, resamples=200) for output in (GOOD, BAD))
    for name in ("BLEU", "chrF"):
        assert bad.corpus[name] + bad.margins[name] < good.corpus[name]
        assert 1 < bad.margins[name] < 30


def test_what_cannot_be_scored_is_refused():
    for arguments in (({}, REFERENCES), ({"x": "a"}, REFERENCES)):
        with pytest.raises(LegendaError):
            score_translations(*arguments)
