"""The report of the demo: two models on held-out scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from legenda.data.captions import ScenesData, scene_captions
from legenda.data.scenes import FAMILIES, Scene, make_split
from legenda.errors import DataError
from legenda.evaluation.comparison import RANKING_METRIC
from legenda.evaluation.results_file import caption_settings, evaluation_path, write_evaluation
from legenda.evaluation.runs import load_captioner_run
from legenda.report import ModelRun, Report, ScoreColumn, write_report
from legenda.report.build import caption_card, model_runs, predict_and_score
from legenda.report.captions import SCENE_METRICS
from legenda.report.images import draw_scene_image
from legenda.report.photographs import LIMITS, CaptionedPhotographs
from legenda.search_options import SearchOptions

EXAMPLES_PER_FAMILY = 4
BEAM_SIZE = 3
_CURVES = ("truth", "pair", "axis", "size", "bind")

COLUMNS = (
    *(ScoreColumn(name, name, SCENE_METRICS[name], percent=True) for name in ("pair", "axis", "size", "bind", "truth")),
    ScoreColumn("CIDEr-D", "CIDEr-D", "similarity to the five reference captions"),
)

DESCRIPTIONS = {
    "transformer": "plain self-attention: reads the appearance of things, not their positions",
    "ngsan": "normalized queries and a geometric bias: attention depends on the boxes",
}


def write_demo_report(folders: Mapping[str, Path], path: Path, photographs: CaptionedPhotographs | None) -> str:
    """Evaluate the runs on the test scenes, write the page, and return the table of scores as text.

    photographs: further examples, which precede the scenes; None where there is no model for them.
    """
    runs = {name: load_captioner_run(folder) for name, folder in folders.items()}
    data = next(iter(runs.values())).data()
    if not isinstance(data, ScenesData):
        raise DataError(f"{next(iter(folders.values()))} was not trained on scenes; delete it and run the demo again")
    scenes = make_split("test", data.test, data.seed)
    split = scene_captions(scenes)
    captions, scored = predict_and_score(runs, dict.fromkeys(runs, split), BEAM_SIZE)
    for name, result in scored.items():
        settings = {
            "images": len(split),
            **caption_settings(runs[name].config, "test", SearchOptions(beam_size=BEAM_SIZE), "fast"),
        }
        results_file = evaluation_path(folders[name], "test")
        write_evaluation(results_file, settings, "captions", result.predictions, partial(dict, result.scores))
    scene_runs = model_runs(
        runs, scored, curve_metrics=_CURVES, validation_noun="validation scenes", descriptions=DESCRIPTIONS
    )
    report = Report(
        title="Why geometry-aware attention exists",
        lead=(
            "Two models were trained on the same drawn scenes, with the same seed and budget. Features describe the "
            "appearance of each thing, boxes its position. Plain self-attention cannot use the boxes: it names things "
            "that are there and gets their relation right by chance. Point at a word to see the attention when it was "
            "generated." + (" The photographs are captioned by the packaged model." if photographs else "")
        ),
        columns=COLUMNS,
        runs=[*scene_runs, *([photographs.run] if photographs else [])],
        examples=[
            *(photographs.examples if photographs else ()),
            *(
                caption_card(
                    split.ids[position],
                    draw_scene_image("test", position, data.seed),
                    scenes.captions[position],
                    {name: by_id[split.ids[position]] for name, by_id in captions.items()},
                    scored,
                )
                for position in _example_positions(scenes.scenes)
            ),
        ],
        footnotes=[*_footnotes(data), *([LIMITS] if photographs else [])],
        score_name=RANKING_METRIC,
    )
    write_report(report, path)
    return f"{_table(scene_runs)}\n\n{path.resolve()}: the page, one file that opens in a browser offline"


def _example_positions(scenes: Sequence[Scene]) -> list[int]:
    """Return the first scenes of each family, in the order of the split; the choice does not depend on captions."""
    by_family = [[index for index, scene in enumerate(scenes) if scene.family == family] for family in FAMILIES]
    return sorted(index for indices in by_family for index in indices[:EXAMPLES_PER_FAMILY])


def _footnotes(data: ScenesData) -> list[str]:
    return [
        f"{data.train:,} training, {data.validation} validation and {data.test} test scenes, all different; the "
        "checkpoint with the best validation truth was kept; test captions by beam search, beam size 3.",
        "Regions are connected components of the pixels, each crop resized to 8 x 8: things of one kind have equal "
        "features at every size and position.",
        "The attention shown is that of the last decoder layer over the encoded regions, the mean of all heads or a "
        "single head.",
        f"Measured on this machine with {torch.get_num_threads()} thread(s) in this process, one seed; "
        "research/results/scenes.md has three seeds and more attention mechanisms.",
    ]


def _table(runs: Sequence[ModelRun]) -> str:
    header = (
        f"{'test scenes':<14}"
        + "".join(f"{column.label:>9}" for column in COLUMNS)
        + f"{'parameters':>12}{'seconds':>9}"
    )
    lines = [header]
    for run in runs:
        cells = "".join("     none" if (v := run.scores[c.key]) is None else f"{v:>9.3f}" for c in COLUMNS)
        lines.append(f"{run.name:<14}{cells}{run.parameters:>12,}{run.seconds:>9.0f}")
    return "\n" + "\n".join(lines)
