"""`legenda report`: one page that compares runs: scores, training curves, and predictions with their attention."""

from collections.abc import Sequence

from legenda.cli.options import parse


def run(arguments: Sequence[str]) -> None:
    """Write the page and print the scores and where it is."""
    from legenda.report.options import ReportOptions

    options = parse(ReportOptions, arguments, "report")
    from legenda.evaluation.runs import CaptionerRun, load_run, unique_run_names
    from legenda.report.captions import write_caption_report
    from legenda.report.tasks import write_task_report
    from legenda.terminal import progress_bar

    runs = {name: load_run(folder, options) for name, folder in unique_run_names(options.runs).items()}
    captioners = {name: opened for name, opened in runs.items() if isinstance(opened, CaptionerRun)}
    if len(captioners) == len(runs):
        print(write_caption_report(captioners, options, progress_bar=progress_bar))
    else:
        print(write_task_report(runs, options, progress_bar=progress_bar))
