"""MCAN for questions and for grounding: sizes, laws, and where the house's attention goes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from legenda import Regions
from legenda.errors import LegendaError
from legenda.extras.grounding.model import Grounder, GroundingConfig
from legenda.extras.vqa.model import Mcan, McanConfig
from legenda.extras.vqa.text import AnswerVocabulary, QuestionVocabulary
from legenda.models.checkpoint import load_any
from legenda.models.registry import build_model
from legenda.papers import get_recipe

SMALL = {
    "vocab_size": 20,
    "feature_dim": 6,
    "word_dim": 10,
    "dim": 16,
    "num_heads": 2,
    "num_layers": 2,
    "ff_dim": 24,
    "pool_dim": 12,
    "pooled_dim": 20,
    "geometry_dim": 8,
    "max_text_length": 5,
}
ATTENTIONS = (
    {},
    {"geometry": "query"},
    {"distance": "manhattan", "branches": 3, "drop_branch": 0.4},
    {"norm": "in"},
    {"attention": "x_linear"},
)


def mcan(seed=0, **options):
    torch.manual_seed(seed)
    return Mcan(McanConfig(**{**SMALL, "answers": 7, **options})).eval()


def grounder(seed=0, **options):
    torch.manual_seed(seed)
    return Grounder(GroundingConfig(**{**SMALL, **options})).eval()


def parameters(**options):
    with torch.device("meta"):
        return build_model("mcan", {"vocab_size": 20572, **options}).parameter_count


@pytest.fixture
def regions(draw_regions):
    return draw_regions((5, 3), dim=6)


QUESTION = torch.tensor([[4, 9, 1, 0, 0], [2, 3, 4, 5, 6]])


def test_mcan_small_has_the_parameters_of_the_release():
    """51,640,891 and 300 numbers for each of OpenVQA's 20,572 words; MD-SAN prints 57.81M (Table XIV)."""
    assert parameters() == 51_640_891 + 300 * 20_572 == 57_812_491


def test_distances_and_branches_add_what_the_paper_adds():
    """MD-SAN prints 70.42M: two more attentions in each of six layers, and two numbers for each of 144 heads."""
    attention = 4 * (512 * 512 + 512)
    assert (
        parameters(**get_recipe("vqa2.mcan_dsa_msa").model_overrides) == 57_812_491 + 12 * attention + 288 == 70_420_267
    )


@pytest.mark.parametrize("options", ATTENTIONS)
@pytest.mark.parametrize("create", [mcan, grounder])
def test_padding_plays_no_part(create, options, regions):
    """Regions and words that are not there, whatever they hold, and the other examples of the batch."""
    model = create(**options)
    spoilt = replace(
        regions,
        features=regions.features.masked_fill(~regions.mask_or_ones.unsqueeze(-1), float("nan")),
        boxes=regions.boxes.masked_fill(~regions.mask_or_ones.unsqueeze(-1), 7.0),
    )
    alone = Regions(regions.features[1:, :3], regions.boxes[1:, :3])
    with torch.no_grad():
        found, expected = model(spoilt, QUESTION), model(alone, QUESTION[1:])
        short = model(Regions(regions.features[:1], regions.boxes[:1]), QUESTION[:1, :3])
    if isinstance(found, tuple):
        scores, deltas = found
        torch.testing.assert_close(scores[1:, :3], expected[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(deltas[1:, :3], expected[1], atol=1e-5, rtol=0)
        assert (scores[1, 3:] == float("-inf")).all()
        torch.testing.assert_close(scores[:1], short[0], atol=1e-5, rtol=0)
    else:
        torch.testing.assert_close(found[1:], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(found[:1], short, atol=1e-5, rtol=0)


@pytest.mark.parametrize("options", ATTENTIONS)
def test_the_order_of_regions_plays_no_part(options, draw_regions):
    regions = draw_regions((5, 5), dim=6, seed=1)
    order = torch.tensor([3, 0, 4, 1, 2])
    mixed = Regions(regions.features[:, order], regions.boxes[:, order])
    with torch.no_grad():
        torch.testing.assert_close(
            mcan(**options)(mixed, QUESTION), mcan(**options)(regions, QUESTION), atol=1e-5, rtol=0
        )
        scores, deltas = grounder(**options)(regions, QUESTION)
        mixed_scores, mixed_deltas = grounder(**options)(mixed, QUESTION)
    torch.testing.assert_close(mixed_scores, scores[:, order], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed_deltas, deltas[:, order], atol=1e-5, rtol=0)


def backward(model, regions):
    found = model(regions, QUESTION)
    outputs = found if isinstance(found, tuple) else (found,)
    real = [output[output.isfinite()] for output in outputs]
    torch.cat([(output * torch.rand_like(output)).flatten() for output in real]).square().sum().backward()


@pytest.mark.parametrize("options", ATTENTIONS[:3])
@pytest.mark.parametrize("create", [mcan, grounder])
def test_gradients_reach_every_parameter(create, options, regions):
    """Biases that shift all scores of a softmax have a gradient of 0, not None: distributed training waits for each."""
    model = create(**options)
    backward(model, regions)
    still = [name for name, parameter in model.named_parameters() if not parameter.grad.any()]
    assert all(name.endswith(("key.bias", "score.3.bias")) for name in still), still
    model.train().zero_grad()
    backward(model, regions)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "dim=16 must be a multiple of num_heads=3"),
        ({"geometry": "absolute"}, "geometry='absolute' is for the Transformer"),
        ({"geometry": "relation"}, "geometry='relation' is unknown"),
    ],
)
def test_sizes_that_make_no_model(options, message):
    with pytest.raises(LegendaError, match=message):
        McanConfig(**{**SMALL, **options})


WORDS = QuestionVocabulary(("<pad>", "<unk>", "what", "is", "here"))
ANSWERS = AnswerVocabulary(("a dog", "", "2"))


@pytest.fixture
def speaking():
    model = build_model("mcan", {**SMALL, "vocab_size": 5, "answers": 3})
    model.vocabulary, model.answers = WORDS, ANSWERS
    return model.eval()


def test_answers_are_words(speaking, regions):
    questions = ["What is here?", "Is here what is here, really?"]
    with torch.no_grad():
        ids = torch.tensor([[2, 3, 4, 0, 0], [3, 4, 2, 3, 4]])
        best = speaking(regions, ids).argmax(dim=-1).tolist()
    assert speaking.answer(regions, questions) == [ANSWERS.tokens[number] for number in best]
    speaking.train()
    speaking.answer(regions, questions)
    assert speaking.training


def test_a_folder_keeps_model_words_and_answers(speaking, regions, tmp_path):
    speaking.save(tmp_path)
    loaded = load_any(tmp_path)
    assert isinstance(loaded, Mcan)
    assert (loaded.vocabulary, loaded.answers, loaded.config) == (WORDS, ANSWERS, speaking.config)
    assert loaded.answer(regions, ["what", "is"]) == speaking.answer(regions, ["what", "is"])
    (tmp_path / "answers.txt").write_text("one\ntwo\n")
    with pytest.raises(LegendaError, match=r"answers\.txt"):
        load_any(tmp_path)


def test_the_box_is_that_of_the_best_region_moved_and_cut(regions):
    model = grounder(vocab_size=5)
    model.vocabulary = WORDS
    with torch.no_grad():
        model.deltas.weight.zero_()
        model.deltas.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))  # a tenth of its width to the right
        scores, _ = model(regions, torch.tensor([[2, 0, 0, 0, 0], [3, 4, 0, 0, 0]]))
    sizes = np.array([[100.0, 50.0], [40.0, 80.0]], np.float32)
    found = model.locate(regions, [["what"], ["is", "here"]], sizes)
    for row, best in enumerate(scores.argmax(dim=-1).tolist()):
        width, height = sizes[row]
        x1, y1, x2, y2 = (regions.boxes[row, best] * torch.tensor([width, height, width, height])).tolist()
        step = 0.1 * (x2 - x1 + 1)
        expected = [min(x1 + step, width - 1), y1, min(x2 + 1 + step, width - 1), min(y2 + 1, height - 1)]
        assert found[row].tolist() == pytest.approx(expected, abs=1e-3)
