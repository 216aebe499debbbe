"""Parallel text files."""

import gzip

import pytest

from legenda.errors import DataError
from legenda.extras.translation.data import ParallelData, read_parallel

pytest.importorskip("sentencepiece", reason="needs sentencepiece")

EN = ["a dog runs .", "a cat sleeps .", "two dogs run fast ."]
DE = ["ein Hund läuft .", "eine Katze schläft .", "zwei Hunde laufen schnell ."]


@pytest.fixture
def folder(tmp_path):
    for name in ("train", "val", "test_2016_flickr"):
        (tmp_path / f"{name}.en").write_text("\n".join(EN) + "\n", encoding="utf-8")
        with gzip.open(tmp_path / f"{name}.de.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(DE) + "\n")
    return tmp_path


@pytest.fixture
def data(folder):
    return ParallelData(folder=folder, pieces=40)


def test_lines_belong_together_gzipped_or_not(data):
    split = data.split("test")
    assert split.sentences == tuple(EN)
    assert split.references == tuple((line,) for line in DE)
    assert split.printed["1"] == (DE[0],)  # raw text stays as it is
    assert split.ids == ("1", "2", "3")
    assert len(split) == 3
    assert split.source.endswith("test_2016_flickr.en")


def test_a_byte_order_mark_is_no_part_of_the_first_sentence(folder, data):
    (folder / "val.en").write_text("\n".join(EN) + "\n", encoding="utf-8-sig")
    assert data.split("val").sentences == tuple(EN)


def test_subwords_are_learned_from_both_languages_of_the_training_text(data):
    messages = []
    opened = data.open(messages.append)
    assert len(opened.vocabulary) == 41
    for line in (*EN, *DE):
        assert opened.subwords.detokenize(opened.subwords.tokenize(line)) == line
    assert any("40 subwords from 6 lines" in line for line in messages)


def test_text_that_is_split_already_keeps_its_words(data):
    opened = data.replace(pieces=0).open(lambda _: None)
    words = {word for line in (*EN, *DE) for word in line.split()}
    assert set(opened.vocabulary.tokens) == words | {"<end>", "<unk>"}
    assert opened.subwords.detokenize(EN[0].split()) == "a dog runs."
    assert opened.validation.references[0] == (DE[0],)
    assert opened.validation.printed == {
        "1": ("ein Hund läuft.",),
        "2": ("eine Katze schläft.",),
        "3": ("zwei Hunde laufen schnell.",),
    }


def test_merges_cut_text_that_is_tokenized(data, tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nd o\ndo g</w>\n", encoding="utf-8")
    opened = data.replace(merges=tmp_path / "codes").open(lambda _: None)
    assert opened.subwords.tokenize("dog dogs") == ["dog", "do@@", "g@@", "s"]
    assert opened.validation.printed["1"] == ("ein Hund läuft.",)


def test_pairs_with_a_long_side_are_left_out_of_training_only(data):
    opened = data.replace(pieces=0, max_length=4).open(lambda _: None)
    assert opened.train.ids == ("1", "2")
    assert len(opened.validation) == 3
    with pytest.raises(DataError, match=r"train\.en.*max_length=3"):
        data.replace(pieces=0, max_length=3).open(lambda _: None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", r"train\.en has 3 lines but .*train\.de has 2"),
        (b"a\n\nb\n", r"train\.de is empty in line 2"),
        (b"a\n\xff\xfe\nb\n", r"train\.de is not UTF-8 text in line 2"),
    ],
)
def test_bad_lines_are_named(folder, data, content, message):
    (folder / "train.de").write_bytes(content)
    with pytest.raises(DataError, match=message):
        data.open(lambda _: None)


def test_multi30k(shared):
    data = ParallelData(folder=shared / "data" / "multi30k")
    assert len(data.split("train")) == 29_000
    assert len(data.split("val")) == 1_014
    test = data.split("test")
    assert len(test) == 1_000
    assert test.sentences[0] == "A man in an orange hat starring at something."
    assert len(data.replace(test="test_2017_flickr").split("test")) == 1_000


def test_two_references_of_wmt22(shared):
    folder, name = shared / "data" / "wmt22_ende", "generaltest2022.en-de"
    split = read_parallel(*(folder / f"{name}.{end}" for end in ("src.en", "ref.A.de", "ref.B.de")))
    assert len(split) == 2_037
    assert {len(references) for references in split.references} == {2}
