"""The report in a real browser: what a reader sees when pointing, typing, filtering and holding a phone."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from legenda.viewing import CaptionView, Report, write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

CONTRASTS = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const colour = parsed(getComputedStyle(at).backgroundColor);
      if (colour[3] !== 0) return colour;
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


@pytest.fixture
def opened(browser, tmp_path) -> Iterator[Opened]:
    """Opens a report; at the end no error may have been logged and nothing requested but the file itself."""
    complaints: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_report(report: Report, width: int = 1280, **settings) -> "sync_api.Page":
        path = write_report(report, tmp_path / "report.html")
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url.split(":")[0] for url in requests} <= {"file", "data"}
    assert len([url for url in requests if url.startswith("file:")]) == len(contexts)


def _word(page, card: int, model: str, word: int):
    toolbar = page.locator(".card").nth(card).get_by_role("toolbar", name=f"Words of the caption by {model}")
    return toolbar.get_by_role("button").nth(word)


def _revealed(page, card: int) -> list[float]:
    """How far each region is freed from the shade, 0..1."""
    windows = page.locator(".card").nth(card).locator("mask rect[fill='black']")
    return windows.evaluate_all("rects => rects.map(rect => Number(rect.getAttribute('fill-opacity')))")


def _is_lit(page, card: int) -> bool:
    return page.locator(".card").nth(card).locator(".attention-overlay.is-lit").count() == 1


def _shares(report: Report, card: int, model: str, word: int) -> np.ndarray:
    attention = report.examples[card].captions[model].attention
    assert attention is not None
    return attention[word] / attention[word].max()


def _expect_lit(page, report: Report, card: int, model: str, word: int) -> None:
    """The overlay must show exactly the weights of that word."""
    assert _is_lit(page, card)
    np.testing.assert_allclose(_revealed(page, card), _shares(report, card, model, word), atol=2e-3)


def test_pointing_at_a_word_lights_its_regions(report, opened):
    page = opened(report)
    assert not _is_lit(page, 1)
    regions = page.locator(".card").nth(1).locator(".attention-region")
    assert regions.count() == len(report.examples[1].boxes)
    for model, word in (("transformer", 2), ("ngsan", 7)):
        _word(page, 1, model, word).hover()
        _expect_lit(page, report, 1, model, word)
        shares = _shares(report, 1, model, word)
        widths = [float(regions.nth(i).get_attribute("stroke-width") or 0) for i in range(len(shares))]
        assert np.diff(np.array(widths)[shares.argsort()]).min() >= 0
        assert max(widths) > 2 * min(widths)
        strongest = page.locator(".card").nth(1).locator(".attention-strongest rect").first
        x1, y1, x2, y2 = report.examples[1].boxes[int(shares.argmax())]
        drawn = [float(strongest.get_attribute(name) or 0) for name in ("x", "y", "width", "height")]
        np.testing.assert_allclose(drawn, np.array([x1, y1, x2 - x1, y2 - y1]) * 100, atol=0.02)
        label = page.locator(".card").nth(1).locator(".attention-weight")
        assert label.text_content() == f"{report.examples[1].captions[model].attention[word].max():.2f}"
    page.mouse.move(2, 2)
    assert not _is_lit(page, 1)
    assert not _is_lit(page, 0)


def test_the_keyboard_reaches_every_word(report, opened):
    page = opened(report)
    page.get_by_role("button", name="models disagree").focus()
    page.keyboard.press("Tab")
    _expect_lit(page, report, 0, "transformer", 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    _expect_lit(page, report, 0, "transformer", 2)
    page.keyboard.press("End")
    _expect_lit(page, report, 0, "transformer", 7)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")  # there is no further word
    page.keyboard.press("Home")
    page.keyboard.press("Tab")  # one tab stop per caption
    _expect_lit(page, report, 0, "ngsan", 0)
    weights = report.examples[0].captions["ngsan"].attention[0]
    name = f"a, strongest region {weights.argmax() + 1} of {weights.size}, weight {weights.max():.2f}"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name
    page.keyboard.press("Escape")
    assert not _is_lit(page, 0)


def test_a_tap_keeps_a_word_lit_until_the_next_tap(report, opened):
    page = opened(report, width=390, has_touch=True, is_mobile=True)
    _word(page, 0, "ngsan", 1).tap()
    _expect_lit(page, report, 0, "ngsan", 1)
    _word(page, 0, "ngsan", 5).tap()
    _expect_lit(page, report, 0, "ngsan", 5)
    assert page.locator(".attention-word[aria-pressed=true]").count() == 1
    _word(page, 0, "ngsan", 5).tap()
    assert not _is_lit(page, 0)


def test_filters_hide_and_count_examples(report, opened):
    page = opened(report)
    cards = page.locator(".card:visible")
    assert cards.count() == 12
    page.get_by_role("button", name="near 4").click()
    assert cards.locator(".kind").all_text_contents() == ["near"] * 4
    page.get_by_role("button", name="models disagree 3").click()
    assert page.get_by_role("status").text_content() == "3 of 12 pictures"
    assert cards.count() == 3
    page.get_by_role("button", name="all 9").click()
    assert cards.count() == 9
    assert cards.locator(".is-false").count() == 9
    page.get_by_role("button", name="models disagree").click()
    assert cards.count() == 12


def _ranked(report: Report) -> Report:
    """Captions with scores and lengths: the transformer's score falls, the other's rises faster with the number."""
    examples = []
    for number, example in enumerate(report.examples):
        captions = {}
        for name, score in (("transformer", 2 - 0.1 * number), ("ngsan", 1 + 0.3 * number)):
            view = example.captions[name]
            attention = view.attention
            assert attention is not None
            length = 3 + number % 6
            captions[name] = replace(view, words=list(view.words)[:length], attention=attention[:length], score=score)
        examples.append(replace(example, captions=captions))
    runs = [replace(run, intervals={"pair": (0.1, 0.25), "cider_d": (1.5, 2.25)}) for run in report.runs]
    return replace(report, examples=examples, runs=runs, score_name="CIDEr-D")


@pytest.mark.parametrize(
    ("view", "numbers"),
    [
        ("the best by CIDEr-D", [11, 10, 9]),
        ("the worst by CIDEr-D", [0, 1, 2]),
        ("the best of transformer by CIDEr-D", [0, 1, 2]),
        ("the worst of transformer by CIDEr-D", [11, 10, 9]),
        ("the most different by CIDEr-D", [11, 10, 9]),  # 2.4, 2.0 and 1.6 apart; the first is 1.0
        ("all, in the order of the data", list(range(12))),
    ],
)
def test_the_best_the_worst_and_the_most_different_are_shown_in_their_order(report, opened, view, numbers):
    page = opened(_ranked(report))
    choice = page.get_by_role("combobox", name="Show")
    choice.select_option(label="the worst of ngsan by CIDEr-D")
    choice.select_option(label=view)
    shown = page.locator(".card:visible .identity").all_text_contents()
    assert shown == [f"test-{number:04d}" for number in numbers]
    assert page.get_by_role("status").text_content() == f"{len(numbers)} of 12 pictures"


def test_captions_are_chosen_by_length(report, opened):
    page = opened(_ranked(report))
    choice = page.get_by_role("combobox", name="Length")
    labels = choice.locator("option").all_text_contents()
    assert labels == ["any length", "up to 4 words", "5 to 6 words", "7 words and more"]
    counts = []
    for label in labels:
        choice.select_option(label=label)
        counts.append(page.locator(".card:visible").count())
    assert counts == [12, 4, 4, 4]
    page.get_by_role("combobox", name="Show").select_option(label="the best by CIDEr-D")
    assert page.locator(".card:visible .identity").all_text_contents() == ["test-0011", "test-0010"]


def test_scores_show_their_intervals(report, opened):
    page = opened(_ranked(report))
    cells = page.locator("#scores tbody tr").first.locator("td")
    assert cells.nth(0).locator(".interval").text_content() == ", interval 10.0 – 25.0 %"
    assert cells.nth(4).locator(".interval").text_content() == ", interval 1.500 – 2.250"
    assert cells.nth(1).locator(".interval").count() == 0
    assert page.locator(".explanations").get_by_text("95 % interval").is_visible()


def test_each_model_lights_its_own_regions(report, opened):
    first = report.examples[0]
    own = replace(
        first.captions["ngsan"], boxes=[[0, 0, 0.5, 1], [0.5, 0, 1, 1]], attention=np.tile([0.9, 0.1], (8, 1))
    )
    page = opened(replace(report, examples=[replace(first, captions={**first.captions, "ngsan": own})]))
    visible = page.locator(".card .attention-overlay:visible")
    assert visible.count() == 1
    _word(page, 0, "ngsan", 1).hover()
    assert visible.locator(".attention-region").count() == 2
    _word(page, 0, "transformer", 1).hover()
    assert visible.locator(".attention-region").count() == len(first.boxes)
    page.mouse.move(2, 2)
    assert visible.count() == 1
    assert not _is_lit(page, 0)


def test_the_table_marks_the_best_and_shows_what_is_missing(report, opened):
    page = opened(report)
    rows = page.locator("#scores tbody tr")
    assert rows.nth(0).locator("td").all_text_contents()[:5] == ["13.1 %", "50.2 %", "52.4 %", "51.0 %", "1.623"]
    ngsan = rows.nth(1).locator("td")
    assert ngsan.all_text_contents()[:5] == ["97.4 % (best)", "93.0 % (best)", "99.0 % (best)", "—", "2.871 (best)"]
    assert ngsan.all_text_contents()[5:] == ["421 k", "79 s"]
    for column in report.columns:
        assert page.locator(".explanations").get_by_text(column.explanation).is_visible()


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
    """The first picture read from side x side cells, with one very long word and a model that says nothing."""
    cells = [[x / side, y / side, (x + 1) / side, (y + 1) / side] for y in range(side) for x in range(side)]
    attention = np.random.default_rng(0).dirichlet(np.ones(side * side), 2)
    captions = {
        "transformer": CaptionView(["Donaudampfschiff" * 20, "b"], attention, None, score=-1.5),
        "ngsan": CaptionView([], None, None),
    }
    return replace(report, examples=[replace(report.examples[0], boxes=cells, captions=captions)])


def test_many_regions_are_shaded_not_outlined(report, opened):
    grid = _on_a_grid(report, 10)
    page = opened(grid)
    assert page.locator(".attention-region").count() == 0
    _word(page, 0, "transformer", 1).hover()
    _expect_lit(page, grid, 0, "transformer", 1)
    assert page.locator(".attention-strongest .attention-line").count() == 1
    assert page.locator(".attention-caption").nth(1).get_by_text("no words").is_visible()
    assert page.locator(".attention-score").all_text_contents() == ["score -1.50"]


@pytest.mark.parametrize("grid", [False, True])
def test_a_phone_needs_no_sideways_scrolling(report, opened, grid):
    page = opened(_on_a_grid(report, 7) if grid else _ranked(report), width=390)
    for summary in page.locator("summary").all():
        summary.click()
    _word(page, 0, "transformer", 0).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    edges = page.locator("select").evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().right)")
    assert all(edge <= 375 for edge in edges)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(report, opened, scheme):
    page = opened(_ranked(report), color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    for model in ("transformer", "ngsan"):
        _word(page, 1, model, 2).click()
    page.get_by_role("button", name="near 4").click()
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [entry for entry in found if entry["ratio"] < 4.5] == []


def test_hostile_text_is_shown_as_it_is(hostile_text, hostile_report, opened):
    page = opened(hostile_report)
    assert page.title() == hostile_text
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 1
    viewer = (".attention-name", ".attention-word", ".attention-note")
    for place in (
        "h1",
        ".lead",
        "tbody th",
        "dd",
        "figcaption strong",
        ".identity",
        ".kind",
        *viewer,
        ".card li",
        "footer p",
    ):
        assert page.locator(place).first.text_content() == hostile_text, place


def test_a_report_without_examples_or_curves_shows_only_the_rest(report, opened):
    page = opened(
        replace(report, examples=[], footnotes=[], runs=[replace(report.runs[0], curves={}, configuration={})])
    )
    assert page.locator("h2:visible").all_text_contents() == ["Scores", "Configuration"]
    assert page.locator("#scores strong").count() == 0  # one model alone is not the best


def test_pictures_are_shown(report, opened):
    page = opened(report)
    widths = "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    assert page.locator(".card img").evaluate_all(widths) == [256] * 12
