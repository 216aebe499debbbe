"""The report in a real browser: pointer, keyboard, touch, contrast and narrow screens."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from legenda.metrics import Difference
from legenda.report import Report
from legenda.tasks.reporting import Prediction

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

CONTRASTS = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const color = parsed(getComputedStyle(at).backgroundColor);
      if (color[3] !== 0) return color;
    }
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() &&
    [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim() !== ""));
  return texts.map((node) => {
    const style = getComputedStyle(node);
    const pair = [luminance(parsed(node.ownerSVGElement ? style.fill : style.color)), luminance(ground(node))];
    return {text: node.textContent, ratio: (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)};
  });
}"""

Opened = Callable[..., "sync_api.Page"]


def _word(page, card: int, model: str, word: int):
    toolbar = page.locator(".card").nth(card).get_by_role("toolbar", name=f"Words of the caption by {model}")
    return toolbar.get_by_role("button").nth(word)


def _transparency(page, card: int) -> list[float]:
    """Return the transparency of the shade over each region, 0..1."""
    windows = page.locator(".card").nth(card).locator("mask rect[fill='black']")
    return windows.evaluate_all("rects => rects.map(rect => Number(rect.getAttribute('fill-opacity')))")


def _is_highlighted(page, card: int) -> bool:
    return page.locator(".card").nth(card).locator(".attention-overlay.is-lit").count() == 1


def _relative_weights(report: Report, card: int, model: str, word: int) -> np.ndarray:
    attention = report.examples[card].captions[model].attention
    assert attention is not None
    return attention[word] / attention[word].max()


def _expect_highlight(page, report: Report, card: int, model: str, word: int) -> None:
    """Check that the overlay shows exactly the weights of that word."""
    assert _is_highlighted(page, card)
    np.testing.assert_allclose(_transparency(page, card), _relative_weights(report, card, model, word), atol=2e-3)


def test_pointing_at_a_word_highlights_its_regions(report, opened):
    page = opened(report)
    assert not _is_highlighted(page, 1)
    regions = page.locator(".card").nth(1).locator(".attention-region")
    assert regions.count() == len(report.examples[1].boxes)
    for model, word in (("transformer", 2), ("ngsan", 7)):
        _word(page, 1, model, word).hover()
        _expect_highlight(page, report, 1, model, word)
        weights = _relative_weights(report, 1, model, word)
        widths = [float(regions.nth(i).get_attribute("stroke-width") or 0) for i in range(len(weights))]
        assert np.diff(np.array(widths)[weights.argsort()]).min() >= 0
        assert max(widths) > 2 * min(widths)
        strongest = page.locator(".card").nth(1).locator(".attention-strongest rect").first
        x1, y1, x2, y2 = report.examples[1].boxes[int(weights.argmax())]
        drawn = [float(strongest.get_attribute(name) or 0) for name in ("x", "y", "width", "height")]
        np.testing.assert_allclose(drawn, np.array([x1, y1, x2 - x1, y2 - y1]) * 100, atol=0.02)
        label = page.locator(".card").nth(1).locator(".attention-weight")
        assert label.text_content() == f"{report.examples[1].captions[model].attention[word].max():.2f}"
    page.mouse.move(2, 2)
    assert not _is_highlighted(page, 1)
    assert not _is_highlighted(page, 0)


@pytest.mark.slow
def test_the_keyboard_reaches_every_word(report, opened):
    page = opened(report)
    page.get_by_role("button", name="models disagree").focus()
    page.keyboard.press("Tab")
    _expect_highlight(page, report, 0, "transformer", 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    _expect_highlight(page, report, 0, "transformer", 2)
    page.keyboard.press("End")
    _expect_highlight(page, report, 0, "transformer", 7)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")  # there is no further word
    page.keyboard.press("Home")
    page.keyboard.press("Tab")  # one tab stop per caption
    _expect_highlight(page, report, 0, "ngsan", 0)
    weights = report.examples[0].captions["ngsan"].attention[0]
    name = f"a, strongest region {weights.argmax() + 1} of {weights.size}, weight {weights.max():.2f}"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name
    page.keyboard.press("Escape")
    assert not _is_highlighted(page, 0)


@pytest.mark.slow
def test_a_tap_pins_a_word_until_the_next_tap(report, opened):
    page = opened(report, width=390, has_touch=True, is_mobile=True)
    _word(page, 0, "ngsan", 1).tap()
    _expect_highlight(page, report, 0, "ngsan", 1)
    _word(page, 0, "ngsan", 5).tap()
    _expect_highlight(page, report, 0, "ngsan", 5)
    assert page.locator(".attention-word[aria-pressed=true]").count() == 1
    _word(page, 0, "ngsan", 5).tap()
    assert not _is_highlighted(page, 0)


@pytest.mark.slow
def test_scores_show_their_intervals(ranked, opened):
    page = opened(ranked)
    cells = page.locator("#scores tbody tr").first.locator("td")
    assert cells.nth(0).locator(".interval").text_content() == ", interval 10.0 – 25.0 %"
    assert cells.nth(4).locator(".interval").text_content() == ", interval 1.500 – 2.250"
    assert cells.nth(1).locator(".interval").count() == 0
    assert page.locator(".explanations").get_by_text("95 % confidence interval").is_visible()


@pytest.mark.slow
def test_differences_have_a_row_for_each_other_model_and_a_column_for_each_score(report, opened):
    first, second = report.runs
    differences = {report.columns[-1].key: Difference(-0.25, -0.5, 0.125, 0.04)}
    page = opened(replace(report, runs=[first, replace(second, differences=differences)]))
    table = page.locator(".differences")
    assert table.locator("thead th").all_text_contents() == [
        f"difference from {first.name}",
        *(column.label for column in report.columns),
    ]
    assert table.locator("tbody th").all_text_contents() == [second.name]
    cells = table.locator("tbody td").all_text_contents()
    assert cells[-1] == "\u22120.250\u22120.500 to +0.125, p 0.040"
    assert set(cells[:-1]) == {"—"}


@pytest.mark.slow
def test_models_with_different_regions(report, opened):
    first = report.examples[0]
    separate = replace(
        first.captions["ngsan"], boxes=[[0, 0, 0.5, 1], [0.5, 0, 1, 1]], attention=np.tile([0.9, 0.1], (8, 1))
    )
    page = opened(replace(report, examples=[replace(first, captions={**first.captions, "ngsan": separate})]))
    visible = page.locator(".card .attention-overlay:visible")
    assert visible.count() == 1
    _word(page, 0, "ngsan", 1).hover()
    assert visible.locator(".attention-region").count() == 2
    _word(page, 0, "transformer", 1).hover()
    assert visible.locator(".attention-region").count() == len(first.boxes)
    page.mouse.move(2, 2)
    assert visible.count() == 1
    assert not _is_highlighted(page, 0)


@pytest.mark.slow
def test_the_table_marks_the_best_and_missing_scores(report, opened):
    page = opened(report)
    rows = page.locator("#scores tbody tr")
    assert rows.nth(0).locator("td").all_text_contents()[:5] == ["13.1 %", "50.2 %", "52.4 %", "51.0 %", "1.623"]
    ngsan = rows.nth(1).locator("td")
    assert ngsan.all_text_contents()[:5] == ["97.4 % (best)", "93.0 % (best)", "99.0 % (best)", "—", "2.871 (best)"]
    assert ngsan.all_text_contents()[5:] == ["421 k", "79 s"]
    for column in report.columns:
        assert page.locator(".explanations").get_by_text(column.explanation).is_visible()


@pytest.mark.slow
def test_one_chart_per_curve_and_gaps_stay_gaps(report, opened):
    broken = replace(
        report.runs[0], curves={"truth": [(1, 0.1), (2, 0.2), (3, math.nan), (4, 0.3)], "void": [(1, math.nan)]}
    )
    page = opened(replace(report, runs=[broken, report.runs[1]]))
    assert page.locator("#curves figcaption strong").all_text_contents() == ["truth", "training loss", "CIDEr-D"]
    figures = page.locator("#curves figure")
    assert [figures.nth(i).locator(".chart-series").count() for i in range(3)] == [2, 1, 1]
    path = figures.nth(0).locator("path").first.get_attribute("d")
    assert path is not None
    assert (path.count("M"), path.count("L")) == (2, 1)
    assert figures.nth(0).locator(".chart").get_attribute("aria-label") == (
        "truth: transformer from 0.100 at step 1 to 0.300 at step 4; ngsan from 0.149 at step 80 to 0.963 at step 2400"
    )
    figures.nth(1).locator(".chart").hover()
    assert figures.nth(1).locator(".chart-step").text_content() == "at step 1,040"


def _on_a_grid(report: Report, side: int) -> Report:
    """Return the first image with side x side cells, one very long word, and an empty caption."""
    cells = [[x / side, y / side, (x + 1) / side, (y + 1) / side] for y in range(side) for x in range(side)]
    attention = np.random.default_rng(0).dirichlet(np.ones(side * side), 2)
    captions = {
        "transformer": Prediction(["Donaudampfschiff" * 20, "b"], score=-1.5, attention=attention),
        "ngsan": Prediction(),
    }
    return replace(report, examples=[replace(report.examples[0], boxes=cells, captions=captions)])


@pytest.mark.slow
def test_many_regions_are_shaded_not_outlined(report, opened):
    grid = _on_a_grid(report, 10)
    page = opened(grid)
    assert page.locator(".attention-region").count() == 0
    _word(page, 0, "transformer", 1).hover()
    _expect_highlight(page, grid, 0, "transformer", 1)
    assert page.locator(".attention-strongest .attention-line").count() == 1
    assert page.locator(".attention-caption").nth(1).get_by_text("no words").is_visible()
    assert page.locator(".attention-score").all_text_contents() == ["score -1.50"]


@pytest.mark.slow
@pytest.mark.parametrize("grid", [False, True])
def test_a_phone_needs_no_sideways_scrolling(report, ranked, opened, grid):
    page = opened(_on_a_grid(report, 7) if grid else ranked, width=390)
    for summary in page.locator("summary").all():
        summary.click()
    _word(page, 0, "transformer", 0).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    edges = page.locator("select").evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().right)")
    assert all(edge <= 375 for edge in edges)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(ranked, opened, scheme):
    page = opened(ranked, color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    for model in ("transformer", "ngsan"):
        _word(page, 1, model, 2).click()
    page.get_by_role("button", name="near 4").click()
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [entry for entry in found if entry["ratio"] < 4.5] == []


@pytest.mark.slow
def test_hostile_text_is_displayed_literally(hostile_text, hostile_report, opened):
    page = opened(hostile_report)
    assert page.title() == hostile_text
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 1
    viewer = (".attention-name", ".attention-word", ".attention-note")
    for selector in (
        "h1",
        ".lead",
        "tbody th",
        "dd",
        "figcaption strong",
        ".example-id",
        ".kind",
        *viewer,
        ".card li",
        "footer p",
    ):
        assert page.locator(selector).first.text_content() == hostile_text, selector


@pytest.mark.slow
def test_a_report_without_examples_or_curves_shows_only_the_rest(report, opened):
    page = opened(
        replace(report, examples=[], footnotes=[], runs=[replace(report.runs[0], curves={}, configuration={})])
    )
    assert page.locator("h2:visible").all_text_contents() == ["Scores", "Configuration"]
    assert page.locator("#scores strong").count() == 0  # one model alone is not the best


@pytest.mark.slow
def test_images_are_decoded(report, opened):
    page = opened(report)
    widths = "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    assert page.locator(".card img").evaluate_all(widths) == [256] * 12
