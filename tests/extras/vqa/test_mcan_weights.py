"""MCAN and its form for grounding against what the released codes compute with the same weights.

The data hold the released parameters, inputs, what every layer gives in float64, and gradients of the loss.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from legenda import Regions, importers
from legenda.extras.vqa.importer import load_mcan
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary
from legenda.importers.loading import StateDictMapper
from legenda.models.checkpoint import load_any

DATA = Path(__file__).parent / "data"
QUESTIONS = ("mcan_a", "mcan_b")


def read(name):
    return load_file(DATA / f"{name}.safetensors")


def weights(tensors, dtype=torch.float32):
    return {key.removeprefix("param."): x.to(dtype) for key, x in tensors.items() if key.startswith("param.")}


def imported(tensors, dtype=torch.float32, **options):
    return importers.load("mcan", weights(tensors, dtype), **options)


def answered(model, tensors, where="in"):
    dtype = next(model.parameters()).dtype
    return model(Regions(tensors[f"{where}.img_feat"].to(dtype)), tensors[f"{where}.ques_ix"])


@pytest.fixture(scope="module", params=QUESTIONS)
def tensors(request):
    return read(request.param)


@pytest.fixture(scope="module")
def vg():
    return read("mcan_vg")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_logits_and_probabilities(tensors, dtype, tolerance):
    with torch.no_grad():
        logits = answered(imported(tensors, dtype), tensors)
    torch.testing.assert_close(logits, tensors["out.logits"].to(dtype), atol=tolerance, rtol=0)
    torch.testing.assert_close(logits.sigmoid(), tensors["out.probs"].to(dtype), atol=tolerance, rtol=0)


def test_every_layer(tensors):
    """All places, padded ones too."""
    model, found = imported(tensors, torch.float64), {}
    backbone = model.backbone
    watched = {"img_in": backbone.input, "attflat_lang": model.pool_words, "attflat_img": model.pool_regions}
    watched |= {f"enc{i}": layer for i, layer in enumerate(backbone.words)}
    watched |= {f"dec{i}": layer for i, layer in enumerate(backbone.regions)}
    for name, module in watched.items():
        module.register_forward_hook(lambda _, __, output, name=name: found.update({f"mid.{name}": output}))
    backbone.lstm.register_forward_hook(lambda _, __, output: found.update({"mid.lstm_out": output[0]}))
    with torch.no_grad():
        answered(model, tensors)
    assert found.keys() == {name for name in tensors if name.startswith("mid.")}
    for name, output in found.items():
        torch.testing.assert_close(output, tensors[name], atol=1e-12, rtol=0, msg=name)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_question_without_words_and_a_picture_without_regions(tensors, dtype, tolerance):
    """The release then takes all padded places alike."""
    assert (tensors["degenerate.in.ques_ix"] == 0).all(dim=1).any()
    assert (tensors["degenerate.in.img_feat"] == 0).flatten(1).all(dim=1).any()
    with torch.no_grad():
        logits = answered(imported(tensors, dtype), tensors, "degenerate.in")
    torch.testing.assert_close(logits, tensors["degenerate.out.logits"].to(dtype), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", QUESTIONS)
def test_loss_and_gradients(name):
    """Every gradient's norm, and some gradients number by number."""
    tensors = read(name)
    translation = StateDictMapper(weights(tensors, torch.float64), "the file")
    model = load_mcan(translation)
    loss = F.binary_cross_entropy_with_logits(answered(model, tensors), tensors["in.target"].double(), reduction="sum")
    torch.testing.assert_close(loss, tensors["out.loss_bce_sum"][0], atol=1e-10, rtol=0)
    loss.backward()
    source_values = {released: model.get_parameter(own).grad for own, released in translation.source_keys.items()}
    norms = json.loads((DATA / "mcan_grad_norms.json").read_text())[name]
    assert source_values.keys() == norms.keys()
    for released, norm in norms.items():
        assert source_values[released].norm().item() == pytest.approx(norm, rel=1e-9, abs=1e-12), released
    whole = {key.removeprefix("grad."): value for key, value in tensors.items() if key.startswith("grad.")}
    assert len(whole) >= 10
    for released, gradient in whole.items():
        torch.testing.assert_close(source_values[released].float(), gradient, atol=1e-6, rtol=1e-6, msg=released)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_scores_and_deltas_of_regions(vg, dtype, tolerance):
    with torch.no_grad():
        scores, deltas = answered(imported(vg, dtype), vg)
    torch.testing.assert_close(scores.log_softmax(dim=-1), vg["out.log_scores"].to(dtype), atol=tolerance, rtol=0)
    torch.testing.assert_close(deltas, vg["out.reg"].to(dtype), atol=tolerance, rtol=0)


def test_openvqa_calls_the_layer_that_reads_regions_otherwise():
    tensors = read("mcan_a")
    renamed = {name.replace("img_feat_linear", "adapter.frcn_linear"): x for name, x in weights(tensors).items()}
    with torch.no_grad():
        found = answered(importers.load("mcan", renamed), tensors)
    torch.testing.assert_close(found, tensors["out.logits"].float(), atol=1e-5, rtol=0)


@pytest.fixture
def words():
    return QuestionVocabulary(("<pad>", "<unk>", *(f"w{number}" for number in range(48))))


@pytest.fixture
def answers():
    return AnswerVocabulary(tuple(f"a{number}" for number in range(23)))


def test_words_and_answers_make_a_model_that_answers(words, answers, tmp_path):
    tensors = read("mcan_a")
    words.save(tmp_path / "vocabulary.txt")
    (tmp_path / "answers.json").write_text(json.dumps(answers.tokens))
    model = imported(tensors, vocabulary=tmp_path / "vocabulary.txt", answers=tmp_path / "answers.json")
    questions = [" ".join(words.tokens[number] for number in row if number) for row in tensors["in.ques_ix"].tolist()]
    generated = model.answer(Regions(tensors["in.img_feat"]), [text.replace("<unk>", "other") for text in questions])
    assert generated == [f"a{number}" for number in tensors["out.logits"].argmax(dim=1).tolist()]
    model.save(tmp_path / "run")
    assert (load_any(tmp_path / "run").vocabulary, load_any(tmp_path / "run").answers) == (words, answers)
