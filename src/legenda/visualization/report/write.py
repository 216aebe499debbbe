"""One HTML file that shows what models learnt: scores, training curves, what they say and where each word looked."""

from pathlib import Path

from legenda.io import write_text
from legenda.visualization.page import compose_page
from legenda.visualization.report.content import Report
from legenda.visualization.report.to_json import plain_report

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "curve-chart.css", "place-marks.css", "report.css")
_SCRIPTS = (
    "dom.js",
    "attention-viewer.js",
    "head-choice.js",
    "curve-chart.js",
    "example-filters.js",
    "place-marks.js",
    "report.js",
)


def write_report(report: Report, path: str | Path) -> Path:
    """Writes the report as one self-contained HTML file and gives its path.

    Raises UserError when models or columns share a name, an example names an unknown model, holds no showable picture,
    or its boxes or attention weights are wrong in shape or value, and when the file cannot be written.
    """
    path = Path(path)
    page = compose_page(
        "report.html",
        styles=_STYLES,
        scripts=_SCRIPTS,
        data=plain_report(report),
        texts={"title": report.title, "lead": report.lead},
        sources={"img-src": "data:"},
    )
    write_text(path, page)
    return path
