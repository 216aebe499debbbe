"""The photographs of the package, captioned by one model, as part of a report or as one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from legenda.errors import ConfigError
from legenda.evaluation.runs import load_captioner_run
from legenda.extractors import read_image
from legenda.models import describe_model
from legenda.pipeline import Pipeline
from legenda.report import Report, write_report
from legenda.report.build import caption_card
from legenda.report.content import ExampleCard, ModelRun
from legenda.report.images import ReportImage, no_verdict, packaged_photographs

LIMITS = (
    "The packaged model was trained on 6,000 photographs, most of them of people and dogs outdoors (Flickr8k); what it "
    "names of other things, as in these photographs, is often wrong."
)


@dataclass(frozen=True)
class CaptionedPhotographs:
    """A model without scores, and the photographs with its captions."""

    run: ModelRun
    examples: Sequence[ExampleCard]


def caption_photographs(model: str) -> CaptionedPhotographs:
    """Caption the photographs with a model, named as for `legenda.open`, by beam search with beam size 3."""
    run = load_captioner_run(model)
    paths = packaged_photographs()
    captions = Pipeline(run.model, run.resolve_extractor(None)).caption(paths)
    return CaptionedPhotographs(
        ModelRun(
            name=model,
            description=f"model of photographs: {describe_model(run.model.name).summary}",
            parameters=run.model.parameter_count,
            seconds=None,
            scores={},
            curves={},
            configuration=run.config,
        ),
        [
            caption_card(path.stem, ReportImage(read_image(path), "photograph", no_verdict), (), {model: caption}, {})
            for path, caption in zip(paths, captions, strict=True)
        ],
    )


def write_photograph_report(model: str, path: Path) -> tuple[CaptionedPhotographs | None, str]:
    """Write a report of the photographs alone; return them, and the captions and the path as text.

    Where the package has no such model, nothing is written, and the text is the reason.
    """
    try:
        photographs = caption_photographs(model)
    except ConfigError as error:
        return None, f"no photographs: {error}"
    report = Report(
        title="Photographs and the attention of each word",
        lead=f"The packaged model captions four photographs. Point at a word to see the attention. {LIMITS}",
        columns=(),
        runs=[photographs.run],
        examples=photographs.examples,
        footnotes=[],
    )
    write_report(report, path)
    lines = [f"{card.id}: {' '.join(card.captions[model].words)}" for card in photographs.examples]
    lines.append(f"{path.resolve()}: these photographs with the attention of each word; scenes follow")
    return photographs, "\n".join(lines)
