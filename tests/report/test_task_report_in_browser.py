"""The report of other tasks in a real browser: questions, boxes over images, sentences, and scores by group."""

from dataclasses import replace

import numpy as np
import pytest

from legenda.report import Breakdown, Report
from legenda.tasks.reporting import Prediction

pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

REFERENCE, NEAR, FAR = (0.1, 0.1, 0.4, 0.4), (0.15, 0.1, 0.4, 0.45), (0.6, 0.5, 0.9, 0.9)


@pytest.fixture
def located(report) -> Report:
    """Twelve expressions of three kinds: ngsan finds all of them, the transformer every fourth."""
    examples = []
    for number, example in enumerate(report.examples):
        captions = {
            "transformer": Prediction((), number % 4 == 0, score=0.02, box=NEAR if number % 4 == 0 else FAR),
            "ngsan": Prediction((), True, score=0.81, box=NEAR),
        }
        facts = [("expression", "the thing next to the red circle")]
        examples.append(replace(example, boxes=(), references=(), captions=captions, facts=facts, box=REFERENCE))
    scores = [{"kind: near": 0.25, "kind: size": 0.5}, {"kind: near": 1.0}]
    runs = [
        replace(run, scores={**run.scores, **by_kind}, intervals={"kind: near": (0.125, 0.5)})
        for run, by_kind in zip(report.runs, scores, strict=True)
    ]
    rows = [("kind: near", "near", 8), ("kind: size", "size", 1234)]
    return replace(
        report,
        examples=examples,
        runs=runs,
        score_name="IoU",
        noun="expressions",
        verdicts=("correct", "wrong"),
        breakdowns=[Breakdown("kind of expression", rows)],
    )


def test_boxes_have_the_colors_of_the_models(located, opened):
    page = opened(located)
    card = page.locator(".card").nth(1)
    marks = card.locator(".mark-line, .mark-reference")
    found = marks.evaluate_all(
        "rects => rects.map(rect => ['x', 'y', 'width', 'height'].map(name => Number(rect.getAttribute(name))))"
    )
    expected = [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in (FAR, NEAR, REFERENCE)]
    np.testing.assert_allclose(found, np.array(expected) * 100, atol=0.02)
    strokes = marks.evaluate_all("rects => rects.map(rect => getComputedStyle(rect).stroke)")
    swatches = card.locator(".attention-swatch").evaluate_all(
        "nodes => nodes.map(node => getComputedStyle(node).backgroundColor)"
    )
    assert strokes == [*swatches, "rgb(255, 255, 255)"]
    widths = marks.evaluate_all("rects => rects.map(rect => parseFloat(rect.getAttribute('stroke-width')))")
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3
    assert card.locator(".attention-words").count() == 0
    assert card.locator(".facts").inner_text().split("\n") == ["expression", "the thing next to the red circle"]
    assert card.locator(".attention-verdict").all_text_contents() == ["✗ wrong", "✓ correct"]
    assert card.locator(".attention-score").all_text_contents() == ["IoU 0.02", "IoU 0.81"]
    assert page.locator(".hint").text_content().startswith("The dashed box is the reference")


@pytest.mark.slow
def test_mistakes_are_filtered_and_counted_with_the_kinds(located, opened):
    page = opened(located)
    status = page.get_by_role("status")
    assert status.text_content() == "12 of 12 expressions"
    page.get_by_role("button", name="mistakes 9").click()
    assert status.text_content() == "9 of 12 expressions"
    page.get_by_role("button", name="near 3").click()
    assert page.locator(".card:visible").count() == 3
    page.get_by_role("button", name="mistakes 3").click()
    assert status.text_content() == "4 of 12 expressions"


@pytest.mark.slow
def test_no_filter_for_mistakes_without_mistakes(located, opened):
    right = [replace(example, captions={"ngsan": example.captions["ngsan"]}) for example in located.examples]
    assert opened(replace(located, examples=right)).get_by_role("button", name="mistakes").count() == 0


@pytest.mark.slow
def test_a_second_table_has_the_scores_by_group(located, opened):
    page = opened(located)
    table = page.get_by_role("region", name="Scores by kind of expression")
    assert table.locator("thead th").all_text_contents() == [
        "kind of expression",
        "expressions",
        "transformer",
        "ngsan",
    ]
    assert table.locator("tbody th").all_text_contents() == ["near", "size"]
    cells = table.locator("tbody td")
    assert cells.nth(0).text_content() == "8"
    assert cells.nth(1).text_content() == "25.0 %, interval 12.5 – 50.0 %"
    assert cells.nth(2).locator("strong").text_content() == "100.0 % (best)"
    assert [cells.nth(n).text_content() for n in (3, 4, 5)] == ["1,234", "50.0 %", "—"]


@pytest.mark.slow
def test_examples_without_image(located, opened):
    captions = {name: Prediction(("ein", "Mann"), score=57.25) for name in (run.name for run in located.runs)}
    facts = [("source", "a man"), ("reference", "ein Mann"), ("reference", "ein Kerl")]
    sentence = replace(
        located.examples[0], kind="", image=None, media_type="", captions=captions, facts=facts, box=None
    )
    page = opened(replace(located, examples=[sentence], score_name="chrF", noun="sentences"))
    card = page.locator(".card")
    assert card.locator("img").count() == 0
    assert card.locator(".facts dt").all_text_contents() == ["source", "reference", "reference"]
    assert card.locator(".attention-words").all_text_contents() == ["einMann", "einMann"]
    assert page.locator(".hint").count() == 0
    assert "null" not in page.locator("#examples").inner_text()


@pytest.mark.slow
def test_a_narrow_screen_shows_the_groups_without_scrolling(located, opened):
    page = opened(located, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
