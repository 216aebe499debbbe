"""Print the tables of docs/results/flickr8k.md from evaluated runs.

    python benchmarks/flickr8k_table.py dataset_flickr8k.json.gz "runs/{}" "runs/{}.sc"

The two patterns name the runs of both stages, with {} for the model; each needs its evaluation_val.json (`legenda
evaluate RUN`).
"""

import sys
from pathlib import Path

from legenda.evaluation.caption_files import read_predictions, read_references
from legenda.metrics import Scores, compare, evaluate, intervals
from legenda.metrics.evaluation import WITHOUT_JAVA
from legenda.recipes import all_recipes

MODELS = tuple(recipe.model for name, recipe in all_recipes().items() if name.startswith("flickr8k."))
SHOWN = ("BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D")
SAMPLES = 8


def main() -> None:
    """Print the tables in Markdown."""
    annotations, first, second = sys.argv[1:]
    references = read_references(annotations, split="val")
    stages: dict[str, dict[str, Scores]] = {first: {}, second: {}}
    texts: dict[str, dict[str, str]] = {}
    for pattern, found in stages.items():
        print(f"\n{pattern}\n\n| | {' | '.join(SHOWN)} | less `{MODELS[0]}` |\n|{'---|' * (len(SHOWN) + 2)}")
        for model in MODELS:
            captions = read_predictions(Path(pattern.format(model)) / "evaluation_val.json")
            texts[model] = {image: own[0] for image, own in captions.items()}
            found[model] = evaluate(texts[model], references, metrics=WITHOUT_JAVA)
            print(
                f"| `{model}` | {' | '.join(_with_interval(found[model]))} | {_less(found[model], found[MODELS[0]])} |"
            )
    print(f"\n| | CIDEr-D, {second} less {first} |\n|---|---|")
    for model in MODELS:
        print(f"| `{model}` | {_less(stages[second][model], stages[first][model])} |")
    images = sorted(references)[:: len(references) // SAMPLES][:SAMPLES]
    print(f"\n| photograph | {' | '.join(f'`{model}`' for model in MODELS)} |\n|{'---|' * (len(MODELS) + 1)}")
    for image in images:
        print(f"| {image} | {' | '.join(texts[model][image] for model in MODELS)} |")


def _with_interval(scores: Scores) -> list[str]:
    spread = intervals(scores)
    return [f"{scores[name]:.3f} ({own.low:.3f}-{own.high:.3f})" for name in SHOWN if (own := spread[name]) is not None]


def _less(one: Scores, other: Scores) -> str:
    if one is other:
        return ""
    found = compare(one, other)["CIDEr-D"]
    assert found is not None
    return f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f}), p {found.p:.3f}"


if __name__ == "__main__":
    main()
