"""A model's folder: the files that are written, and the errors of damaged ones."""

import json
import resource

import pytest
import safetensors.torch
import torch

import legenda
from legenda.decoding import GenerationConfig
from legenda.errors import CheckpointError, LegendaError
from legenda.models.checkpoint import start_from
from legenda.text import Vocabulary

WORDS = ("<end>", "<unk>", "a", "dog", "runs")
SMALL = {"vocab_size": len(WORDS), "feature_dim": 6, "dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 24}


def build(**options):
    torch.manual_seed(0)
    model = legenda.create_model("ngsan", **{**SMALL, **options})
    model.vocabulary = Vocabulary(WORDS)
    return model


@pytest.fixture
def folder(tmp_path):
    build().save(tmp_path / "model", training={"epochs": 3})
    return tmp_path / "model"


def test_what_is_written(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "vocabulary.txt"]
    config = json.loads((folder / "config.json").read_text())
    assert config["model"]["name"] == "ngsan"
    assert config["model"].items() >= {**SMALL, "norm": "in", "geometry": "query"}.items()
    assert config["training"] == {"epochs": 3}
    assert (folder / "vocabulary.txt").read_text().split() == list(WORDS)
    assert set(safetensors.torch.load_file(folder / "model.safetensors")) == set(build().state_dict())


def test_its_rule_of_search_comes_back(tmp_path):
    model = build()
    model.generation_config = GenerationConfig(
        suppress_tokens=(1, 3), max_length=7, length_penalty=0.5, finished_beams="release"
    )
    model.save(tmp_path)
    assert legenda.load(tmp_path).generation_config == model.generation_config
    stored = json.loads((tmp_path / "config.json").read_text())["generation_config"]
    assert stored.items() >= {"bos_token_id": 0, "eos_token_id": 0, "max_length": 7, "length_penalty": 0.5}.items()
    assert (stored["suppress_tokens"], stored["finished_beams"]) == ([1, 3], "release")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def rewrite(change):
    def damage(path):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(change(content)))

    return damage


def with_part(name, **values):
    def change(content):
        content[name] = {**content[name], **values}
        return content

    return rewrite(change)


def with_tensors(change):
    def damage(path):
        tensors = safetensors.torch.load_file(path)
        change(tensors)
        safetensors.torch.save_file(tensors, path)

    return damage


CONFIG = {
    "missing": lambda path: path.unlink(),
    "cut": cut,
    "empty": lambda path: path.write_text(""),
    "a list": rewrite(lambda content: [content]),
    "no model": rewrite(lambda content: {"training": content["training"]}),
    "a list for a name": rewrite(lambda content: {"model": {**content["model"], "name": ["ngsan"]}}),
    "an unknown model": rewrite(lambda content: {"model": {**content["model"], "name": "ngsam"}}),
    "a list for a rule": rewrite(lambda content: {**content, "generation_config": [20]}),
    "a wrong rule": with_part("generation_config", suppress_tokens=1),
    "an unknown option": with_part("model", heads=2),
    "a wrong value": with_part("model", num_heads=3),
    "a decoder of a list": with_part("model", decoder={"name": ["ngsan"]}),
}
WEIGHTS = {
    "missing": lambda path: path.unlink(),
    "cut": cut,
    "no safetensors": lambda path: path.write_bytes(b"words" * 100),
    "a tensor too few": with_tensors(lambda tensors: tensors.pop("encoder.input.bias")),
    "a tensor too many": with_tensors(lambda tensors: tensors.update(surplus=torch.zeros(1))),
    "another shape": with_tensors(lambda tensors: tensors.update({"encoder.input.bias": torch.zeros(3)})),
}
VOCABULARY = {
    "missing": lambda path: path.unlink(),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00\x01"),
    "a word too many": lambda path: path.write_text("\n".join((*WORDS, "cat")) + "\n"),
    "a word twice": lambda path: path.write_text("\n".join((*WORDS[:-1], "a")) + "\n"),
    "no specials": lambda path: path.write_text("\n".join(("begin", *WORDS[1:])) + "\n"),
}
DAMAGES = [
    pytest.param(file, damage, id=f"{file}: {name}")
    for file, damages in (("config.json", CONFIG), ("model.safetensors", WEIGHTS), ("vocabulary.txt", VOCABULARY))
    for name, damage in damages.items()
]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_damage_raises_one_sentence_with_the_file(folder, file, damage):
    damage(folder / file)
    with pytest.raises(LegendaError) as caught:
        legenda.load(folder)
    assert str(folder / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_in_another_order_are_found(folder, caplog):
    legenda.load(folder)
    assert caplog.messages == []
    (folder / "vocabulary.txt").write_text("\n".join((*WORDS[:-2], WORDS[-1], WORDS[-2])) + "\n")
    legenda.load(folder)
    assert str(folder / "vocabulary.txt") in caplog.text


def test_a_changed_bit_is_found(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(LegendaError, match=r"model\.safetensors.*checksum"):
        legenda.load(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 10**7}, r"model\.safetensors holds .* with shape .* where config\.json gives \(10000000"),
        ({"dim": 10**16}, r"config\.json: .*dim must be"),
        ({"num_layers": 10**6}, r"config\.json: .*num_layers must be"),
        ({"num_layers": 150}, r"model\.safetensors lacks .*layers"),
        ({"grid_size": 10**19}, r"config\.json: .*grid_size must be"),
    ],
)
def test_sizes_of_strangers_fill_no_memory(folder, options, message):
    with_part("model", **options)(folder / "config.json")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=message):
        legenda.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"config\.json has no 'generation_config'"),  # without the rule of search
        ({"vocab_size": 6}, r"was trained with vocab_size=6, not 5; restore the vocabulary\.txt of its training"),
    ],
)
def test_a_start_model_that_does_not_fit_is_named(tmp_path, options, message):
    (tmp_path / "config.json").write_text(json.dumps({"model": {"name": "ngsan", **options}}))
    with pytest.raises(CheckpointError, match=message):
        start_from(build(), tmp_path)
