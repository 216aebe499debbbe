"""From files of the releases to a model: checkpoints, vocabularies, and pickles that are read but never run."""

from __future__ import annotations

import argparse
import collections
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch

import legenda
from legenda import LegendaError
from legenda.importers.loading import _ALLOWED, load_vocab
from legenda.io import read_pickle
from legenda.text import Vocabulary

TRACE = Path(tempfile.gettempdir()) / "legenda-ran-a-pickle"
WORDS = [f"w{number}" for number in range(49)] + ["UNK"]
"""The fixture's fifty words; id 0 is the end."""


@pytest.fixture(scope="module")
def weights(numbers):
    return numbers("abl_base").weights()


def write(weights, path):
    match path.suffix:
        case ".npz":
            np.savez(path, **{name: value.numpy() for name, value in weights.items()})
        case ".safetensors":
            safetensors.torch.save_file(weights, path)
        case _:
            torch.save(weights, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".npz", ".safetensors"])
def test_every_kind_of_file_gives_the_same_model(weights, tmp_path, suffix):
    model = legenda.importers.load("aoanet", write(weights, tmp_path / f"model{suffix}"))
    direct = legenda.importers.load("aoanet", weights)
    assert model.config == direct.config
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), direct.parameters(), strict=True))
    assert not model.training


@pytest.mark.parametrize(
    ("name", "key", "archive"), [("epoch13.pkl", "state_dict", True), ("last.pth", "model", False)]
)
def test_a_checkpoint_of_training_with_the_weights_inside(weights, tmp_path, name, key, archive):
    state = {key: weights, "epoch": 3, "numpy_rng_state": np.random.RandomState(0).get_state()}
    state["optimizer"] = torch.optim.Adam([torch.zeros(2)]).state_dict()
    torch.save(state, tmp_path / name, _use_new_zipfile_serialization=archive)
    assert legenda.importers.load("aoanet", tmp_path / name).config.vocab_size == 51


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.pth", b"no checkpoint", "model.pth cannot be read"),
        ("model.npz", b"", "model.npz cannot be read"),
        ("model.safetensors", b"\0" * 20, "model.safetensors cannot be read"),
        ("model.h5", b"", "model.h5 is not a checkpoint"),
    ],
)
def test_a_file_that_is_no_checkpoint(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LegendaError, match=message):
        legenda.importers.load("aoanet", tmp_path / name)
    with pytest.raises(LegendaError, match=r"absent\.pth"):
        legenda.importers.load("aoanet", tmp_path / "absent.pth")


class Evil:
    """What a hostile pickle does when it is run."""

    def __reduce__(self):
        return os.system, (f"touch {TRACE}",)


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.filterwarnings("error")
def test_a_checkpoint_that_would_run_something_is_not_run(tmp_path, archive):
    torch.save({"state_dict": Evil()}, tmp_path / "model.pth", _use_new_zipfile_serialization=archive)
    with pytest.raises(LegendaError, match=r"model\.pth"):
        legenda.importers.load("aoanet", tmp_path / "model.pth")
    assert not TRACE.exists()


def dump(content, path, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_pickles_are_read(tmp_path, protocol):
    content = {
        "opt": argparse.Namespace(rnn_size=8, id="x"),
        "vocab": {"1": "a", "2": "UNK"},
        "counts": collections.Counter("aab"),
        "best": np.float64(1.5),
        "order": np.arange(3),
        "nested": [(1, 2.5, None, True), {"é"}, collections.OrderedDict(a=1)],
    }
    found = read_pickle(dump(content, tmp_path / "infos.pkl", protocol), "give another", _ALLOWED)
    assert found["opt"].rnn_size == 8
    assert found["vocab"] == content["vocab"]
    assert found["counts"] == {"a": 2, "b": 1}
    assert not isinstance(found["order"], np.ndarray)
    assert found["nested"] == content["nested"]


@pytest.mark.parametrize(
    "evil",
    [
        Evil(),
        [1, {"deep": (Evil(),)}],
        SimpleNamespace(a=1),
        print,
        type("Counter", (), {}),
        collections.defaultdict(os.getcwd),
    ],
    ids=["call", "deep", "namespace", "function", "class", "factory"],
)
def test_anything_else_is_refused_before_it_is_imported(tmp_path, evil):
    try:
        path = dump(evil, tmp_path / "vocab.pkl")
    except (pickle.PicklingError, AttributeError):
        path = tmp_path / "vocab.pkl"
        path.write_bytes(b"c__main__\nCounter\n.")
    with pytest.raises(LegendaError, match=r"vocab\.pkl"):
        read_pickle(path, "give another", _ALLOWED)
    assert not TRACE.exists()


NUMBERED = {str(number): word for number, word in enumerate(WORDS, start=1)}
EXPECTED = ("<end>", *WORDS[:-1], "<unk>")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("cocotalk.json", lambda path: path.write_text(json.dumps({"ix_to_word": NUMBERED, "images": []}))),
        ("words.json", lambda path: path.write_text(json.dumps(NUMBERED))),
        ("infos_aoa.pkl", lambda path: dump({"vocab": NUMBERED, "iter": 3}, path)),
        ("coco_vocabulary.txt", lambda path: path.write_text("\n".join(WORDS) + "\n")),
        ("vocabulary.txt", lambda path: Vocabulary(EXPECTED).save(path)),
    ],
)
def test_vocabularies_whose_id_zero_is_the_end(tmp_path, name, make):
    make(tmp_path / name)
    found = load_vocab("aoanet", tmp_path / name)
    assert found.tokens == EXPECTED
    assert (found.bos_token_id, found.eos_token_id, found.unk_token_id) == (0, 0, 50)


SPACES = {6: " ", 8: "\n", 9: "  ", 11: "\n ", 12: "    "}


@pytest.fixture
def released_vocabulary(monkeypatch) -> ModuleType:
    """Stands for the module of the vocabulary in MD-SAN's release, which is M2's."""
    module = ModuleType("data.vocab")
    exec("class Vocab: pass\ndef _default_unk_index(): return 0", vars(module))
    monkeypatch.setitem(sys.modules, "data", ModuleType("data"))
    monkeypatch.setitem(sys.modules, "data.vocab", module)
    return module


@pytest.mark.parametrize("unknown", ["int", "_default_unk_index"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_the_vocabulary_of_md_san(tmp_path, monkeypatch, released_vocabulary, unknown, protocol):
    released = released_vocabulary.Vocab()
    released.freqs = collections.Counter({"a": 5, " ": 6, "\n": 5})
    released.itos = ["<unk>", "<pad>", "<bos>", "<eos>", *(SPACES.get(number, f"w{number}") for number in range(4, 14))]
    default = getattr(released_vocabulary, unknown, int)
    released.stoi = collections.defaultdict(default, {word: number for number, word in enumerate(released.itos)})
    path = dump(released, tmp_path / "vocab.pkl", protocol)
    monkeypatch.delitem(sys.modules, "data.vocab")
    monkeypatch.delitem(sys.modules, "data")
    found = load_vocab("mdsan", path)
    assert found.tokens == ("<unk>", "<pad>", "<begin>", "<end>", *released.itos[4:])
    assert (found.unk_token_id, found.bos_token_id, found.eos_token_id) == (0, 2, 3)
    assert {number: found.tokens[number] for number in SPACES} == SPACES
    found.save(tmp_path / "vocabulary.txt")
    assert load_vocab("mdsan", tmp_path / "vocabulary.txt") == found


def test_other_names_of_the_release_are_refused(tmp_path, released_vocabulary):
    exec("def other(): pass\nother.__module__ = 'data.vocab'", vars(released_vocabulary))
    path = dump([released_vocabulary.other], tmp_path / "vocab.pkl")
    with pytest.raises(LegendaError, match=r"data\.vocab\.other"):
        load_vocab("mdsan", path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.json", "[]", 'no "ix_to_word"'),
        ("words.csv", "a", "is not a vocabulary file of aoanet"),
        ("words.txt", "a\na\n", "is on lines"),
    ],
)
def test_a_file_that_is_no_vocabulary(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(LegendaError, match=message):
        load_vocab("aoanet", tmp_path / name)
