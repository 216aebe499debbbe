"""`legenda judge`: human evaluation of captions, its results, and how metrics agree with human ratings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from legenda.cli.options import parse


@dataclass(frozen=True)
class _Summarize:
    """Summarize the judgments of a file: shares of better, equal and worse, preference, agreement of the judges."""

    summarize: Path
    """A file that legenda judge wrote, whether or not judges are still at work."""
    out: Path | None = None
    """A JSON file for all results."""


@dataclass(frozen=True)
class _Correlate:
    """Print the rank correlation of every metric with human ratings of captions.

    Each rating is one observation, and captions that are references of their image do not count.
    """

    correlate: Path
    """Flickr8k's ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, or a .csv or .json table of image_id, caption
    and rating."""
    references: Path
    """Flickr8k.token.txt; or, for a table, COCO's or Karpathy's annotations or {id: [captions]}."""
    metrics: Literal["fast", "auto"] = "auto"
    """fast: metrics without Java; auto: METEOR and SPICE too, where their programs are installed."""
    out: Path | None = None
    """A JSON file for all results."""


def run(arguments: Sequence[str]) -> None:
    """Serve the page until the process is stopped; or print the tables and write the JSON file."""
    from legenda.cli._score_report import print_report

    given = {argument.split("=")[0] for argument in arguments}
    if "--summarize" in given:
        summary = parse(_Summarize, arguments, "judge")
        from legenda.evaluation.preference import summarize_judgments

        print_report(summarize_judgments(summary.summarize), summary.out)
    elif "--correlate" in given:
        options = parse(_Correlate, arguments, "judge")
        from legenda.cli.progress import progress_bar
        from legenda.evaluation.human_correlation import correlate

        with progress_bar(f"scoring the captions of {options.correlate}"):
            report = correlate(options.correlate, options.references, metrics=options.metrics)
        print_report(report, options.out)
    else:
        from legenda.serve.options import JudgeOptions

        serve = parse(JudgeOptions, arguments, "judge")
        from legenda.serve.judge_server import serve_pairs

        serve_pairs(serve, announce=lambda line: print(line, flush=True))
