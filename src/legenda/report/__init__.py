"""Reports as HTML pages: scores, and examples with the attention of every word."""

from legenda.report.page import Breakdown, ExampleCard, ModelRun, Report, ScoreColumn, write_report

__all__ = ["Breakdown", "ExampleCard", "ModelRun", "Report", "ScoreColumn", "write_report"]
