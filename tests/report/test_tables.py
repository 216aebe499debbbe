"""A paper's table with measured scores, as Markdown and in a real browser."""

import pytest

from legenda.report.tables import Measured, ScoreRow, ScoreTable, markdown, write_score_page

TABLE = ScoreTable(
    title="Which <b>bold</b> row",
    lead="Somebody et al., Table 2.",
    metrics=("BLEU-4", "CIDEr-D"),
    rows=(
        ScoreRow("A | B", (38.4, 128.6), (Measured(37.96, 0.25), None)),
        ScoreRow("of others", (None, 120.1), None),
        ScoreRow("failed", (39.3, 130.8), None, "training failed: no memory"),
    ),
    notes=("All scores times 100.",),
)


def test_the_markdown_has_two_lines_a_row():
    lines = markdown(TABLE).splitlines()
    assert "| A \\| B | paper | 38.4 | 128.6 |" in lines
    assert "|  | here | 38.0 ± 0.2 | – |" in lines
    assert "- failed: training failed: no memory" in lines


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_the_page_shows_the_same_and_needs_nothing_else(browser, tmp_path, scheme, width):
    path = tmp_path / "table.html"
    write_score_page(TABLE, path)
    complaints: list[str] = []
    requests: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert page.title() == page.inner_text("h1") == "Which <b>bold</b> row"
    rows = [row.inner_text().split("\t") for row in page.locator("table tr").all()]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["row", "scores of", "BLEU-4", "CIDEr-D"],
        ["A | B", "paper", "38.4", "128.6"],
        ["here", "38.0 ± 0.2", "–"],
        ["of others", "paper", "–", "120.1"],
        ["failed\ntraining failed: no memory", "paper", "39.3", "130.8"],
    ]
    assert page.inner_text("footer") == "All scores times 100."
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    gray = sum(page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)"))
    assert (gray > 600) == (scheme == "light")
    context.close()
    assert complaints == []
    assert requests == [path.as_uri()]
