"""The tokenizer against the reference program's answers."""

import gzip
import json
import signal

import pytest

from legenda.text import ptb_tokenize


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("WE'LL see what HE'S got, isn't it", "we 'll see what he 's got is n't it"),
        ("you cannot fly, gonna swim", "you can not fly gon na swim"),
        ("a barge (red) [wide]", "a barge -lrb- red -rrb- -lsb- wide -rsb-"),
        ("a t.v. on 4 in. of sand.", "a t.v. on 4 in of sand"),
        ("letter Q. A fox runs", "letter q a fox runs"),
        ("letter Q. foxes run", "letter q. foxes run"),
        ("2 3/8 miles", "2\u00a03/8 miles"),
        ("stop!! what?!", "stop !! what ?!"),
        ("crème brûlée 30° \U0001f600", "crème brûlée 30 °"),
        ("first line\nsame caption", "first line same caption"),
        ("first line\rnext caption", "first line"),
        ("", ""),
        (". , ; '' `` - --", ""),
        ("\ra", ""),
    ],
)
def test_captions_by_hand(caption, expected):
    assert " ".join(ptb_tokenize(caption)) == expected


@pytest.mark.parametrize("part", ["&", "<!a", "a,&", "1a.", "A. <!a", "&www.&1.", " "])
def test_long_lines_take_linear_time(part):
    """Quadratic time would be minutes, or hours."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(30)
    try:
        tokens = ptb_tokenize("a" + part * (100_000 // len(part)) + "!")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert tokens[:90] == ptb_tokenize("a" + part * 200 + "!")[:90]


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
