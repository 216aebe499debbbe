"""The report as one HTML file: scores, training curves, captions and their attention."""

from pathlib import Path

from legenda.io import write_text
from legenda.report.content import Report
from legenda.report.page import render_html
from legenda.report.to_json import report_to_json

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "curve-chart.css", "box-marks.css", "report.css")
_SCRIPTS = (
    "dom.js",
    "attention-scale.js",
    "attention-viewer.js",
    "head-choice.js",
    "curve-chart.js",
    "example-filters.js",
    "box-marks.js",
    "report.js",
)


def write_report(report: Report, path: str | Path) -> Path:
    """Write the report as one self-contained HTML file and return its path.

    Raise DataError for boxes or attention weights of invalid shape or value, and when the file cannot be written.
    """
    path = Path(path)
    page = render_html(
        "report.html",
        styles=_STYLES,
        scripts=_SCRIPTS,
        data=report_to_json(report),
        texts={"title": report.title, "lead": report.lead},
        sources={"img-src": "data:"},
    )
    write_text(path, page)
    return path
