"""`legenda score`: captions in a file against references in another."""

import dataclasses
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError
from legenda.io import write_json

if TYPE_CHECKING:
    from legenda.metrics import DocumentFrequencies, Scores

Captions = Mapping[str, Sequence[str]]

_DOWNLOAD = "--download-spice"


@dataclass(frozen=True)
class Options:
    """Scores captions against references: BLEU, ROUGE-L, CIDEr-D, and METEOR and SPICE where their programs are there.

    Every score has a 95 % interval (bootstrap over images). With --against, two files are compared image by image: the
    difference, its interval (paired bootstrap), and p (approximate randomisation). A file with several captions an
    image is measured for diversity instead, and for its best captions.

    legenda score --download-spice FOLDER fetches the parser that SPICE needs, about 400 MB, from Stanford.
    """

    predictions: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="PREDICTIONS")]]
    """COCO results (a list of image_id and caption), {id: caption}, {id: [captions]}, or an evaluation_SPLIT.json."""
    references: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="REFERENCES")]]
    """COCO's or Karpathy's annotations or {id: [captions]}, JSON or gzipped JSON."""
    split: Literal["train", "val", "test"] | None = None
    """Only the references of this split, in Karpathy's layout."""
    only_predicted: bool = False
    """Leave out references of images without prediction; else every image must be predicted."""
    references_per_image: int | None = None
    """At most so many references of each image, the first ones; COCO's c5 has 5."""
    c40: Path | None = None
    """References of COCO's second kind, 40 an image for some of the images; scored in a table of their own."""
    metrics: tuple[str, ...] = ("auto",)
    """Names such as BLEU ROUGE-L CIDEr-D CIDEr METEOR SPICE; auto is all but CIDEr."""
    df: Path | None = None
    """References that give CIDEr-D its document frequencies, such as captions_val2014.json; else those scored."""
    against: Path | None = None
    """Another file of predictions for the same images, to compare with."""
    training: Path | None = None
    """References that a model learnt from: how many captions are not among them?"""
    resamples: int = 1000
    """Draws of the bootstrap, and rounds of the randomisation."""
    seed: int = 0
    """Seed of the draws."""
    spice_jars: Path | None = None
    """The folder of SPICE's jars; else LEGENDA_SPICE_JARS names it."""
    out: Path | None = None
    """A JSON file for all that is measured, with the scores of each image."""


@dataclass(frozen=True)
class _Download:
    """Fetches Stanford CoreNLP 3.6.0, the parser of SPICE."""

    download_spice: Path
    """The folder for its jars."""


def run(arguments: Sequence[str]) -> None:
    """Prints tables and writes the file."""
    if any(argument.split("=")[0] == _DOWNLOAD for argument in arguments):
        _download(parse(_Download, arguments, "score").download_spice)
        return
    options = parse(Options, arguments, "score")
    from rich.console import Console

    from legenda.evaluation.caption_files import read_predictions

    _check(options)
    predictions = read_predictions(options.predictions)
    several = any(len(captions) > 1 for captions in predictions.values())
    with Console(file=sys.stderr).status(f"scoring {options.predictions}"):
        shown, report = (_measure_samples if several else _measure)(options, predictions)
        shown += _words(options, predictions, report)
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)
    for part in shown:
        console.print(part)
    if options.out is not None:
        write_json(options.out, {"predictions": str(options.predictions), **report})
        print(f"all scores of all images are in {options.out}")


def _measure(options: Options, predictions: Captions) -> tuple[list[Any], dict[str, Any]]:
    """One caption an image: scores, intervals and comparison for each set of references, as tables and as JSON."""
    from legenda.evaluation.caption_files import read_predictions, read_references
    from legenda.evaluation.score_tables import comparison_table, score_table
    from legenda.metrics import compare, intervals

    against = {} if options.against is None else read_predictions(options.against)
    frequencies = _frequencies(options.df)
    sets = {"c5" if options.c40 else "scores": _references(options)}
    if options.c40 is not None:
        sets["c40"] = read_references(options.c40)
    draws = {"resamples": options.resamples, "seed": options.seed}
    shown: list[Any] = []
    notices: list[str] = []
    report: dict[str, Any] = {"references": str(options.references), **draws}
    for name, references in sets.items():
        # Only some of COCO's images have 40 references, so there the others are left out unasked.
        some = name == "c40"
        chosen = _matched(options, options.predictions, predictions, references, some=some)
        scores = _evaluate(options, chosen, {image: references[image] for image in chosen}, frequencies)
        spread = intervals(scores, **draws)
        report[name] = {**scores.to_dict(), "intervals": _plain(spread)}
        source = "" if scores.df is None else f"; document frequencies of {scores.documents} images: {scores.df}"
        shown += [f"{name}: {len(chosen)} images{source}", score_table(scores, spread)]
        notices += scores.notices
        if options.against is not None:
            others = _matched(options, options.against, against, references, some=some)
            if set(others) != set(chosen):
                raise UserError(f"{options.predictions} and {options.against} are of different images; score the same")
            second = _evaluate(options, others, {image: references[image] for image in others}, frequencies)
            differences = compare(scores, second, **draws)
            compared = {"predictions": str(options.against), **second.to_dict(), "differences": _plain(differences)}
            report[name]["against"] = compared
            shown.append(f"{name}: {options.predictions} (first) against {options.against} (second)")
            shown.append(comparison_table(scores, second, differences))
    for notice in dict.fromkeys(notices):
        print(notice, file=sys.stderr)
    return shown, report


def _measure_samples(options: Options, predictions: Captions) -> tuple[list[Any], dict[str, Any]]:
    """Several captions an image: their diversity, and the best of them."""
    from legenda.evaluation.score_tables import diversity_table, oracle_table
    from legenda.metrics import WITHOUT_JAVA, measure_diversity, score_oracle

    if options.against is not None or options.c40 is not None:
        raise UserError(
            f"{options.predictions} has several captions an image, and --against and --c40 are for one; leave them out"
        )
    references = _references(options)
    matched = _matched(options, options.predictions, predictions, references, several=True)
    samples = {image: predictions[image] for image in matched}
    wanted = {image: references[image] for image in matched}
    df = _frequencies(options.df)
    diverse = measure_diversity(samples, df=wanted if df is None else df)
    metrics = WITHOUT_JAVA if options.metrics == ("auto",) else options.metrics
    oracles = score_oracle(samples, wanted, metrics=metrics, df=df)
    source = str(options.df or options.references)
    report = {
        "references": str(options.references),
        "diversity": {**asdict(diverse), "df": source},
        "oracle": {name: asdict(oracle) for name, oracle in oracles.items()},
    }
    shown = [
        f"diversity of {len(samples)} images; self-CIDEr's document frequencies of {diverse.documents}: {source}",
        diversity_table(diverse),
        "each caption scored alone, mean over images",
        oracle_table(oracles),
    ]
    return shown, report


def _words(options: Options, predictions: Captions, report: dict[str, Any]) -> list[str]:
    """Lines on the words of all captions, which are also put into the report."""
    from legenda.evaluation.caption_files import read_references
    from legenda.metrics import share_novel, vocabulary_size

    captions = [caption for group in predictions.values() for caption in group]
    report["vocabulary"] = vocabulary_size(captions)
    lines = [f"{len(captions)} captions of {len(predictions)} images use {report['vocabulary']} different words"]
    if options.training is not None:
        known = [caption for group in read_references(options.training).values() for caption in group]
        report["novel"] = share_novel(captions, known)
        lines.append(f"{100 * report['novel']:.1f} % of the captions are not in {options.training}")
    return lines


def _check(options: Options) -> None:
    if options.resamples < 1:
        raise UserError(f"--resamples must be at least 1, not {options.resamples}")
    if options.seed < 0:
        raise UserError(f"--seed must not be negative, and {options.seed} is")
    if options.references_per_image is not None and options.references_per_image < 1:
        raise UserError(f"--references-per-image must be at least 1, not {options.references_per_image}")


def _references(options: Options) -> dict[str, list[str]]:
    from legenda.evaluation.caption_files import read_references

    references = read_references(options.references, split=options.split)
    return {image: captions[: options.references_per_image] for image, captions in references.items()}


def _matched(
    options: Options,
    path: Path,
    predictions: Captions,
    references: Captions,
    *,
    some: bool = False,
    several: bool = False,
) -> dict[str, str]:
    """The first caption of each image with references; UserError, naming the file, where images have no counterpart."""
    if missing := [image for image in references if image not in predictions]:
        if not options.only_predicted:
            raise UserError(
                f"{path} lacks {len(missing)} of the {len(references)} images with references, such as {missing[0]}; "
                "predict them, name a --split, or add --only-predicted"
            )
        if len(missing) == len(references):
            raise UserError(f"{path} has no image in common with the references; check which files belong together")
    if not some and (extra := [image for image in predictions if image not in references]):
        raise UserError(
            f"{path} has captions for {len(extra)} images without references, such as {extra[0]}; "
            "leave them out or name other references"
        )
    for image, captions in predictions.items():
        if len(captions) > 1 and not several:
            raise UserError(f"{path} has {len(captions)} captions for image {image}; only one can be compared")
    return {image: captions[0] for image, captions in predictions.items() if image in references}


def _frequencies(path: Path | None) -> "DocumentFrequencies | None":
    if path is None:
        return None
    from legenda.evaluation.caption_files import read_references
    from legenda.metrics.evaluation import frequencies_of

    return frequencies_of(read_references(path), (), tokenized=False)[0]


def _evaluate(
    options: Options, captions: Mapping[str, str], references: Captions, frequencies: "DocumentFrequencies | None"
) -> "Scores":
    from legenda.metrics import evaluate

    metrics = "auto" if options.metrics == ("auto",) else options.metrics
    with warnings.catch_warnings(action="ignore"):
        scores = evaluate(captions, references, metrics=metrics, df=frequencies, spice_jars=options.spice_jars)
    if frequencies is None or scores.df is None:
        return scores
    return dataclasses.replace(scores, df=str(options.df))


def _plain(found: Mapping[str, Any]) -> dict[str, dict[str, float] | None]:
    return {name: None if value is None else asdict(value) for name, value in found.items()}


def _download(folder: Path) -> None:
    from legenda.cli.progress import progress_bar
    from legenda.metrics import download_corenlp
    from legenda.metrics.spice import VARIABLE

    with progress_bar(f"fetching CoreNLP into {folder}") as show:
        paths = download_corenlp(folder, progress=show)
    for path in paths:
        print(path)
    print(
        f"export {VARIABLE}={folder} makes legenda score use it; Java 15 and later also need there the jars of a "
        "JavaScript engine (Nashorn 15): see docs/guides/evaluation.md"
    )
