"""Reports as HTML pages: scores, training curves, and examples with the attention of every word."""

from legenda.report.content import Breakdown, ExampleCard, ModelRun, Report, ScoreColumn
from legenda.report.write import write_report

__all__ = ["Breakdown", "ExampleCard", "ModelRun", "Report", "ScoreColumn", "write_report"]
