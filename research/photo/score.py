"""Score captions of validation photographs, and the command that compares checkpoints.

    python research/photo/score.py DATA FOLDER CHECKPOINT [all]

prints CIDEr-D, BLEU-4 and ROUGE-L of beam search on the 400 validation photographs that choose; with `all`, on the 456
that only measure too, with 95 % bootstrap intervals, and writes CHECKPOINT.json with the captions and the mean
log-probability of their tokens by COCO's id.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coco import MEASURED, VALIDATION, read_photographs
from common import new_model
from sources import Photographs

from legenda.decoding import beam_search
from legenda.evaluation.runs import to_arrays
from legenda.metrics.evaluation import evaluate
from legenda.metrics.resampling import intervals
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.photo.consensus import Consensus

SEARCH = {"beam_size": 5, "length_penalty": 0.7, "no_repeat_ngram_size": 2}
"""Settings of the beam search, of training and package alike."""
CONSENSUS_WEIGHT = 6.0
"""What a unit of expected CIDEr adds to the score of a beam."""


def references(data: Path) -> list[list[str]]:
    """Return the captions of all photographs."""
    return [[sentence["raw"] for sentence in entry["sentences"]] for entry in read_photographs(data)]


def generate(
    model: Captioner, photographs: Photographs, rows: np.ndarray, consensus: Consensus | None = None
) -> tuple[list[str], list[float]]:
    """Return the caption of each photograph by beam search, and its tokens' mean log-probability.

    With a consensus, that beam which it chooses.
    """
    captions: list[str] = []
    means: list[float] = []
    with eval_mode(model):
        for part in np.array_split(rows, max(1, len(rows) // 25)):
            regions = photographs.regions(part)
            output = to_arrays(beam_search(model, regions), regions).output
            if consensus is not None:
                output = consensus.choose(output, regions.features[:, 0].numpy(), model.vocabulary.eos_token_id, 1)
            words = [model.vocabulary.decode(row[0].tolist()) for row in output.tokens]
            lengths = [len(caption.split()) + 1 for caption in words]
            means += (output.log_probs[:, 0].sum(1) / np.array(lengths)).tolist()
            captions += words
    return captions, means


def score(captions: list[str], rows: np.ndarray, truth: list[list[str]]) -> Any:
    """Return the scores, with the document frequencies of these photographs."""
    return evaluate(
        {int(row): caption for row, caption in zip(rows, captions, strict=True)},
        {int(row): truth[row] for row in rows},
        metrics=["CIDEr-D", "BLEU-4", "ROUGE-L"],
    )


def load_checkpoint(folder: Path, path: Path) -> Captioner:
    """Return the captioner with the averaged weights of a checkpoint and the settings of its search."""
    state = torch.load(path, weights_only=True)
    model = new_model(folder)
    forms = json.loads((folder / "nouns.json").read_text())
    sets = tuple(tuple(map(model.vocabulary.ids.__getitem__, words)) for words in forms)
    model.generation_config = model.generation_config.replace(**SEARCH, no_repeat_sets=sets)
    model.load_state_dict(state["average"]["weights"])
    return model


def main() -> None:
    """Print the scores."""
    torch.set_num_threads(1)
    data, folder, path = map(Path, sys.argv[1:4])
    photographs, truth = Photographs(folder), references(data)
    model = load_checkpoint(folder, path)
    every, stored = len(sys.argv) > 4, {}
    ids = np.load(folder / "captions.npz")["photo_ids"]
    consensus = Consensus.load(folder, CONSENSUS_WEIGHT)
    for name, split in (("validation", VALIDATION), ("measured", MEASURED)):
        if split == MEASURED and not every:
            continue
        samples = photographs.rows(split)
        rows = photographs.row[samples]
        for label, chooser in (("beam alone", None), ("chosen", consensus)):
            captions, means = generate(model, photographs, samples, chooser)
            scores = score(captions, rows, truth)
            values = "  ".join(f"{metric} {scores[metric]:.4f}" for metric in ("CIDEr-D", "BLEU-4", "ROUGE-L"))
            interval = intervals(scores)["CIDEr-D"] if every else ""
            print(f"{path.name} {name} ({len(rows)}) {label}: {values} {interval} distinct {len(set(captions))}")
        pairs = zip(captions, means, strict=True)
        stored |= {int(ids[row]): pair for row, pair in zip(rows, pairs, strict=True)}
    if every:
        path.with_suffix(".json").write_text(json.dumps(stored, indent=1))


if __name__ == "__main__":
    main()
