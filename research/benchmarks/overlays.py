"""Whether overlays show what the words name: how often the strongest region of an object word is that object.

    python research/benchmarks/overlays.py runs/demo/ngsan

Captions the test scenes of runs that were trained on scenes, with the attention that reports and overlays show (that of
the last decoder layer, all heads averaged), and looks at every shape and color word of the captions that are true: the
region with the greatest weight is the thing that the word names, the other one of the two that the scene is about, or
neither. "The two green things" names either of two. For comparison it takes the weights of the words before and after.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from legenda.data.captions import ScenesData, scene_captions
from legenda.data.scenes import FAMILIES, Scene, check_caption, make_split
from legenda.data.scenes.scene import COLORS, SHAPES
from legenda.evaluation.runs import load_captioner_run
from legenda.pipeline import GeneratedCaption
from legenda.report.report import predict_with_attention

KINDS = {"shape": SHAPES, "color": tuple(COLORS)}
STEPS = {"the word": 0, "the word before": -1, "the word after": 1}
COLUMNS = ("run", "words", "weights of", "all", *FAMILIES, "looks at the other of the two", "at another thing")

Counts = Counter[tuple[str, str, str]]
"""Words by their kind, the scene's family, and what they look at: named, partner or neither."""


def things_named(words: Sequence[str], place: int, scene: Scene) -> set[int]:
    """Which things of a scene the shape or color at a place of a true caption names.

    Where several share it, the color before a shape, the shape after a color or the word "larger" decides.
    """
    word = words[place]
    named = {number for number, thing in enumerate(scene.things) if word in thing.kind}
    if word in SHAPES and words[place - 1] == "larger":
        return {max(named, key=lambda number: scene.things[number].size)}
    adjacent = words[place - 1 : place] if word in SHAPES else words[place + 1 : place + 2]
    return {number for number in named if set(adjacent) & set(scene.things[number].kind)} or named


def thing_in(box: np.ndarray, scene: Scene) -> int:
    """The thing whose centre is nearest to that of a region `(4,)`."""
    centers = np.array([(thing.x, thing.y) for thing in scene.things])
    return int(np.abs(centers - (box[:2] + box[2:]) / 2).sum(axis=1).argmin())


def count(captions: Mapping[str, GeneratedCaption], scenes: Sequence[Scene], shift: int) -> Counts:
    """What the object words of true captions attend to, with the weights `shift` words later."""
    counts: Counts = Counter()
    for scene in scenes:
        seen = captions[scene.id]
        if seen.attention is None or not check_caption(seen.text, scene).true:
            continue
        for place, word in enumerate(seen.words):
            kind = next((kind for kind, words in KINDS.items() if word in words), None)
            if kind is None or not 0 <= place + shift < len(seen.words):
                continue
            strongest = thing_in(seen.boxes[seen.attention[place + shift].argmax()], scene)
            named = strongest in things_named(seen.words, place, scene)
            partner = "partner" if strongest in scene.pair else "neither"
            counts[kind, scene.family, "named" if named else partner] += 1
    return counts


def share(counts: Counts, kind: str, families: Sequence[str], what: str) -> str:
    """The share of the words of a kind that look at what is asked for, with both numbers."""
    words = [(target, n) for (other, family, target), n in counts.items() if other == kind and family in families]
    every, found = sum(n for _, n in words), sum(n for target, n in words if target == what)
    return f"{found / every:.3f} ({found} of {every})" if every else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--beam-size", type=int, default=3)
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for folder in given.runs:
        opened = load_captioner_run(folder)
        data = opened.data()
        if not isinstance(data, ScenesData):
            parser.error(f"{folder} was not trained on scenes")
        made = make_split("test", data.test, data.seed)
        captions = predict_with_attention(opened, scene_captions(made), {"beam_size": given.beam_size})
        for step, shift in STEPS.items():
            counts = count(captions, made.scenes, shift)
            for kind in KINDS:
                named = [share(counts, kind, families, "named") for families in (FAMILIES, *zip(FAMILIES, strict=True))]
                missed = [share(counts, kind, FAMILIES, what) for what in ("partner", "neither")]
                print("| " + " | ".join((f"`{folder.name}`", kind, step, *named, *missed)) + " |", flush=True)


if __name__ == "__main__":
    main()
