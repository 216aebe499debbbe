"""Pickles of plain data are read; whatever else is in one is refused before it is imported."""

import collections
import pickle

import pytest

from legenda.errors import UserError
from legenda.unpickling import read_plain_pickle

_PYTHON_2 = b"(lp0\n(dp1\nS'raw'\np2\nS'the dog'\np3\nsS'id'\np4\nL12L\nsa."
"""What Python 2 writes at protocol 0 for [{'raw': 'the dog', 'id': 12L}]."""


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_data_of_every_protocol(tmp_path, protocol):
    content = [{"a": 1, "b": [2.5, None, True, "é"]}, (frozenset({3}), {4}, 10**30)]
    path = tmp_path / "plain.p"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_plain_pickle(path, "give plain data") == content


def test_what_python_2_writes(tmp_path):
    (tmp_path / "refs.p").write_bytes(_PYTHON_2)
    assert read_plain_pickle(tmp_path / "refs.p", "give plain data") == [{"raw": "the dog", "id": 12}]


class Call:
    """What a hostile pickle does when it is run."""

    def __reduce__(self):
        return eval, ("[][0]",)


@pytest.mark.parametrize("content", [Call(), [{"deep": Call()}], collections.OrderedDict(a=1), len, object()])
def test_anything_else_is_refused(tmp_path, content):
    path = tmp_path / "refs.p"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"refs\.p cannot be read \(it holds .* no plain data .*; give plain data"):
        read_plain_pickle(path, "give plain data")


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"garbage"])
def test_a_broken_pickle(tmp_path, content):
    (tmp_path / "refs.p").write_bytes(content)
    with pytest.raises(UserError, match=r"refs\.p cannot be read"):
        read_plain_pickle(tmp_path / "refs.p", "give plain data")
