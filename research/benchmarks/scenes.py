"""Train recipes on the scenes over seeds and print the table of research/results/scenes.md.

    python research/benchmarks/scenes.py --runs runs/study --seeds 0 1 2 --processes 2

Runs that are finished are not trained again, so it can be stopped and called again. Options after `--` go to every
training, as in `-- training.epochs=60 model.num_heads=8`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECIPES = ("transformer", "absolute", "nsan", "content", "gsan", "key", "ngsan")
RELATIONS = ("pair", "axis", "size", "bind", "truth")
REACHED = 0.9
"""A relation counts as learnt from the first validation on that reaches this and after which none falls below."""


def train(recipe: str, seed: int, runs: Path, options: list[str]) -> Path:
    """One run and its scores on the test scenes, on one core."""
    folder = runs / f"{recipe}-{seed}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if not (folder / "evaluation_test.json").exists():
        legenda = [sys.executable, "-m", "legenda"]
        seeded = ["--out", str(folder), f"training.seed={seed}"]
        commands = ["train", f"scenes.{recipe}", *seeded, *options], ["evaluate", str(folder), "--split", "test"]
        with (runs / f"{recipe}-{seed}.log").open("w") as log:
            for command in commands:
                subprocess.run([*legenda, *command], env=environment, check=True, stdout=log, stderr=log)
    print(f"{folder} is done", file=sys.stderr, flush=True)
    return folder


def steps_to_learn(folder: Path, relation: str) -> int | None:
    """Steps after which a relation stays learnt on the validation scenes, or None."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [(r["step"], r["validation"][relation] or 0.0) for r in records if "validation" in r]
    first_step = None
    for step, value in curve:
        if value < REACHED:
            first_step = None
        elif first_step is None:
            first_step = step
    return first_step


def cell(folders: list[Path], relation: str) -> str:
    """Mean, least and greatest test score of the seeds, and the steps each needed."""
    scores = [json.loads((f / "evaluation_test.json").read_text())["scores"][relation] for f in folders]
    known = [score for score in scores if score is not None]
    if not known:
        return "none"
    steps = [str(steps_to_learn(folder, relation) or "-") for folder in folders]
    suffix = f"; {' / '.join(steps)}" if any(step != "-" for step in steps) else ""
    return f"{statistics.mean(known):.2f} ({min(known):.2f}-{max(known):.2f}){suffix}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/study"))
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("options", nargs="*", help="options of legenda train, after --")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    jobs = [(recipe, seed) for seed in given.seeds for recipe in given.recipes]
    with ThreadPoolExecutor(given.processes) as pool:
        folders = dict(zip(jobs, pool.map(lambda job: train(*job, given.runs, given.options), jobs), strict=True))
    print("| attention | " + " | ".join(RELATIONS) + " |\n|---|" + "---|" * len(RELATIONS))
    for recipe in given.recipes:
        own = [folders[recipe, seed] for seed in given.seeds]
        print(f"| `{recipe}` | " + " | ".join(cell(own, relation) for relation in RELATIONS) + " |")


if __name__ == "__main__":
    main()
