"""A paper's table with measured scores, as Markdown and in a real browser."""

from legenda.report.tables import ScoreRow, ScoreTable, markdown

TABLE = ScoreTable(
    title="Which <b>bold</b> row",
    lead="Somebody et al., Table 2.",
    metrics=("BLEU-4", "CIDEr-D"),
    rows=(
        ScoreRow("A | B", {"paper": ["38.4", "128.6"], "here": ["38.0 ± 0.2", "–"]}),
        ScoreRow("failed", {"paper": ["39.3", "130.8"]}, "training failed: no memory"),
    ),
    notes=("All scores times 100.",),
)


def test_the_markdown_has_two_lines_a_row():
    lines = markdown(TABLE).splitlines()
    assert "| A \\| B | paper | 38.4 | 128.6 |" in lines
    assert "|  | here | 38.0 ± 0.2 | – |" in lines
    assert "- failed: training failed: no memory" in lines
