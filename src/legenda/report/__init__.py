"""Reports as HTML pages: scores, and examples with the attention of every word."""

from legenda.report.page import ExampleCard, ModelRun, Report, ScoreColumn, write_report

__all__ = ["ExampleCard", "ModelRun", "Report", "ScoreColumn", "write_report"]
