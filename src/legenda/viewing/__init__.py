"""Reports one can look at: scores, curves, and the attention of every word over its picture."""

from legenda.viewing.content import Breakdown, CaptionView, Example, ModelRun, Report, ScoreColumn
from legenda.viewing.report import write_report

__all__ = ["Breakdown", "CaptionView", "Example", "ModelRun", "Report", "ScoreColumn", "write_report"]
