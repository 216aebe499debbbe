"""Score captions of validation photographs, and the command that compares checkpoints.

    python research/photo/score.py DATA FOLDER CHECKPOINT [all]

prints CIDEr-D, BLEU-4 and ROUGE-L of beam 3 on COCO's 400 validation photographs and on the half of Flickr8k's
validation that chooses (every second one, from the first, in the order of the file); with `all`, on the other half
too, with 95 % bootstrap intervals, and writes CHECKPOINT.json with the captions and the mean log-probability of their
tokens.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import new_model
from sources import Photographs
from vectors import FILES

from legenda.decoding import beam_search
from legenda.evaluation.torch_captioner import to_arrays
from legenda.metrics.evaluation import evaluate
from legenda.metrics.resampling import intervals
from legenda.models import Captioner
from legenda.models.base import eval_mode
from legenda.photo.consensus import Consensus

SEARCH = {"length_penalty": 0.7, "no_repeat_ngram_size": 2}
"""Settings of the beam search, of training and package alike."""
CONSENSUS_WEIGHT = 4.0
"""What a unit of expected CIDEr adds to the score of a beam."""


def references(data: Path) -> list[list[str]]:
    """Return the captions of all photographs, COCO's first."""
    captions = []
    for path in FILES.values():
        with gzip.open(data / path) as file:
            captions += [[s["raw"] for s in image["sentences"]] for image in json.load(file)["images"]]
    return captions


def generate(
    model: Captioner, photographs: Photographs, rows: np.ndarray, consensus: Consensus | None = None, beam_size: int = 3
) -> tuple[list[str], list[float]]:
    """Return the caption of each photograph by beam search, and its tokens' mean log-probability.

    With a consensus, that beam which it chooses.
    """
    captions: list[str] = []
    means: list[float] = []
    with eval_mode(model):
        for part in np.array_split(rows, max(1, len(rows) // 25)):
            regions = photographs.regions(part)
            output = to_arrays(beam_search(model, regions, beam_size=beam_size), regions).output
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


def validation(photographs: Photographs) -> dict[str, np.ndarray]:
    """Return the photographs that choose, and those that only measure."""
    flickr = photographs.rows(False, 1)
    return {"coco": photographs.rows(True, 1), "flickr": flickr[::2], "flickr other half": flickr[1::2]}


def load_checkpoint(folder: Path, path: Path) -> Captioner:
    """Return the captioner with the averaged weights of a checkpoint and the settings of its search."""
    state = torch.load(path, weights_only=True)
    model = new_model(folder)
    model.generation_config = model.generation_config.replace(**SEARCH)
    model.load_state_dict(state["average"]["weights"])
    return model


def main() -> None:
    """Print the scores."""
    torch.set_num_threads(1)
    data, folder, path = map(Path, sys.argv[1:4])
    photographs, truth = Photographs(folder), references(data)
    model = load_checkpoint(folder, path)
    every, stored = len(sys.argv) > 4, {}
    consensus = Consensus.load(folder, CONSENSUS_WEIGHT)
    for name, rows in validation(photographs).items():
        if "other" in name and not every:
            continue
        for label, chooser in (("beam alone", None), ("chosen", consensus)):
            captions, means = generate(model, photographs, rows, chooser)
            scores = score(captions, rows, truth)
            found = "  ".join(f"{metric} {scores[metric]:.4f}" for metric in ("CIDEr-D", "BLEU-4", "ROUGE-L"))
            interval = intervals(scores)["CIDEr-D"] if every else ""
            print(f"{path.name} {name} ({len(rows)}) {label}: {found} {interval} distinct {len(set(captions))}")
        stored |= {int(row): pair for row, pair in zip(rows, zip(captions, means, strict=True), strict=True)}
    if every:
        path.with_suffix(".json").write_text(json.dumps(stored, indent=1))


if __name__ == "__main__":
    main()
