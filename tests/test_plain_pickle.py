"""Pickles of plain data: what is read, and that nothing else is built, called or allocated."""

import collections
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import legenda.importers
from legenda.errors import DataError, LegendaError
from legenda.importers.unpickling import read_pickle
from legenda.plain_pickle import read_plain_pickle

_PYTHON_2 = b"(lp0\n(dp1\nS'raw'\np2\nS'the dog'\np3\nsS'id'\np4\nL12L\nsa."
"""Protocol 0 of Python 2 of [{'raw': 'the dog', 'id': 12L}]."""


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_pickles_of_every_protocol(tmp_path, protocol):
    content = [{"a": 1, "b": [2.5, None, True, "é"]}, (frozenset({3}), {4}, 10**30)]
    path = tmp_path / "plain.p"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_plain_pickle(path, "give plain data") == content


def test_pickles_of_python_2(tmp_path):
    (tmp_path / "refs.p").write_bytes(_PYTHON_2)
    assert read_plain_pickle(tmp_path / "refs.p", "give plain data") == [{"raw": "the dog", "id": 12}]


class RunsCode:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return eval, ("[][0]",)


@pytest.mark.parametrize("content", [RunsCode(), [{"deep": RunsCode()}], collections.OrderedDict(a=1), len, object()])
def test_pickles_of_other_objects_raise(tmp_path, content):
    path = tmp_path / "refs.p"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"refs\.p cannot be read \(it holds .* not plain data .*; give plain data"):
        read_plain_pickle(path, "give plain data")


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"garbage"])
def test_damaged_pickles_raise(tmp_path, content):
    (tmp_path / "refs.p").write_bytes(content)
    with pytest.raises(DataError, match=r"refs\.p cannot be read"):
        read_plain_pickle(tmp_path / "refs.p", "give plain data")


def _forged(*, call: str) -> bytes:
    """Return a pickle that builds a NumPy array of one object over given bytes, by a direct call or a dtype's state."""
    dtype = b"cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R"
    if call == "ndarray":
        return b"\x80\x03cnumpy\nndarray\n(K\x01\x85" + dtype + b"C\x08" + bytes(8) + b"tR."
    return (
        b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85"
        + dtype
        + b"\x89C\x08"
        + bytes(8)
        + b"tb."
    )


@pytest.mark.parametrize("call", ["ndarray", "_reconstruct"])
def test_no_array_is_built_over_given_bytes(tmp_path, call):
    (tmp_path / "infos.pkl").write_bytes(_forged(call=call))
    assert not isinstance(read_pickle(tmp_path / "infos.pkl"), np.ndarray)
    (tmp_path / "model.pth").write_bytes(_forged(call=call))
    with pytest.raises(LegendaError, match=r"model\.pth"):
        legenda.importers.load("aoanet", tmp_path / "model.pth")


def test_random_states_of_numpy_do_not_prevent_reading_weights(tmp_path):
    content = {"rng": np.random.get_state(), "best": np.float64(0.5), "w": torch.ones(2)}
    torch.save({"state_dict": {"w": torch.ones(2)}, "other": content}, tmp_path / "model.pth")
    with pytest.raises(LegendaError) as caught:
        legenda.importers.load("aoanet", tmp_path / "model.pth")
    assert "cannot be read" not in str(caught.value)


def test_classes_keep_their_attributes(tmp_path):
    before = collections.Counter.most_common
    # GLOBAL Counter, then BUILD with the slot state {"most_common": 1}
    (tmp_path / "infos.pkl").write_bytes(b"\x80\x02ccollections\nCounter\nN}X\x0b\x00\x00\x00most_commonK\x01s\x86b.")
    with pytest.raises(LegendaError, match="sets attributes of a type, which is not plain data"):
        read_pickle(tmp_path / "infos.pkl")
    assert collections.Counter.most_common is before
    assert not hasattr(dict, "most_common")


def _repeated(calls: int) -> bytes:
    """Return a pickle that copies one string of 100 kB many times with _codecs.encode."""
    text = b"X" + (100_000).to_bytes(4, "little") + b"a" * 100_000
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    return b"\x80\x02" + text + b"q\x000]" + b"(" + call * calls + b"e."


BOMBS = {
    "copies": _repeated(20_000),
    "memo index": b"\x80\x02Nr" + (2**31 - 1).to_bytes(4, "little") + b".",
    "bytearray": b"\x80\x05\x96" + (2**33).to_bytes(8, "little") + b"abc.",
    "text length": b"\x80\x04\x8d" + (2**33).to_bytes(8, "little") + b"abc.",
    "nested tuples as key": b"\x80\x02}N" + b"\x85" * 1_000_000 + b"Ns.",
    "nested lists": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "copies of a list": b"\x80\x02c__builtin__\nfrozenset\nq\x01("
    + b"K\x01" * 20_000
    + b"lq\x000]("
    + b"h\x01h\x00\x85\x81" * 300
    + b"e.",
    "colliding keys": b"\x80\x02}("
    + b"".join(b"\x8a\x10" + (n * (2**61 - 1)).to_bytes(16, "little") + b"N" for n in range(20_000))
    + b"u.",
    "frame": b"\x80\x04\x95" + (2**33).to_bytes(8, "little") + b"N.",
}

_CHILD = """
import resource, sys
from pathlib import Path
from legenda.errors import LegendaError
from legenda.plain_pickle import read_plain_pickle
from legenda.importers.unpickling import read_pickle
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in map(Path, sys.argv[1:]):
    for read in (lambda: read_plain_pickle(path, "give plain data"), lambda: read_pickle(path)):
        try:
            read()
        except LegendaError as error:
            assert len(str(error)) < 400, len(str(error))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)
"""


def test_hostile_files_neither_crash_nor_fill_memory(tmp_path):
    paths = []
    for number, content in enumerate(BOMBS.values()):
        paths.append(tmp_path / f"{number}.pkl")
        paths[-1].write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *paths], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 200  # MiB


@pytest.mark.parametrize("name", ["copies", "copies of a list", "bytearray", "text length", "nested tuples as key"])
def test_refusals_are_one_sentence(tmp_path, name):
    (tmp_path / "vocab.pkl").write_bytes(BOMBS[name])
    with pytest.raises(LegendaError, match=r"vocab\.pkl cannot be read \(.*\); give the release's own file"):
        read_pickle(tmp_path / "vocab.pkl")
