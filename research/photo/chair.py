"""Object hallucination (CHAIR): how often a caption names a thing that its photograph does not show.

    python research/photo/chair.py DATA SYNONYMS CAPTIONS.json

SYNONYMS: data/synonyms.txt of github.com/LisaAnne/Hallucination (BSD 2-Clause). CAPTIONS.json: what score.py writes,
each caption and its log-probability by COCO's id. Measured on the photographs there, of either validation set. A thing
is in a photograph where its class has a true box, or where one of its own captions names it (Rohrbach et al., EMNLP
2018, section 2.1). CHAIR-i: the share of named things that are not there; CHAIR-s: the share of captions with one. The
subject of a photograph is that of its largest true box.
"""

import json
import sys
from pathlib import Path

import numpy as np
from coco import read_photographs

from legenda.metrics.evaluation import evaluate
from legenda.text import ptb_tokenize

_ANIMALS = frozenset("bird cat dog horse sheep cow elephant bear zebra giraffe".split())  # noqa: SIM905
_VEHICLES = frozenset(("jet", "train"))
SUBJECTS = ("people", "vehicles", "streets", "animals", "bags and clothes", "sports", "tableware", "food")
SUBJECTS += ("furniture", "electronics", "kitchen appliances", "books, clocks, vases, toys")
LAST_CLASSES = np.array([0, 8, 13, 23, 28, 38, 45, 55, 61, 67, 72, 79])
"""The last class of each subject in COCO's order."""


def read_synonyms(path: Path) -> dict[str, str]:
    """Return the class of each word or pair of words."""
    classes = {}
    for line in path.read_text().splitlines():
        names = [" ".join(name.split()) for name in line.split(",") if name.strip()]
        classes |= dict.fromkeys(names, names[0])
    for name in _ANIMALS:
        classes |= {f"baby {name}": name, f"adult {name}": name}
    for name in _VEHICLES:
        classes[f"passenger {name}"] = classes[name]
    return classes | {"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"}


def singular(word: str, known: dict[str, str]) -> str:
    """Return the singular of a plural whose singular is known."""
    if word in known:
        return word
    irregular = {"men": "man", "women": "woman", "knives": "knife", "geese": "goose", "mice": "mouse", "sheep": "sheep"}
    endings = [word[:-1]] if word.endswith("s") else []
    endings += [word[:-2]] if word.endswith("es") else []
    endings += [word[:-3] + "y"] if word.endswith("ies") else []
    return next((each for each in (irregular.get(word, word), *endings) if each in known), word)


def named(caption: str, known: dict[str, str]) -> list[str]:
    """Return the class of each thing that a caption names, in order; pairs of words count before single ones."""
    tokens = ptb_tokenize(caption)
    words = [word if word in known else singular(word, known) for word in tokens]
    position, things = 0, []
    while position < len(words):
        pair = " ".join(tokens[position : position + 1] + words[position + 1 : position + 2])
        size = 2 if pair in known else 1
        name = pair if size == 2 else words[position]
        if name in known:
            things.append(known[name])
        position += size
    if "toilet" in things and "seat" in words:
        things = [thing for thing in things if thing != "chair"]
    return things


def main() -> None:
    """Print the two shares, and for each subject CIDEr-D and CHAIR-i."""
    data, synonyms, path = map(Path, sys.argv[1:4])
    known, captions = read_synonyms(synonyms), json.loads(path.read_text())
    labels = (data / "weights" / "coco_labels_80.txt").read_text().split("\n")
    stored = dict(np.load(data / "coco_boxes.npz"))
    starts = np.concatenate([[0], np.cumsum(stored["count"], dtype=np.int64)])
    slot = {int(number): position for position, number in enumerate(stored["image_id"])}
    rows, counts, subjects, truth = [], [], [], {}
    for entry in read_photographs(data):
        row = entry["cocoid"]
        if entry["split"] != "val" or str(row) not in captions or row in truth:
            continue
        truth[row] = [sentence["raw"] for sentence in entry["sentences"]]
        there = {thing for sentence in truth[row] for thing in named(sentence, known)}
        subject = "nothing"
        if entry["cocoid"] in slot:
            part = slice(*starts[slot[entry["cocoid"]] :][:2])
            classes, boxes = stored["category"][part], stored["boxes"][part].astype(float)
            there |= {labels[c] for c in classes}
            largest = classes[(boxes[:, 2:] - boxes[:, :2]).prod(1).argmax()]
            subject = SUBJECTS[np.searchsorted(LAST_CLASSES, largest)]
        things = named(captions[str(row)][0], known)
        rows.append(row)
        subjects.append(subject)
        counts.append((len(things), sum(thing not in there for thing in things)))
    total = np.array(counts)
    scores = evaluate({row: captions[str(row)][0] for row in rows}, truth, metrics=["CIDEr-D"]).per_image
    cider = np.array([scores[row]["CIDEr-D"] for row in rows])
    everything = np.ones(len(rows), bool)
    masks = {"all": everything} | {name: np.array(subjects) == name for name in sorted(set(subjects))}
    print("| subject | photographs | CIDEr-D | CHAIR-i | CHAIR-s |\n|---|---|---|---|---|")
    for name, mask in masks.items():
        things, wrong = total[mask].sum(0)
        share = wrong / max(things, 1)
        print(f"| {name} | {mask.sum()} | {cider[mask].mean():.3f} | {share:.3f} | {(total[mask, 1] > 0).mean():.3f} |")


if __name__ == "__main__":
    main()
