"""The page of the demo: two models on scenes they have never seen."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from legenda.apps.evaluate import write_evaluation
from legenda.apps.runs import OpenRun, open_run
from legenda.data.caption_sets import CaptionSet, ScenesData, scene_set
from legenda.data.scenes import FAMILIES, Scene, draw_scene, judge, make_split
from legenda.decoding import Decoded
from legenda.errors import UserError
from legenda.regions import Regions
from legenda.training.history import read_history
from legenda.training.validation import describe_images, score_captions
from legenda.viewing import CaptionView, Example, ModelRun, Report, ScoreColumn, write_report

EXAMPLES_PER_FAMILY = 4
BEAM = 3

COLUMNS = (
    ScoreColumn("pair", "pair", "near scenes: names the two that almost touch; about 1 in 12 by chance", percent=True),
    ScoreColumn("axis", "axis", "near scenes: how they stand, where it is said; 1 in 2 by chance", percent=True),
    ScoreColumn("size", "size", "size scenes: which of two equal shapes is larger; 1 in 2 by chance", percent=True),
    ScoreColumn("bind", "bind", "bind scenes: how the two things of one colour stand; 1 in 2 by chance", percent=True),
    ScoreColumn("truth", "truth", "share of captions that are true as a whole, over all scenes", percent=True),
    ScoreColumn("CIDEr-D", "CIDEr-D", "likeness to the five reference captions"),
)

DESCRIPTIONS = {
    "transformer": "plain self-attention: what things look like, not where they lie",
    "ngsan": "normalised queries and a geometric bias: boxes take part in attention",
}


@dataclass(frozen=True)
class Tested:
    """What a model said of the test scenes: captions and scores, and where it looked in the scenes to be shown."""

    captions: Mapping[str, str]
    scores: Mapping[str, float | None]
    attention: Mapping[str, np.ndarray]


def write_demo_report(folders: Mapping[str, Path], path: Path) -> str:
    """Evaluates the runs on the test scenes, writes the page, and returns the table as text."""
    runs = {name: open_run(folder) for name, folder in folders.items()}
    data = next(iter(runs.values())).data()
    if not isinstance(data, ScenesData):
        raise UserError(f"{next(iter(folders.values()))} was not trained on scenes; delete it and call the demo again")
    made = make_split("test", data.test, data.seed)
    split = scene_set(made)
    shown = _shown(made.scenes)
    tested = {name: _test(opened, split, made.scenes, shown) for name, opened in runs.items()}
    for name, result in tested.items():
        write_evaluation(folders[name], "test", BEAM, result.captions, result.scores)
    report = Report(
        title="Why geometry-aware attention exists",
        lead=(
            "Two models learnt from the same drawn scenes, with the same seed and budget. Features tell them what each "
            "thing looks like, boxes where it lies. Plain self-attention cannot use the boxes: it names things that "
            "are there and gets their relation right by chance. Hover a word to see where a model looked."
        ),
        columns=COLUMNS,
        runs=[_run(runs[name], name, tested[name]) for name in runs],
        examples=[
            _example(scene, made.boxes[position], made.captions[position], tested)
            for position, scene in enumerate(made.scenes)
            if scene.identity in shown
        ],
        footnotes=_footnotes(data),
    )
    write_report(report, path)
    return f"{_table(report.runs)}\n\n{path.resolve()}: the page, one file that opens in a browser offline"


def _test(opened: OpenRun, split: CaptionSet, scenes: Sequence[Scene], shown: set[str]) -> Tested:
    attention: dict[str, np.ndarray] = {}

    def keep(positions: np.ndarray, regions: Regions, found: Decoded) -> None:
        assert found.attention is not None
        for row, position in enumerate(positions):
            if scenes[position].identity in shown:
                things = int(regions.valid[row].sum())
                attention[scenes[position].identity] = found.attention[row, 0].mean(dim=1)[:, :things].cpu().numpy()

    captions = describe_images(opened.model, split, beam_size=BEAM, need_attention=True, heard=keep)
    return Tested(captions, score_captions(captions, split), attention)


def _shown(scenes: Sequence[Scene]) -> set[str]:
    """The first scenes of each family: chosen before anything is known of the captions."""
    firsts = [[s.identity for s in scenes if s.family == family][:EXAMPLES_PER_FAMILY] for family in FAMILIES]
    return {identity for family in firsts for identity in family}


def _run(opened: OpenRun, name: str, tested: Tested) -> ModelRun:
    history = read_history(opened.folder)
    validated = [(record["step"], record["validation"]) for record in history if "validation" in record]
    losses = [(record["step"], record["loss"]) for record in history if "loss" in record]
    curves = {"training loss (nats per word)": losses}
    for key in ("truth", "pair", "axis", "size", "bind"):
        points = [(step, scores[key]) for step, scores in validated if scores.get(key) is not None]
        curves[f"{key} on validation scenes"] = points
    return ModelRun(
        name=name,
        description=DESCRIPTIONS[name],
        parameters=opened.model.parameter_count,
        seconds=max((record.get("seconds", 0.0) for record in history), default=0.0),
        scores=tested.scores,
        curves=curves,
        configuration=json.loads(json.dumps(opened.config)),
    )


def _example(scene: Scene, boxes: np.ndarray, references: Sequence[str], tested: Mapping[str, Tested]) -> Example:
    picture = io.BytesIO()
    draw_scene(scene).save(picture, format="PNG")
    views = {}
    for name, result in tested.items():
        words = result.captions[scene.identity].split()
        verdict = judge(result.captions[scene.identity], scene)
        attention = result.attention[scene.identity][: len(words)]
        views[name] = CaptionView(words, attention, verdict.true, verdict.reason)
    return Example(
        identity=scene.identity,
        kind=scene.family,
        picture=picture.getvalue(),
        media_type="image/png",
        boxes=boxes[: len(scene.things)].tolist(),
        references=references,
        captions=views,
    )


def _footnotes(data: ScenesData) -> list[str]:
    return [
        f"{data.train:,} training, {data.validation} validation and {data.test} test scenes, all different; the best "
        "validation truth chose each model; test captions by beam search, beam 3.",
        "Regions are connected components of the pixels, each crop resized to 8 x 8: things of one kind have equal "
        "features at every size and place.",
        "The attention shown is that of the last decoder layer over the encoded regions, all heads averaged.",
        f"Measured on this machine with {torch.get_num_threads()} thread(s) in this process, one seed; docs/scenes.md "
        "has three seeds and more attentions.",
    ]


def _table(runs: Sequence[ModelRun]) -> str:
    head = (
        f"{'test scenes':<14}"
        + "".join(f"{column.label:>9}" for column in COLUMNS)
        + f"{'parameters':>12}{'seconds':>9}"
    )
    lines = [head]
    for run in runs:
        cells = "".join("     none" if (v := run.scores[c.key]) is None else f"{v:>9.3f}" for c in COLUMNS)
        lines.append(f"{run.name:<14}{cells}{run.parameters:>12,}{run.seconds:>9.0f}")
    return "\n" + "\n".join(lines)
