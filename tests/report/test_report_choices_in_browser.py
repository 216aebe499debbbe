"""The filters of the report: images by kind, score and length, and the attention head."""

from dataclasses import replace

import numpy as np
import pytest

from legenda.report import Report

pytest.importorskip("playwright.sync_api", reason="needs the playwright package")


@pytest.mark.slow
def test_filters_hide_and_count_examples(report, opened):
    page = opened(report)
    cards = page.locator(".card:visible")
    assert cards.count() == 12
    page.get_by_role("button", name="near 4").click()
    assert cards.locator(".kind").all_text_contents() == ["near"] * 4
    page.get_by_role("button", name="models disagree 3").click()
    assert page.get_by_role("status").text_content() == "3 of 12 images"
    assert cards.count() == 3
    page.get_by_role("button", name="all 9").click()
    assert cards.count() == 9
    assert cards.locator(".is-false").count() == 9
    page.get_by_role("button", name="models disagree").click()
    assert cards.count() == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "numbers"),
    [
        ("the best by CIDEr-D", [11, 10, 9]),
        ("the worst by CIDEr-D", [0, 1, 2]),
        ("the best of transformer by CIDEr-D", [0, 1, 2]),
        ("the worst of transformer by CIDEr-D", [11, 10, 9]),
        ("the most different by CIDEr-D", [11, 10, 9]),  # 2.4, 2.0 and 1.6 apart; the first is 1.0
        ("all, in data set order", list(range(12))),
    ],
)
def test_orders_by_score(ranked, opened, view, numbers):
    page = opened(ranked)
    choice = page.get_by_role("combobox", name="Show")
    choice.select_option(label="the worst of ngsan by CIDEr-D")
    choice.select_option(label=view)
    shown = page.locator(".card:visible .example-id").all_text_contents()
    assert shown == [f"test-{number:04d}" for number in numbers]
    assert page.get_by_role("status").text_content() == f"{len(numbers)} of 12 images"


@pytest.mark.slow
def test_filter_by_length(ranked, opened):
    page = opened(ranked)
    choice = page.get_by_role("combobox", name="Length")
    labels = choice.locator("option").all_text_contents()
    assert labels == ["any length", "up to 4 words", "5 to 6 words", "7 words and more"]
    counts = []
    for label in labels:
        choice.select_option(label=label)
        counts.append(page.locator(".card:visible").count())
    assert counts == [12, 4, 4, 4]
    page.get_by_role("combobox", name="Show").select_option(label="the best by CIDEr-D")
    assert page.locator(".card:visible .example-id").all_text_contents() == ["test-0011", "test-0010"]


@pytest.fixture
def headed(report) -> Report:
    """Three images; one model has three heads with different weights, the other a single one."""
    random = np.random.default_rng(1)
    examples = []
    for example in report.examples[:3]:
        words, regions = len(example.captions["ngsan"].words), len(example.boxes)
        with_heads = replace(example.captions["ngsan"], attention=random.dirichlet(np.ones(regions), (words, 3)))
        examples.append(replace(example, captions={**example.captions, "ngsan": with_heads}))
    return replace(report, examples=examples)


def _word(page, model: str, word: int):
    card = page.locator(".card").nth(1)
    return card.get_by_role("toolbar", name=f"Words of the caption by {model}").get_by_role("button").nth(word)


def _expect_highlight(page, weights: np.ndarray) -> None:
    windows = page.locator(".card").nth(1).locator("mask rect[fill='black']")
    revealed = windows.evaluate_all("rects => rects.map(rect => Number(rect.getAttribute('fill-opacity')))")
    np.testing.assert_allclose(revealed, weights / weights.max(), atol=5e-3)
    label = page.locator(".card").nth(1).locator(".attention-weight").text_content()
    assert abs(float(label or "nan") - weights.max()) <= 0.0051


def test_attention_of_the_selected_head_is_shown(headed, opened):
    page = opened(headed)
    attention = headed.examples[1].captions["ngsan"].attention
    choice = page.get_by_role("combobox", name="Attention")
    assert choice.locator("option").all_text_contents() == ["all heads averaged", "head 0", "head 1", "head 2"]
    word = _word(page, "ngsan", 2)
    word.click()
    page.mouse.move(2, 2)
    _expect_highlight(page, attention[2].mean(axis=0))
    for head in (2, 0):
        choice.select_option(label=f"head {head}")
        _expect_highlight(page, attention[2, head])
        best = attention[2, head].argmax() + 1
        assert f"strongest region {best} of" in (word.get_attribute("aria-label") or "")
    assert page.locator(".card").nth(1).locator(".attention-head:visible").all_text_contents() == [
        "no head 0: mean",
        "head 0",
    ]
    _word(page, "transformer", 1).hover()
    _expect_highlight(page, headed.examples[1].captions["transformer"].attention[1])
    choice.select_option(label="all heads averaged")
    _word(page, "ngsan", 4).hover()
    _expect_highlight(page, attention[4].mean(axis=0))
    assert page.locator(".attention-head:visible").count() == 0


@pytest.mark.slow
def test_the_keyboard_selects_a_head(headed, opened):
    page = opened(headed)
    page.get_by_role("combobox", name="Attention").focus()
    page.keyboard.press("ArrowDown")
    _word(page, "ngsan", 0).focus()
    _expect_highlight(page, headed.examples[1].captions["ngsan"].attention[0, 0])


@pytest.mark.slow
def test_models_with_one_head_have_no_selection(report, opened):
    assert opened(report).get_by_role("combobox", name="Attention").count() == 0


@pytest.mark.slow
def test_a_run_without_scores_and_regions_that_are_the_whole_image(report, opened):
    boxes = [[0.1, 0.1, 0.5, 0.5], [0, 0, 1, 1], [0, 0, 1, 1]]
    first = report.examples[0]
    weights = np.array([[0.1, 0.5, 0.4]])
    view = replace(next(iter(first.captions.values())), words=["cat"], attention=weights, boxes=None, score=None)
    run = replace(report.runs[0], scores={}, intervals={}, curves={})
    example = replace(first, boxes=boxes, captions={run.name: view})
    page = opened(replace(report, columns=(), breakdowns=(), runs=[run], examples=[example]))
    assert page.locator("#scores h2").inner_text() == "Model"
    assert page.locator("#scores table").count() == 0
    page.get_by_role("button", name="cat").hover()
    assert page.locator(".attention-weight").inner_text() == "0.10"
    lines = page.locator(".attention-scale div").all_inner_texts()
    assert lines == ["largest 0.10, 0.3 × uniform (0.33 in 3)", "0.90 on regions that are the whole image"]
