"""The arrays of n-grams against plain counters."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legenda.text.ngrams import DocumentFrequencies, NgramCounts, ngrams

CAPTIONS = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=1, max_size=5)


def entries(table, captions):
    """The n-grams and counts of each caption, in the table's order."""
    distinct = {ngram for caption in captions for ngram in ngrams(caption)}
    numbers = {
        int(table.look_up({ngram: n})[at]): (ngram, at)
        for n, ngram in enumerate(distinct, start=1)
        for at in np.flatnonzero(table.look_up({ngram: n}))
    }
    names = {at: ngram for ngram, at in numbers.values()}
    assert set(names.values()) == distinct
    rows = [[] for _ in captions]
    for caption, number, count in zip(table.captions, table.ngrams, table.counts, strict=True):
        rows[caption].append((names[number], int(count)))
    return names, rows


@given(CAPTIONS)
def test_counts_are_those_of_a_counter_in_its_order(captions):
    table = NgramCounts(captions)
    names, rows = entries(table, captions)
    assert rows == [list(Counter(ngrams(caption)).items()) for caption in captions]
    assert [len(names[number]) - 1 for number in range(len(names))] == table.orders.tolist()


@given(CAPTIONS)
def test_pairs_share_what_both_have(captions):
    table = NgramCounts(captions)
    _, rows = entries(table, captions)
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
    counts = DocumentFrequencies.from_references(groups).counts
    assert table.count_documents(np.array(documents)).tolist() == table.look_up(counts).tolist()
