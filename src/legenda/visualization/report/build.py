"""What every report is made of: scores with intervals, where each word looked, curves, examples."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from legenda.datasets.captions import CaptionDataset
from legenda.decoding import Decoded
from legenda.errors import UserError
from legenda.evaluation.runs import CaptionerRun, Run
from legenda.metrics import WITHOUT_JAVA, evaluate
from legenda.metrics.evaluation import Scores
from legenda.metrics.significance import intervals
from legenda.models import describe_model
from legenda.regions import Regions
from legenda.tasks.predict import generate_captions
from legenda.training.history import HISTORY, read_history
from legenda.visualization.caption_attention import (
    CaptionAttention,
    draw_caption_attention,
    extract_attention,
    write_sheet,
)
from legenda.visualization.overlay import average_heads
from legenda.visualization.report import CaptionView, ExampleCard, ModelRun
from legenda.visualization.report.encode_attention import packed_size
from legenda.visualization.report.images import Subject

RANKED_BY = "CIDEr-D"
"""The score of single captions."""
_MOST_CHARACTERS = 45_000
"""Of a page, that the attention of one picture may take, on average over the pictures."""


@dataclass(frozen=True)
class Tested:
    """What a model said of a split: captions, scores with intervals, and the score of each caption."""

    captions: Mapping[str, str]
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    ranks: Mapping[str, float]


def score(captions: Mapping[str, str], split: CaptionDataset) -> Tested:
    """The scores that need no Java and what the split measures, all with 95 % bootstrap intervals over images."""
    references = dict(zip(split.ids, split.references, strict=True))
    usual = evaluate(captions, references, metrics=WITHOUT_JAVA)
    measured = [usual]
    if split.score is not None:
        own = {identity: split.score({identity: caption}) for identity, caption in captions.items()}
        measured.append(Scores(split.score(captions), own, documents=None, df=None))
    corpus = {name: value for scores in measured for name, value in scores.corpus.items()}
    bounds = {name: found for scores in measured for name, found in intervals(scores).items() if found is not None}
    return Tested(
        captions,
        corpus,
        {name: (found.low, found.high) for name, found in bounds.items()},
        {identity: values[RANKED_BY] or 0.0 for identity, values in usual.per_image.items()},
    )


def predict_with_attention(
    opened: CaptionerRun, split: CaptionDataset, positions: Sequence[int], beam_size: int
) -> dict[str, CaptionAttention]:
    """Where each word of the best captions of the images at these positions looked, by identity."""
    found: dict[str, CaptionAttention] = {}
    vocabulary = opened.model.vocabulary

    def keep(part: np.ndarray, regions: Regions, decoded: Decoded) -> None:
        assert vocabulary is not None
        for row, position in enumerate(part.tolist()):
            found[split.ids[position]] = extract_attention(decoded, regions, vocabulary, row)[0]

    chosen = np.asarray(positions, dtype=np.int64)
    generate_captions(opened.model, split, beam_size=beam_size, need_attention=True, indices=chosen, callback=keep)
    return found


def check_head(opened: CaptionerRun, split: CaptionDataset, head: int) -> None:
    """UserError where the run's attention has no such head, told by the first image before all are captioned."""
    for seen in predict_with_attention(opened, split, [0], beam_size=1).values():
        try:
            average_heads(seen.heads, head)
        except UserError as error:
            raise UserError(f"{opened.folder}: {error}") from error


class Scored(Protocol):
    """Scores of a split under the keys of the report's columns, with intervals where there are some."""

    @property
    def scores(self) -> Mapping[str, float | None]: ...

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]: ...


def title_of(names: Sequence[str]) -> str:
    """The title of a page that compares runs of these names."""
    return " against ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def describe_run(opened: Run) -> str:
    """The model in a sentence, and which recipe made it."""
    recipe = opened.config.get("recipe")
    summary = describe_model(opened.model.name).summary
    made = f"recipe {recipe}" if recipe else "imported" if opened.imported else "a run of its own"
    return f"{opened.model.name}: {summary} ({made})"


def model_run(
    opened: Run,
    name: str,
    description: str,
    tested: Scored,
    *,
    validated: Sequence[str],
    where: str,
    loss: str = "training loss (nats per word)",
) -> ModelRun:
    """A run with its curves: the loss (and the reward) of training, and those validation scores that are named.

    where: what was validated on, for the titles; loss: the title of that curve. A run without a history, such as an
    imported one, has no curves.
    """
    history = read_history(opened.folder) if (opened.folder / HISTORY).exists() else []
    curves: dict[str, list[tuple[float, float]]] = {}
    for key, title in (("loss", loss), ("reward", "reward of samples")):
        curves[title] = [(record["step"], record[key]) for record in history if key in record]
    for key in validated:
        values = [(record["step"], record["validation"].get(key)) for record in history if "validation" in record]
        curves[f"{key} on {where}"] = [(step, value) for step, value in values if value is not None]
    return ModelRun(
        name=name,
        description=description,
        parameters=opened.model.parameter_count,
        seconds=max((record.get("seconds", 0.0) for record in history), default=None),
        scores=tested.scores,
        curves={title: points for title, points in curves.items() if points},
        configuration=_plain(opened.config),
        intervals=tested.intervals,
    )


def example(
    identity: str,
    subject: Subject,
    references: Sequence[str],
    looked: Mapping[str, CaptionAttention],
    tested: Mapping[str, Tested],
    *,
    with_heads: bool = True,
) -> ExampleCard:
    """One picture with the captions of all models; those that read other regions than the first bring their own.

    with_heads: whether each head of the attention is kept, or their mean alone.
    """
    first = next(iter(looked.values())).boxes
    picture, media_type = subject.encoded
    views = {}
    for name, seen in looked.items():
        verdict, reason = subject.judge(" ".join(seen.words))
        views[name] = CaptionView(
            seen.words,
            seen.heads if with_heads and seen.placed else seen.attention,
            verdict,
            reason,
            tested[name].ranks[identity],
            None if np.array_equal(seen.boxes, first) else seen.boxes.tolist(),
        )
    return ExampleCard(identity, subject.kind, picture, media_type, first.tolist(), references, views)


def heads_fit(pictures: Collection[Mapping[str, CaptionAttention]]) -> bool:
    """Whether the page may hold every head of the attention: 100 photographs with it must stay below 20 MB."""
    captions = [seen for looked in pictures for seen in looked.values()]
    characters = sum(packed_size(seen.heads) + 7 * average_heads(seen.heads).size for seen in captions)
    return characters <= _MOST_CHARACTERS * len(pictures)


def write_overlays(
    folder: Path, pictures: Mapping[str, tuple[Subject, Mapping[str, CaptionAttention]]], head: int | None
) -> int:
    """A sheet for each picture, by identity, and run that has attention; says how many."""
    written = 0
    for identity, (subject, looked) in pictures.items():
        for name, seen in looked.items():
            if not seen.placed or not seen.words:
                continue
            sheet = draw_caption_attention(subject.image, [seen], title=f"{identity}, {name}", head=head)
            write_sheet(sheet, folder, f"{identity}.{name}")
            written += 1
    return written


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(config))
