"""Print the tables of research/results/flickr8k.md from evaluated runs, and draw its curves.

    python research/benchmarks/flickr8k_table.py dataset_flickr8k.json.gz runs [runs.sc] --curves curves.png

Each folder holds the runs of a training stage as MODEL/seedN with their evaluation_val.json (`legenda evaluate RUN`),
and in MODEL/seed0 the evaluation_val_ensemble.json of all seeds. What is missing is left out. SPICE is computed where
LEGENDA_SPICE_JARS names its jars; its values and parsed captions are kept in FOLDER/spice for the next call.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from legenda.evaluation.scoring import read_references, read_single_predictions
from legenda.io import write_json
from legenda.metrics import WITHOUT_JAVA, Difference, Scores, compare, evaluate, holm, intervals
from legenda.metrics.spice import spice
from legenda.papers import all_recipes
from legenda.text import ptb_tokenize

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from drawing import Curve, draw_curves, save_figure

MODELS = tuple(recipe.model for name, recipe in all_recipes().items() if name.startswith("flickr8k."))
SHOWN = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
RESAMPLES, SAMPLES, WINDOW = 10_000, 8, 50
ENSEMBLE = "ensemble"
SPICE_JARS = "LEGENDA_SPICE_JARS"

Captions = Mapping[str, str]
SpiceValues = Mapping[str, Mapping[str, float | None]]
Runs = Mapping[str, Mapping[str, Scores]]
"""The scores of each model by seed, and of its ensemble."""


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("annotations")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--curves", type=Path)
    options = parser.parse_args()
    references = read_references(options.annotations, split="val")
    stages = []
    for folder in options.folders:
        texts = {model: read_captions(folder / model) for model in MODELS}
        texts = {model: found for model, found in texts.items() if "seed0" in found}
        spice = None
        if SPICE_JARS in os.environ:
            spice = score_spice(
                (one for found in texts.values() for one in found.values()), references, folder / "spice"
            )
        stages.append({model: score(found, references, spice) for model, found in texts.items()})
        print(f"\n## {folder}\n")
        print_scores(stages[-1])
        print_comparison(stages[-1])
        print_ensembles(stages[-1])
    for first, second in pairwise(stages):
        print_stages(first, second)
    print_samples(texts, sorted(references)[:: len(references) // SAMPLES][:SAMPLES])
    if options.curves is not None:
        curves = [curve(model, sorted((options.folders[0] / model).glob("seed*/metrics.jsonl"))) for model in stages[0]]
        save_figure(draw_curves(curves, score="training loss (nats per word)", title="Cross-entropy"), options.curves)


def read_captions(folder: Path) -> dict[str, Captions]:
    """Return the captions of a model's seeds and of their ensemble, as far as they are there."""
    files = {file.parent.name: file for file in sorted(folder.glob("seed*/evaluation_val.json"))}
    files[ENSEMBLE] = folder / "seed0" / "evaluation_val_ensemble.json"
    return {name: read_single_predictions(file) for name, file in files.items() if file.is_file()}


def score(
    texts: Mapping[str, Captions], references: Mapping[str, Sequence[str]], spice: SpiceValues | None
) -> dict[str, Scores]:
    """Return the scores of each set of captions."""
    found = {}
    for name, captions in texts.items():
        found[name] = evaluate(captions, references, metrics=[*WITHOUT_JAVA, "METEOR"])
        if spice is not None:
            values = [spice[image][caption] for image, caption in captions.items()]
            found[name].corpus["SPICE"] = fmean(value for value in values if value is not None)
    return found


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


def seeds(runs: Mapping[str, Scores]) -> list[Scores]:
    """Return the scores of the single runs."""
    return [scores for name, scores in runs.items() if name != ENSEMBLE]


def mean_of(runs: Sequence[Scores]) -> Scores:
    """Return the means over runs of CIDEr-D, of the corpus and of each image."""
    values = np.array([[image["CIDEr-D"] for image in run.per_image.values()] for run in runs]).mean(0).tolist()
    images = {image: {"CIDEr-D": value} for image, value in zip(runs[0].per_image, values, strict=True)}
    return Scores({"CIDEr-D": fmean(values)}, images, runs[0].documents, runs[0].df)


def difference(first: Sequence[Scores], second: Sequence[Scores]) -> Difference:
    """Return the difference in CIDEr-D of two means over runs."""
    found = compare(mean_of(first), mean_of(second), resamples=RESAMPLES)["CIDEr-D"]
    assert found is not None
    return found


def print_scores(runs: Runs) -> None:
    """Print mean and standard deviation over seeds of each metric."""
    print(f"| | seeds | {' | '.join(SHOWN)} |\n|{'---|' * (len(SHOWN) + 2)}")
    for model, found in runs.items():
        columns = [spread([run.corpus.get(name) for run in seeds(found)]) for name in SHOWN]
        print(f"| `{model}` | {len(seeds(found))} | {' | '.join(columns)} |")


def print_comparison(runs: Runs) -> None:
    """Print CIDEr-D of the mean over seeds with its interval, and the differences from the first model."""
    others = {model: difference(seeds(found), seeds(runs[MODELS[0]])) for model, found in runs.items()}
    del others[MODELS[0]]
    corrected = dict(zip(others, holm([found.p for found in others.values()]), strict=True))
    print(f"\n| | CIDEr-D | lowest and highest seed | less `{MODELS[0]}` | p | p, Holm |\n|---|---|---|---|---|---|")
    for model, found in runs.items():
        mean, values = mean_of(seeds(found)), [run["CIDEr-D"] for run in seeds(found)]
        bounds = intervals(mean, resamples=RESAMPLES)["CIDEr-D"]
        rest = ["", "", ""]
        if model in others:
            rest = [less(others[model]), f"{others[model].p:.4f}", f"{corrected[model]:.4f}"]
        score = f"{mean['CIDEr-D']:.3f} ({bounds.low:.3f}-{bounds.high:.3f})"
        print(f"| `{model}` | {score} | {min(values):.3f}, {max(values):.3f} | {' | '.join(rest)} |")


def print_ensembles(runs: Runs) -> None:
    """Print the scores of ensembles of seeds and their differences from the mean of the single runs."""
    found = {model: scores for model, scores in runs.items() if ENSEMBLE in scores}
    gains = [difference([scores[ENSEMBLE]], seeds(scores)) for scores in found.values()]
    if gains:
        print(f"\n| ensemble | {' | '.join(SHOWN)} | CIDEr-D less the mean of its runs | p, Holm |")
        print(f"|{'---|' * (len(SHOWN) + 3)}")
    for (model, scores), gain, p in zip(found.items(), gains, holm([gain.p for gain in gains]), strict=True):
        columns = [spread([scores[ENSEMBLE].corpus.get(name)]) for name in SHOWN]
        print(f"| `{model}` | {' | '.join(columns)} | {less(gain)} | {p:.4f} |")


def print_stages(first: Runs, second: Runs) -> None:
    """Print the gain of a later stage, over the seeds that have both."""
    gains = {}
    for model, found in second.items():
        both = [name for name in found if name != ENSEMBLE and name in first[model]]
        gains[model] = difference([found[name] for name in both], [first[model][name] for name in both])
    print("\n| | CIDEr-D, second stage less first | p, Holm |\n|---|---|---|")
    for (model, gain), p in zip(gains.items(), holm([gain.p for gain in gains.values()]), strict=True):
        print(f"| `{model}` | {less(gain)} | {p:.4f} |")


def print_samples(texts: Mapping[str, Mapping[str, Captions]], images: Sequence[str]) -> None:
    """Print the captions of some images by the first seed of each model."""
    print(f"\n| photograph | {' | '.join(f'`{model}`' for model in texts)} |\n|{'---|' * (len(texts) + 1)}")
    for image in images:
        print(f"| {image} | {' | '.join(captions['seed0'][image] for captions in texts.values())} |")


def curve(model: str, files: Sequence[Path]) -> Curve:
    """Return the training loss of each run, means over WINDOW steps."""
    losses, epochs = [], []
    for file in files:
        records = [json.loads(line) for line in file.read_text().splitlines() if '"learning_rate"' in line]
        steps = np.array([record["step"] for record in records])
        windows = [(steps > end - WINDOW) & (steps <= end) for end in range(WINDOW, steps[-1] + 1, WINDOW)]
        values = np.array([record["loss"] for record in records])
        losses.append([values[window].mean() for window in windows])
        epochs = [steps[window].mean() * records[-1]["epoch"] / steps[-1] for window in windows]
    return Curve(model, epochs, np.array(losses))


def spread(values: Sequence[float | None]) -> str:
    """Return the mean and the standard deviation of the values of seeds."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{fmean(known):.3f}" + (f" ± {stdev(known):.3f}" if len(known) > 1 else "")


def less(found: Difference) -> str:
    """Return a difference and its interval."""
    return f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


if __name__ == "__main__":
    main()
