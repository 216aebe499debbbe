"""Print the tables of research/results/flickr8k.md from evaluated runs.

    python research/benchmarks/flickr8k_table.py WORK [--split val]
    python research/benchmarks/flickr8k_table.py --simulate

WORK holds the files of flickr8k_features.py and the runs of flickr8k_runs.py with their evaluation_SPLIT.json. SPICE is
computed where LEGENDA_SPICE_JARS names its jars; its values and parsed captions are kept in WORK/spice for the next
call.

The comparison, fixed before the first run: CIDEr-D on `test`, beam 3 without a length penalty, means over the seeds;
the differences of seven models from `transformer` with 95 % intervals of a bootstrap over seeds and photographs, p from
its draws, corrected by Holm's procedure.
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from flickr8k_runs import STEPS

from legenda.io import write_json
from legenda.metrics import Scores, evaluate, holm
from legenda.metrics.scoring import read_references, read_single_predictions
from legenda.metrics.spice import JARS_VARIABLE, spice
from legenda.models.checkpoint import load_any
from legenda.text import ptb_tokenize

SHOWN = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
BASELINE = "transformer"
RESAMPLES, SAMPLES = 10_000, 8

Captions = Mapping[str, str]
SpiceValues = Mapping[str, Mapping[str, float | None]]
Runs = Mapping[str, Mapping[str, Scores]]
"""The scores of each model by seed."""


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", nargs="?", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--simulate", action="store_true", help="print how often intervals hold the true difference")
    options = parser.parse_args()
    if options.simulate:
        print_coverage()
    if options.work is not None:
        print_tables(options.work, options.split)


def print_tables(work: Path, split: str) -> None:
    """Print all tables of the runs in a folder."""
    references = read_references(work / "flickr8k.json", split=split)
    files = {model: sorted((work / "runs" / model).glob(f"seed*/evaluation_{split}.json")) for model in STEPS}
    texts = {
        model: {file.parent.name: read_single_predictions(file) for file in found}
        for model, found in files.items()
        if found
    }
    values = None
    if JARS_VARIABLE in os.environ:
        every = [captions for found in texts.values() for captions in found.values()]
        values = score_spice(every, references, work / "spice")
    runs = {
        model: {seed: score(captions, references, values) for seed, captions in found.items()}
        for model, found in texts.items()
    }
    print_comparison(runs)
    print_scores(runs)
    print_budgets({model: [file.parent for file in found] for model, found in files.items() if found})
    print_samples(texts, sorted(references)[:: len(references) // SAMPLES][:SAMPLES])


def score(captions: Captions, references: Mapping[str, Sequence[str]], spice: SpiceValues | None) -> Scores:
    """Return the scores of the captions of a run."""
    scores = evaluate(captions, references, metrics=["BLEU", "ROUGE-L", "CIDEr-D", "METEOR"])
    if spice is not None:
        values = [spice[image][caption] for image, caption in captions.items()]
        scores.corpus["SPICE"] = fmean(value for value in values if value is not None)
    return scores


def score_spice(texts: Iterable[Captions], references: Mapping[str, Sequence[str]], kept: Path) -> SpiceValues:
    """Return SPICE of all captions of each image; those of an earlier call are not computed again."""
    file = kept / "values.json"
    known = json.loads(file.read_text()) if file.is_file() else {}
    new = sorted({(image, text) for captions in texts for image, text in captions.items()})
    new = [(image, text) for image, text in new if text not in known.get(image, {})]
    firsts = list({image: (image, text) for image, text in new}.values())  # whose call parses all references, once
    for pairs in (firsts, sorted(set(new) - set(firsts))):
        if pairs:
            tokens = [[" ".join(ptb_tokenize(text)) for text in references[image]] for image, _ in pairs]
            _, values = spice([" ".join(ptb_tokenize(text)) for _, text in pairs], tokens, cache=kept / "parsed")
            for (image, text), value in zip(pairs, values, strict=True):
                known.setdefault(image, {})[text] = value
            write_json(file, known)
    return known


def two_way_bootstrap(*runs: np.ndarray, resamples: int = RESAMPLES) -> np.ndarray:
    """Return the mean score of each model in random draws of seeds and of photographs, `(models, resamples)`.

    runs: of each model the scores of the photographs by seed, `(seeds, photographs)`. A draw takes as many photographs
    as there are, with replacement and the same for all models, and for each model as many of its seeds.
    """
    generator = np.random.default_rng(0)
    photographs = _draw(runs[0].shape[1], resamples, generator)
    return np.stack([(photographs @ scores.T * _draw(len(scores), resamples, generator)).sum(1) for scores in runs])


def _draw(number: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return the weight of each of so many units in each draw."""
    return generator.multinomial(number, np.full(number, 1 / number), size=resamples) / number


def two_sided_p(differences: np.ndarray) -> float:
    """Return twice the share of drawn differences beyond 0 on the rarer side, the observed one counted on both."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + rarer) / (1 + len(differences)))


def print_coverage(seeds: int = 3, photographs: int = 500, rounds: int = 400) -> None:
    """Print the share of simulated comparisons of two equal models whose 95 % interval holds 0.

    The standard deviations between photographs, of the difference of two models and of single runs, are about those of
    the study; those between the means of seeds are varied.
    """
    generator = np.random.default_rng(0)
    print("| between seeds | of seeds and photographs | of photographs alone |\n|---|---|---|")
    for between in (0.0, 0.005, 0.01, 0.02):
        holds = np.zeros(2)
        for _ in range(rounds):
            first, second = (
                generator.normal(0, between, (seeds, 1)) + generator.normal(0, 0.105, (seeds, photographs))
                for _ in range(2)
            )
            first = first + generator.normal(0, 0.13, photographs)
            paired = (first.mean(0) - second.mean(0))[None]
            for number, runs in enumerate(((first, second), (paired, 0 * paired))):
                drawn = two_way_bootstrap(*runs, resamples=400)
                low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
                holds[number] += low <= 0 <= high
        print(f"| {between} | {holds[0] / rounds:.2f} | {holds[1] / rounds:.2f} |")


def print_comparison(runs: Runs) -> None:
    """Print CIDEr-D of the mean over seeds with its interval, and the differences from the first model."""
    scores = {
        model: np.array([[image["CIDEr-D"] for image in run.per_image.values()] for run in found.values()])
        for model, found in runs.items()
    }
    draws = dict(zip(scores, two_way_bootstrap(*scores.values()), strict=True))
    differences = {model: drawn - draws[BASELINE] for model, drawn in draws.items() if model != BASELINE}
    p = {model: two_sided_p(drawn) for model, drawn in differences.items()}
    corrected = dict(zip(p, holm(list(p.values())), strict=True))
    print(f"| | CIDEr-D | lowest and highest seed | less `{BASELINE}` | p | p, Holm |\n|---|---|---|---|---|---|")
    for model, values in scores.items():
        low, high = np.quantile(draws[model], [0.025, 0.975])
        seeds, rest = values.mean(1), ["", "", ""]
        if model in differences:
            first, last = np.quantile(differences[model], [0.025, 0.975])
            difference = values.mean() - scores[BASELINE].mean()
            rest = [f"{difference:+.3f} ({first:+.3f} to {last:+.3f})", f"{p[model]:.4f}", f"{corrected[model]:.4f}"]
        score = f"{values.mean():.3f} ({low:.3f}-{high:.3f})"
        print(f"| `{model}` | {score} | {seeds.min():.3f}, {seeds.max():.3f} | {' | '.join(rest)} |")


def print_scores(runs: Runs) -> None:
    """Print mean and standard deviation over seeds of each metric."""
    print(f"\n| | seeds | {' | '.join(SHOWN)} |\n|{'---|' * (len(SHOWN) + 2)}")
    for model, found in runs.items():
        columns = [spread([run.corpus.get(name) for run in found.values()]) for name in SHOWN]
        print(f"| `{model}` | {len(found)} | {' | '.join(columns)} |")


def print_budgets(folders: Mapping[str, Sequence[Path]]) -> None:
    """Print the size of each model, its steps, and the processor seconds of its steps, means over the seeds."""
    print("\n| | parameters | steps | seconds of the steps | of evaluation |\n|---|---|---|---|---|")
    for model, found in folders.items():
        seconds = [json.loads((folder / "seconds.json").read_text()) for folder in found]
        size = load_any(found[0]).parameter_count / 1e6
        means = [fmean(one[name] for one in seconds) for name in ("steps", "evaluate")]
        print(f"| `{model}` | {size:.2f} million | {STEPS[model]} | {means[0]:.0f} | {means[1]:.0f} |")


def print_samples(texts: Mapping[str, Mapping[str, Captions]], images: Sequence[str]) -> None:
    """Print the captions of some images by the first seed of each model."""
    print(f"\n| photograph | {' | '.join(f'`{model}`' for model in texts)} |\n|{'---|' * (len(texts) + 1)}")
    for image in images:
        print(f"| {image} | {' | '.join(next(iter(found.values()))[image] for found in texts.values())} |")


def spread(values: Sequence[float | None]) -> str:
    """Return the mean and the standard deviation of the values of seeds."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{fmean(known):.3f}" + (f" ± {stdev(known):.3f}" if len(known) > 1 else "")


if __name__ == "__main__":
    main()
