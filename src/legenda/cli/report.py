"""`legenda report`: one page that compares runs: scores, curves, captions, and where each word looked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.datasets.captions import CaptionDataset
    from legenda.visualization.caption_attention import CaptionAttention
    from legenda.visualization.report import ScoreColumn
    from legenda.visualization.report.build import Tested
    from legenda.visualization.report.images import Subject

_EXPLAINED = {
    "truth": "share of captions that are true as a whole, over all scenes",
    "pair": "near scenes: names the two that almost touch; about 1 in 12 by chance",
    "axis": "near scenes: how they stand, where it is said; 1 in 2 by chance",
    "size": "size scenes: which of two equal shapes is larger; 1 in 2 by chance",
    "bind": "bind scenes: how the two things of one colour stand; 1 in 2 by chance",
    "CIDEr-D": "likeness to the references, rare words counting more; 0 to 10, often told times 100",
    "BLEU-1": "share of words that a reference has, with a penalty for short captions",
    "BLEU-4": "the same for runs of one to four words",
    "ROUGE-L": "longest common row of words with a reference",
}
"""The scores that a page shows, in the order of its columns."""
_SHARES = ("truth", "pair", "axis", "size", "bind")
_CURVES = (*_SHARES, "CIDEr-D", "BLEU-4")


@dataclass(frozen=True)
class Options:
    """Captions a split with one or more runs and writes one HTML file that compares them; it opens offline.

    The page holds scores with 95 % intervals, training curves, the captions of each run beside the references, where
    each word looked, and each run's configuration. All runs must be of the same images. Pictures lie in the page:
    scenes are drawn, photographs are looked for beside the annotations; where one is not found, its regions are drawn
    on a blank canvas.

    Runs of another task answer, locate or translate instead: a card has each question, expression or sentence, what
    people said of it and what each model says.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders; each reads data of its own, which must be of the same images."""
    split: str = "val"
    """Which images or other examples: train, val, test, or what else the data have, such as testA of RefCOCO."""
    out: Path = Path("report.html")
    """The page."""
    num_images: int = 100
    """How many of them to show; where there are more, the best, the worst, the most different, and some between."""
    image_folder: Path | None = None
    """The folder of the photographs, where they do not lie beside the annotations or in a folder there."""
    annotations: Path | None = None
    """Other annotations than the runs', in any layout that training reads; an imported model has none of its own."""
    features: Path | None = None
    """The features of their images."""
    beam_size: int = 3
    """Hypotheses that the search keeps."""
    overlays: Path | None = None
    """A folder for the attention as PNG too: a sheet for each picture and run, one tile a word."""
    head: int | None = None
    """The head of the attention that these sheets show, from 0; without it the mean of all. The page has all heads."""


def run(arguments: Sequence[str]) -> None:
    """Writes the page and says what it holds."""
    options = parse(Options, arguments, "report")
    if not options.runs:
        raise UserError("name at least one run folder, such as runs/demo/ngsan")
    if options.num_images < 0:
        raise UserError(f"--num-images must be 0 or more, not {options.num_images}")
    if options.head is not None and options.overlays is None:
        raise UserError("--head chooses what --overlays FOLDER draws; name the folder too")
    from legenda.cli.evaluate import data_of, describe
    from legenda.evaluation.runs import CaptionerRun, load_run, unique_run_names
    from legenda.visualization.report import Report, write_report
    from legenda.visualization.report.build import (
        RANKED_BY,
        check_head,
        describe_run,
        example,
        heads_fit,
        model_run,
        predict_with_attention,
        score,
        title_of,
        write_overlays,
    )
    from legenda.visualization.report.images import find_subjects
    from legenda.visualization.report.tasks import write_task_report

    given = {name: load_run(folder) for name, folder in unique_run_names(options.runs).items()}
    runs = {name: opened for name, opened in given.items() if isinstance(opened, CaptionerRun)}
    if len(runs) < len(given):
        write_task_report(given, options)
        return
    data = [data_of(opened, options.annotations, options.features) for opened in runs.values()]
    splits = dict(zip(runs, (settings.split(options.split) for settings in data), strict=True))
    split = next(iter(splits.values()))
    for name, other in splits.items():
        if other.ids != split.ids:
            raise UserError(
                f"{runs[name].folder} describes other images of {options.split} than {options.runs[0]}; report runs of "
                "the same data together, or name one with --annotations and --features"
            )
    if split.missing_targets is not None:
        raise UserError(
            f"the split {options.split} has no {split.missing_targets}, so nothing can be scored; choose another split"
        )
    if options.head is not None:
        for name, opened in runs.items():
            check_head(opened, splits[name], options.head)
    tested = {
        name: score(describe(opened, splits[name], options.beam_size), splits[name]) for name, opened in runs.items()
    }
    shown = choose([[tested[name].ranks[identity] for identity in split.ids] for name in runs], options.num_images)
    subjects = find_subjects(data[0], options.split, split.ids, shown, options.image_folder)
    looked = {
        name: predict_with_attention(opened, splits[name], shown, options.beam_size) for name, opened in runs.items()
    }

    seen: dict[int, Mapping[str, CaptionAttention]] = {
        position: {name: found[split.ids[position]] for name, found in looked.items()} for position in shown
    }
    pictures = {position: subjects(position, next(iter(seen[position].values())).boxes.tolist()) for position in shown}
    with_heads = heads_fit(seen.values())
    report = Report(
        title=title_of(list(runs)),
        lead=_lead(options, split, len(runs)),
        columns=_columns(tested),
        runs=[
            model_run(opened, name, describe_run(opened), tested[name], validated=_CURVES, where="validation images")
            for name, opened in runs.items()
        ],
        examples=[
            example(
                split.ids[position],
                pictures[position],
                split.references[position],
                seen[position],
                tested,
                with_heads=with_heads,
            )
            for position in shown
        ],
        footnotes=_footnotes(options, split, pictures, seen, with_heads),
        score_name=RANKED_BY,
    )
    path = write_report(report, options.out)
    for name, result in tested.items():
        print(f"{name}: {_told(result)}")
    if options.overlays is not None:
        named = {split.ids[position]: (pictures[position], looked) for position, looked in seen.items()}
        sheets = write_overlays(options.overlays, named, options.head)
        print(f"{options.overlays}: {sheets} sheets of attention")
    size = path.stat().st_size / 1e6
    print(f"{path.resolve()}: {len(shown)} pictures, {size:.1f} MB, one file that opens in a browser offline")


def choose(ranks: Sequence[Sequence[float]], count: int) -> list[int]:
    """Positions of the images to show, in order: all, or `count` of them.

    ranks: for each run the score of each image. A quarter each are those of the highest and of the lowest mean, and,
    of several runs, those on which they differ most; the others are spread evenly over the rest.
    """
    import numpy as np

    scores = np.asarray(ranks, dtype=float)
    images = scores.shape[1]
    if images <= count:
        return list(range(images))
    mean, spread = scores.mean(axis=0), np.ptp(scores, axis=0)
    orders = [(-mean).argsort(kind="stable"), mean.argsort(kind="stable")]
    if len(scores) > 1:
        orders.append((-spread).argsort(kind="stable"))
    chosen: dict[int, None] = {}
    for order in orders:
        fresh = [place for place in order.tolist() if place not in chosen]
        chosen.update(dict.fromkeys(fresh[: count // 4]))
    rest = [place for place in range(images) if place not in chosen]
    missing = count - len(chosen)
    chosen.update(dict.fromkeys(rest[place * len(rest) // missing] for place in range(missing)))
    return sorted(chosen)


def _columns(tested: Mapping[str, "Tested"]) -> list["ScoreColumn"]:
    from legenda.visualization.report import ScoreColumn

    measured = {name for result in tested.values() for name in result.scores}
    return [
        ScoreColumn(name, name, explanation, percent=name in _SHARES)
        for name, explanation in _EXPLAINED.items()
        if name in measured
    ]


def _lead(options: Options, split: "CaptionDataset", runs: int) -> str:
    models = "One model" if runs == 1 else f"{runs} models"
    return (
        f"{models}, {len(split):,} images of the split {options.split}, captions by beam search with beam "
        f"{options.beam_size}. Hover a word to see where a model looked when it chose it."
    )


def _footnotes(
    options: Options,
    split: "CaptionDataset",
    pictures: Mapping[int, "Subject"],
    seen: Mapping[int, Mapping[str, "CaptionAttention"]],
    with_heads: bool,
) -> list[str]:
    """What the reader must know to read the page rightly."""
    heads = "all heads averaged or one" if with_heads else "all heads averaged, as single ones are too much for a page"
    notes = [
        "The intervals are those of a percentile bootstrap over images, 95 %, 1,000 draws; they say nothing of other "
        "seeds of training.",
        f"The attention shown is that of the last decoder layer over the encoded regions, {heads}.",
    ]
    if len(pictures) < len(split):
        notes.append(
            f"{len(pictures)} of {len(split):,} pictures are shown: a quarter each those of the highest and of the "
            "lowest score and, of several models, those on which they differ most; the others are spread evenly."
        )
    blank = sum(not subject.found for subject in pictures.values())
    if blank:
        where = options.image_folder or "the folder of the annotations"
        notes.append(f"{blank} pictures were not found in {where}; their regions are drawn on a blank canvas.")
    without = {name for looked in seen.values() for name, found in looked.items() if not found.placed}
    if without:
        notes.append(f"The features of {', '.join(sorted(without))} have no boxes, so their attention has no place.")
    return notes


def _told(tested: "Tested") -> str:
    names = [name for name in _EXPLAINED if tested.scores.get(name) is not None]
    return "  ".join(
        f"{name} {tested.scores[name]:.3f} ({tested.intervals[name][0]:.3f} to {tested.intervals[name][1]:.3f})"
        for name in names
    )
