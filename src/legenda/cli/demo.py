"""`legenda demo`: caption photographs, then compare two small models with and without geometry in their attention."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from legenda.cli._parallel import run_parallel
from legenda.config import Config
from legenda.data.captions import ScenesData, scene_captions
from legenda.data.scenes import FAMILIES, make_split
from legenda.errors import DataError, LegendaError
from legenda.evaluation.comparison import RANKING_METRIC
from legenda.evaluation.evaluate import caption_settings, write_evaluation
from legenda.evaluation.runs import load_captioner_run
from legenda.images import read_image
from legenda.pipeline import Pipeline
from legenda.report.images import ReportImage, draw_scene_image, packaged_photographs
from legenda.report.page import ExampleCard, ModelRun, Report, ScoreColumn, write_report
from legenda.report.predictions import SCENE_METRICS
from legenda.report.report import caption_card, model_runs, predict_and_score
from legenda.run_folder import evaluation_path
from legenda.training import is_finished

PHOTOGRAPH_MODEL = "photo"
MODELS = ("transformer", "ngsan")
_EXAMPLES_PER_FAMILY = 4
_SEARCH = {"beam_size": 3}

_COLUMNS = (
    *(ScoreColumn(name, name, SCENE_METRICS[name], percent=True) for name in ("pair", "axis", "size", "bind", "truth")),
    ScoreColumn("CIDEr-D", "CIDEr-D", "similarity to the five reference captions"),
)

_DESCRIPTIONS = {
    "transformer": "plain self-attention: reads the appearance of things, not their positions",
    "ngsan": "normalized queries and a geometric bias: attention depends on the boxes",
}

_LIMITS = (
    "It was trained on 4,030 photographs and on the boxes of 106,565 others, all of COCO; it knows the 80 kinds of "
    "things of COCO and everyday scenes, and is often wrong about what it never saw."
)


class DemoOptions(Config):
    """Caption four photographs with the packaged model, then train a plain Transformer and NG-SAN on drawn scenes.

    The page `report` has the photographs within seconds and, at the end, also a comparison of the two models. Run
    folders are written below the folder `runs`. The demo needs no network, about 1 GB of memory and a few minutes on
    two cores; called again, it uses what is already trained.
    """

    runs: Path = Path("runs/demo")
    """Where the run folders go."""
    report: Path = Path("report.html")
    """The page, one file that opens offline."""


def run(options: DemoOptions) -> None:
    """Caption the photographs, train and write the page."""
    photographs, text = _write_photograph_report(PHOTOGRAPH_MODEL, options.report)
    print(text, end="\n\n", flush=True)
    folders = {name: options.runs / name for name in MODELS}
    _train(folders)

    print(write_demo_report(folders, options.report, photographs), flush=True)
    script = Path(sys.argv[0])
    program = script if script.name == "legenda" else "python -m legenda"
    print(f"\nto caption your own photographs: {program} caption photo.jpg")


def _train(folders: Mapping[str, Path]) -> None:
    """Train the models at the same time, each in a process on one core."""
    jobs = {}
    for name, folder in folders.items():
        if is_finished(folder, f"scenes.{name}"):
            print(f"{name} is already trained in {folder}", flush=True)
        else:
            jobs[name] = [["train", f"scenes.{name}", "--out", str(folder)]]
    for name, reason in run_parallel(jobs, [{"OMP_NUM_THREADS": "1"}] * len(folders)).items():
        raise LegendaError(f"training {name} failed ({reason}); remove the cause and call again")


CaptionedPhotographs = tuple[ModelRun, list[ExampleCard]]
"""A model without scores, and the photographs with its captions."""


def caption_photographs(model: str) -> CaptionedPhotographs:
    """Caption the photographs with a model, named as for `legenda.open`, by beam search with beam size 3."""
    run = load_captioner_run(model)
    paths = packaged_photographs()
    captions = Pipeline.of_run(run, run.resolve_extractor(None)).caption(paths)
    described = ModelRun(model, run.summary, run.model.parameter_count, seconds=None, scores={})
    images = [ReportImage(read_image(path), "photograph") for path in paths]
    cards = [
        caption_card(path.stem, image, (), {model: caption}, {})
        for path, image, caption in zip(paths, images, captions, strict=True)
    ]
    return described, cards


def _write_photograph_report(model: str, path: Path) -> tuple[CaptionedPhotographs, str]:
    """Write a report of the photographs alone; return them, and the captions and the path as text."""
    described, cards = caption_photographs(model)
    report = Report(
        title="Photographs and the attention of each word",
        lead=f"The packaged model captions four photographs. {_LIMITS}",
        columns=(),
        runs=[described],
        examples=cards,
        footnotes=[],
    )
    write_report(report, path)
    lines = [f"{card.id}: {' '.join(card.captions[model].words)}" for card in cards]
    lines.append(f"{path.resolve()}: these photographs with the attention of each word; scenes follow")
    return (described, cards), "\n".join(lines)


def write_demo_report(folders: Mapping[str, Path], path: Path, photographs: CaptionedPhotographs) -> str:
    """Evaluate the runs on the test scenes, write the page, and return the table of scores as text.

    photographs: further examples, which precede the scenes.
    """
    packaged, cards = photographs
    runs = {name: load_captioner_run(folder) for name, folder in folders.items()}
    data = next(iter(runs.values())).data()
    if not isinstance(data, ScenesData):
        raise DataError(f"{next(iter(folders.values()))} was not trained on scenes; delete it and run the demo again")
    scenes = make_split("test", data.test, data.seed)
    split = scene_captions(scenes)
    captions, results = predict_and_score(runs, dict.fromkeys(runs, split), _SEARCH)
    for name, result in results.items():
        settings = {"images": len(split), **caption_settings(runs[name].config, "test", _SEARCH, "fast")}
        settings["weights"] = [runs[name].weights]
        predictions = {identity: caption.text for identity, caption in captions[name].items()}
        scores = {metric: score.value for metric, score in result.scores.items()}
        write_evaluation(
            evaluation_path(folders[name], "test"), settings, "captions", predictions, partial(dict, scores)
        )
    scene_runs = model_runs(runs, results, descriptions=_DESCRIPTIONS)
    # the first scenes of each family, so that the choice does not depend on captions
    by_family = [[index for index, scene in enumerate(scenes.scenes) if scene.family == family] for family in FAMILIES]
    shown = [index for indices in by_family for index in indices[:_EXAMPLES_PER_FAMILY]]
    report = Report(
        title="Captions and the attention of each word",
        lead="The packaged model captions four photographs; below, two small models with and without geometry in their "
        "attention caption drawn scenes.",
        about="Two models were trained on the same drawn scenes, with the same seed and budget. Features describe the "
        "appearance of each thing, boxes its position. Plain self-attention cannot use the boxes: it names things that "
        "are there and gets their relation right by chance.",
        columns=_COLUMNS,
        runs=[*scene_runs, packaged],
        examples=[
            *cards,
            *(
                caption_card(
                    split.ids[position],
                    draw_scene_image("test", position, data.seed),
                    scenes.captions[position],
                    {name: by_id[split.ids[position]] for name, by_id in captions.items()},
                    results,
                )
                for position in sorted(shown)
            ),
        ],
        footnotes=[
            f"{data.train:,} training, {data.validation} validation and {data.test} test scenes, all different; the "
            "checkpoint with the best validation truth was kept; test captions by beam search, beam size 3.",
            "Regions are connected components of the pixels, each crop resized to 8 x 8: things of one kind have equal "
            "features at every size and position.",
            "The attention shown is that of the last decoder layer over the encoded regions, the mean of all heads or "
            "a single head.",
            f"Measured on this machine with {torch.get_num_threads()} thread(s) in this process, one seed.",
            f"The packaged model: {_LIMITS}",
        ],
        score_name=RANKING_METRIC,
    )
    write_report(report, path)
    return f"{_table(scene_runs)}\n\n{path.resolve()}: the page, one file that opens in a browser offline"


def _table(runs: Sequence[ModelRun]) -> str:
    labels = "".join(f"{column.label:>9}" for column in _COLUMNS)
    lines = ["", f"{'test scenes':<14}{labels}{'parameters':>12}{'seconds':>9}"]
    for run in runs:
        cells = "".join("     none" if (v := run.scores[c.key]) is None else f"{v:>9.3f}" for c in _COLUMNS)
        lines.append(f"{run.name:<14}{cells}{run.parameters:>12,}{run.seconds:>9.0f}")
    return "\n".join(lines)
