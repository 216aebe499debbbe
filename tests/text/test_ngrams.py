"""The arrays of n-grams against plain counters."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legenda.text.ngrams import DocumentFrequencies, NgramCounts, ngrams

CAPTIONS = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=1, max_size=5)


def names(table):
    """Return the n-grams that the keys of a table stand for."""
    words, shorter, found = list(table.numbers), [()], []
    for keys in table.keys:
        shorter = [(*shorter[key // len(words)], words[key % len(words)]) for key in keys.tolist()]
        found += shorter
    return found


def entries(table, captions):
    """Return the n-grams and counts of each caption, in the table's order."""
    distinct = names(table)
    rows = [[] for _ in captions]
    for caption, number, count in zip(table.captions, table.ngrams, table.counts, strict=True):
        rows[caption].append((distinct[number], int(count)))
    return rows


@given(CAPTIONS)
def test_counts_are_those_of_a_counter_in_its_order(captions):
    table = NgramCounts(captions)
    rows = entries(table, captions)
    assert rows == [list(Counter(ngrams(caption)).items()) for caption in captions]
    assert [len(ngram) - 1 for ngram in names(table)] == table.orders.tolist()


@given(CAPTIONS)
def test_pairs_share_what_both_have(captions):
    table = NgramCounts(captions)
    rows = entries(table, captions)
    flat = [ngram for row in rows for ngram, _ in row]
    first, second = np.indices((len(captions), len(captions))).reshape(2, -1)
    found = [(int(pair), flat[a], flat[b]) for pair, a, b in zip(*table.shared(first, second), strict=True)]
    both = [
        (pair, ngram, ngram)
        for pair, (a, b) in enumerate(zip(first, second, strict=True))
        for ngram in dict(rows[a])
        if ngram in dict(rows[b])
    ]
    assert found == both


@given(CAPTIONS, st.data())
def test_documents_are_counted_once_for_each_ngram(captions, data):
    table = NgramCounts(captions)
    documents = data.draw(st.lists(st.integers(-1, 2), min_size=len(captions), max_size=len(captions)))
    groups = [[c for c, own in zip(captions, documents, strict=True) if own == document] for document in range(3)]
    expected = count_documents(groups)
    assert dict(zip(names(table), table.count_documents(np.array(documents)).tolist(), strict=True)) == {
        ngram: expected[ngram] for ngram in names(table)
    }


def count_documents(groups):
    return Counter(ngram for group in groups for ngram in {n for caption in group for n in ngrams(caption)})


@given(st.lists(CAPTIONS, max_size=4), st.lists(st.lists(st.sampled_from("abcd"), max_size=7), max_size=3))
def test_frequencies_are_those_of_a_counter(groups, others):
    df, expected, table = DocumentFrequencies.from_references(groups), count_documents(groups), NgramCounts(others)
    assert df.documents == len(groups)
    stored = dict(zip(names(df), np.concatenate(df.counts).tolist(), strict=True))
    assert stored == {ngram: count for ngram, count in expected.items() if count > 1}
    assert table.look_up(df).tolist() == [stored.get(ngram, 0) for ngram in names(table)]


@given(CAPTIONS, st.randoms(use_true_random=False))
def test_stored_counts_in_any_order(captions, random):
    df = DocumentFrequencies.from_references([[caption] for caption in captions])
    rows = list(zip(names(df), np.concatenate(df.counts).tolist(), strict=True))
    random.shuffle(rows)
    padded = [[df.numbers[word] for word in ngram] + [-1] * (4 - len(ngram)) for ngram, _ in rows]
    counts = np.array([count for _, count in rows], np.int64)
    again = DocumentFrequencies.from_counts(df.numbers, np.array(padded, np.int16).reshape(-1, 4), counts, df.documents)
    for name in ("keys", "counts"):
        assert all(map(np.array_equal, getattr(again, name), getattr(df, name)))
