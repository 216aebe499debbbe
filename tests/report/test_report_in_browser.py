"""The report in a real browser: pointer, keyboard, touch, contrast and narrow screens."""

from dataclasses import replace

import numpy as np
import pytest

from legenda.metrics.results import Prediction
from legenda.report import Report

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
    page.locator(".skip").focus()
    page.keyboard.press("Enter")  # skips the table
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
@pytest.mark.parametrize("grid", [False, True])
def test_a_phone_needs_no_sideways_scrolling(report, opened, grid):
    page = opened(_on_a_grid(report, 7) if grid else report, width=390)
    for summary in page.locator("summary").all():
        summary.click()
    _word(page, 0, "transformer", 0).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    edges = page.locator("select").evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().right)")
    assert all(edge <= 375 for edge in edges)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(report, opened, scheme):
    page = opened(report, color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    for model in ("transformer", "ngsan"):
        _word(page, 1, model, 2).click()
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [entry for entry in found if entry["ratio"] < 4.5] == []
