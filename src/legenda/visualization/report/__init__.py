"""Reports one can look at: scores, curves, and the attention of every word over its picture."""

from legenda.visualization.report.content import Breakdown, CaptionView, ExampleCard, ModelRun, Report, ScoreColumn
from legenda.visualization.report.write import write_report

__all__ = ["Breakdown", "CaptionView", "ExampleCard", "ModelRun", "Report", "ScoreColumn", "write_report"]
