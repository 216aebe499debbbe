"""The tokenizer against the reference program's answers."""

import gzip
import json
import signal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legenda.text import ptb_tokenize

SPLIT = {"cannot", "gonna", "gotta", "wanna", "lemme", "gimme"}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Two cows, one barn.", "two cows one barn"),
        ("The heron's nest isn't empty", "the heron 's nest is n't empty"),
        ("WE'LL see what HE'S got", "we 'll see what he 's got"),
        ("you cannot fly, gonna swim", "you can not fly gon na swim"),
        ("'tis noon, six o'clock", "'t is noon six o'clock"),
        ("the geese\u2019s pond", "the geese 's pond"),
        ("two boys' kites", "two boys kites"),
        ("a barge (red) [wide]", "a barge -lrb- red -rrb- -lsb- wide -rsb-"),
        ("a mid-size canoe - blue -- wide", "a mid-size canoe blue wide"),
        ("Oak St. and 9th Ave. in the U.S.", "oak st. and 9th ave. in the u.s."),
        ("a t.v. on 4 in. of sand.", "a t.v. on 4 in of sand"),
        ("lake no. 7, no. Seven", "lake no. 7 no seven"),
        ("we visited ore. and Ore.", "we visited ore and ore."),
        ("letter Q. A fox runs", "letter q a fox runs"),
        ("letter Q. foxes run", "letter q. foxes run"),
        ("a raft.,then", "a raft. then"),
        ("a raft.then", "a raft.then"),
        ("open at 7:45pm for $6.50", "open at 7:45 pm for $ 6.50"),
        ("2 3/8 miles", "2\u00a03/8 miles"),
        ("hens/ducks & geese at H&M", "hens/ducks & geese at h&m"),
        ("stop!! what?!", "stop !! what ?!"),
        ("crème brûlée 30° \U0001f600", "crème brûlée 30 °"),
        ("moored at St.Ives, dr.hook", "moored at st.ives dr.hook"),
        ("the lake.A heron.So what", "the lake.a heron.so what"),
        ("Mon. at p.m. and Sq. The end", "mon. at p.m. and sq. the end"),
        ("inc. is Inc.", "inc. is inc."),
        ("sign Q. <b> and Q. <b>", "sign q <b> and q. <b>"),
        ("they've 3.5 of 'em and we'll", "they 've 3.5 of 'em and we ll"),
        ("cannot 'twas 'tisn't more'n", "can not 't was 't is n't more 'n"),
        ("o'clock O'Hara d'oh l'orange c'est", "o'clock o'hara d'oh l'orange c'est"),
        ("isn`t don\u2018t O\u2018Hara", "is n`t do n`t o\u2018hara"),
        ("a&p A&P A&amp;P A+B", "a & p a&p a&p a+b"),
        ("2,5-fold 1.-go T.-S so.-called", "2,5-fold 1.-go t.-s so.-called"),
        ("a/b/c/d grün/blau", "a/b/c / d grün / blau"),
        ("AU$50 \u20ac5 5\u00a2", "au$ 50 $ 5 5 cents"),
        ("## @@ ** << -----", "## @@ ** << -----"),
        ("#two_boats @two_boats two_boats", "#two _ boats @two_boats two_boats"),
        ("(555) 555-1234 555 1234", "-lrb-555-rrb-\u00a0555-1234 555 1234"),
        ("see foo.com/bar, www.a.org/b/c. x@y.z", "see foo.com/bar www.a.org/b/c x@y.z"),
        ("<a href='x y'>no</a> <a", "<a\u00a0href='x\u00a0y'> no </a> < a"),
        ("smile :) :-( =D x:)", "smile :-rrb- :--lrb- =d x -rrb-"),
        ("caf&eacute; &#39; &nbsp;&quot; &lt;", "caf&eacute; &#39; <"),
        ("soft\u00adhyphen \U0001d400 \u200b\ufe0f\u2122", "softhyphen \u2122"),
        ("7.png 7.jpg, 7.foo", "7.png 7.jpg 7 foo"),
        ("first line\nsame caption", "first line same caption"),
        ("first line\rnext caption", "first line"),
    ],
)
def test_one_rule_at_a_time(caption, expected):
    assert ptb_tokenize(caption) == expected.split(" ")


@pytest.mark.parametrize("caption", ["", " \t\n", ". , ; '' `` - --", "\ra"])
def test_nothing_left_is_an_empty_list(caption):
    assert ptb_tokenize(caption) == []


@given(st.text() | st.text(alphabet="aAsSnt.''`\"-&/1(<>: \u00a0\u00bd"))
@example("\u00bd a\u00bd")
@example("\U0001f600")
def test_tokens_are_lower_case_without_spaces_and_never_empty(caption):
    for token in ptb_tokenize(caption):
        assert token
        assert " " not in token
        assert token == token.lower()


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True).filter(lambda word: word not in SPLIT)))
def test_plain_words_stay(words):
    assert ptb_tokenize(" ".join(words).upper()) == words


@pytest.mark.parametrize("part", ["&", "<!a", "a,&", "1a.", "A. <!a", "&www.&1."])
def test_long_lines_take_linear_time(part):
    """Quadratic time would be minutes, or hours."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(30)
    try:
        tokens = ptb_tokenize(part * (100_000 // len(part)))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert tokens[:90] == ptb_tokenize(part * 200)[:90]


def test_all_tricky_cases(shared):
    cases = json.loads((shared / "fixtures/ptb_cases.json").read_text(encoding="utf-8"))["cases"]
    answers = {case["input"]: " ".join(ptb_tokenize(case["input"])) for case in cases}
    assert len(answers) > 600
    assert answers == {case["input"]: case["tokenized"] for case in cases}


def test_all_captions_of_val2014(shared):
    folder = shared / "fixtures"
    captions, expected = (_lines(folder / name) for name in ("ptb_val2014_inputs.txt.gz", "ptb_val2014.txt.gz"))
    for line in json.loads((folder / "ptb_val2014_context.json").read_text(encoding="utf-8"))["lines"]:
        expected[line["line"]] = line["isolated"]
    assert len(captions) == len(expected) == 202_654
    pairs = zip(captions, expected, strict=True)
    assert [caption for caption, tokens in pairs if " ".join(ptb_tokenize(caption)) != tokens] == []


def _lines(path):
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
