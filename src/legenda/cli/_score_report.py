"""Tables of scores on the standard output, and all results as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from legenda.io import write_json
from legenda.terminal import create_console, escape_controls

if TYPE_CHECKING:
    from legenda.evaluation.scoring import ScoringReport


def print_report(report: ScoringReport, out: Path | None) -> None:
    """Print notices and tables, and write the JSON file where one is named."""
    for notice in report.notices:
        print(escape_controls(notice), file=sys.stderr)
    console = create_console(highlight=False, markup=False, soft_wrap=True)
    for table in report.tables:
        console.print(table)
    if out is not None:
        write_json(out, report.results)
        print(f"all results are in {out}")
