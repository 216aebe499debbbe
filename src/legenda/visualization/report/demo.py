"""The page of the demo: two models on scenes they have never seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from legenda.datasets.captions import ScenesData, scene_captions
from legenda.datasets.scenes import FAMILIES, Scene, make_split
from legenda.errors import UserError
from legenda.evaluation.results_file import caption_settings, evaluation_path, write_evaluation
from legenda.evaluation.runs import load_captioner_run
from legenda.tasks.predict import generate_captions
from legenda.visualization.report import ModelRun, Report, ScoreColumn, write_report
from legenda.visualization.report.build import RANKED_BY, example, model_run, predict_with_attention, score
from legenda.visualization.report.images import draw_subject

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

CURVES = ("truth", "pair", "axis", "size", "bind")

DESCRIPTIONS = {
    "transformer": "plain self-attention: what things look like, not where they lie",
    "ngsan": "normalised queries and a geometric bias: boxes take part in attention",
}


def write_demo_report(folders: Mapping[str, Path], path: Path) -> str:
    """Evaluates the runs on the test scenes, writes the page, and returns the table as text."""
    runs = {name: load_captioner_run(folder) for name, folder in folders.items()}
    data = next(iter(runs.values())).data()
    if not isinstance(data, ScenesData):
        raise UserError(f"{next(iter(folders.values()))} was not trained on scenes; delete it and call the demo again")
    made = make_split("test", data.test, data.seed)
    split = scene_captions(made)
    shown = _shown(made.scenes)
    tested = {
        name: score(generate_captions(opened.model, split, beam_size=BEAM), split) for name, opened in runs.items()
    }
    looked = {name: predict_with_attention(opened, split, shown, BEAM) for name, opened in runs.items()}
    for name, result in tested.items():
        settings = {"images": len(split), **caption_settings(runs[name].config, "test", BEAM, "fast")}
        kept = evaluation_path(folders[name], "test")
        write_evaluation(kept, settings, "captions", result.captions, partial(dict, result.scores))
    report = Report(
        title="Why geometry-aware attention exists",
        lead=(
            "Two models learnt from the same drawn scenes, with the same seed and budget. Features tell them what each "
            "thing looks like, boxes where it lies. Plain self-attention cannot use the boxes: it names things that "
            "are there and gets their relation right by chance. Hover a word to see where a model looked."
        ),
        columns=COLUMNS,
        runs=[
            model_run(opened, name, DESCRIPTIONS[name], tested[name], validated=CURVES, where="validation scenes")
            for name, opened in runs.items()
        ],
        examples=[
            example(
                split.ids[position],
                draw_subject("test", position, data.seed),
                made.captions[position],
                {name: found[split.ids[position]] for name, found in looked.items()},
                tested,
            )
            for position in shown
        ],
        footnotes=_footnotes(data),
        score_name=RANKED_BY,
    )
    write_report(report, path)
    return f"{_table(report.runs)}\n\n{path.resolve()}: the page, one file that opens in a browser offline"


def _shown(scenes: Sequence[Scene]) -> list[int]:
    """The first scenes of each family, in the order of the split: chosen before anything is known of the captions."""
    of_family = [[place for place, scene in enumerate(scenes) if scene.family == family] for family in FAMILIES]
    return sorted(place for places in of_family for place in places[:EXAMPLES_PER_FAMILY])


def _footnotes(data: ScenesData) -> list[str]:
    return [
        f"{data.train:,} training, {data.validation} validation and {data.test} test scenes, all different; the best "
        "validation truth chose each model; test captions by beam search, beam 3.",
        "Regions are connected components of the pixels, each crop resized to 8 x 8: things of one kind have equal "
        "features at every size and place.",
        "The attention shown is that of the last decoder layer over the encoded regions, all heads averaged or one.",
        f"Measured on this machine with {torch.get_num_threads()} thread(s) in this process, one seed; "
        "docs/results/scenes.md has three seeds and more attentions.",
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
