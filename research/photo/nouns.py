"""The nouns of captions, each with its plural, of which a caption says one once.

    python research/photo/nouns.py FOLDER

reads captions.npz and vocabulary.txt of FOLDER and writes FOLDER/nouns.json, a list of the forms of each noun. A word
is a noun here where what follows it and what precedes it are mostly what follows and precedes nouns; words that often
stand before another noun ("a bus at a bus stop") are none.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from legenda.text import Vocabulary

BEFORE_MASS = "of with"
BEFORE = "a an the two three four some several many his her their"
AFTER = """and is are in on at with of next near sitting standing that by while to from for as has behind . , or holding
which inside under over above"""
GENERAL = """top front back side left right next close group couple pair lot bunch view picture photo image photograph
area one another other each different various him her them two three four five six seven eight some several many few
kind kinds type types piece pieces end place things set slice slices bowl glass cup plate variety row line number"""
"""Words that are said again of other things: "a plate of food next to a plate of fruit"."""
LEAST_AFTER, LEAST_BEFORE, LEAST_MASS, LEAST_COUNT = 0.55, 0.12, 0.2, 60
"""Shares of a noun's occurrences before AFTER and after BEFORE or, of a mass noun, BEFORE_MASS; and occurrences."""
IRREGULAR = {"man": "men", "woman": "women", "person": "people", "child": "children", "knife": "knives"}
IRREGULAR |= {
    "leaf": "leaves",
    "shelf": "shelves",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "loaf": "loaves",
}


OTHER_NAMES = {
    "person": "man woman boy girl child kid guy lady player skier snowboarder surfer skateboarder rider batter catcher",
    "bicycle": "bike bicyclist",
    "car": "van taxi suv",
    "motorcycle": "motorbike scooter moped",
    "airplane": "plane jet jetliner",
    "boat": "ship sailboat canoe",
    "traffic light": "streetlight stoplight",
    "fire hydrant": "hydrant",
    "bird": "duck goose seagull pigeon parrot owl",
    "cat": "kitten",
    "dog": "puppy",
    "sheep": "lamb goat",
    "cow": "cattle bull calf",
    "handbag": "purse",
    "suitcase": "luggage",
    "skis": "ski",
    "sports ball": "ball",
    "tennis racket": "racket racquet",
    "baseball bat": "bat",
    "baseball glove": "glove",
    "sandwich": "burger hamburger sub",
    "hot dog": "hotdog",
    "donut": "doughnut bagel",
    "cake": "cupcake pancake",
    "chair": "seat stool",
    "couch": "sofa",
    "dining table": "table desk",
    "toilet": "urinal",
    "tv": "television monitor",
    "laptop": "computer",
    "cell phone": "phone cellphone telephone",
    "oven": "stove",
    "refrigerator": "fridge",
}
"""Words that name a thing of a class of COCO, beside its label where that is one word."""


def name_classes(vocabulary: Vocabulary, labels: Sequence[str]) -> np.ndarray:
    """Return the class that each token names, singular or plural, `(V,)`; -1 for others."""
    classes = np.full(len(vocabulary), -1)
    for number, label in enumerate(labels):
        for word in (label, *OTHER_NAMES.get(label, "").split()):
            for form in (word, IRREGULAR.get(word, word), f"{word}s", f"{word}es", f"{word[:-1]}ies"):
                if form in vocabulary.ids:
                    classes[vocabulary.ids[form]] = number
    return classes


def find_nouns(captions: np.ndarray, vocabulary: Vocabulary) -> list[str]:
    """Return the nouns among the words of captions, ids `(..., T)` padded with -1, most frequent first."""
    rows, size = captions.reshape(-1, captions.shape[-1]).astype(np.int64), len(vocabulary)

    def marked(words: str) -> np.ndarray:
        return np.isin(np.arange(size), [vocabulary.ids[word] for word in words.split() if word in vocabulary.ids])

    first, last = rows[:, :-1], rows[:, 1:]
    closing = marked(AFTER)
    closing[vocabulary.eos_token_id] = True
    total = np.bincount(rows[rows > 0], minlength=size)
    pairs = (first > 0) & (last >= 0)
    followed = np.bincount(first[pairs], closing[last[pairs]], minlength=size)
    preceded = np.bincount(last[pairs], marked(BEFORE)[first[pairs]], minlength=size)
    of_mass = np.bincount(last[pairs], marked(BEFORE_MASS)[first[pairs]], minlength=size)
    is_noun = (preceded > LEAST_BEFORE * total) | (of_mass > LEAST_MASS * total)
    is_noun &= (followed > LEAST_AFTER * total) & (total >= LEAST_COUNT)
    is_noun &= ~marked(f"{BEFORE} {AFTER} {GENERAL}")
    return [vocabulary.tokens[token] for token in np.argsort(-total) if is_noun[token]]


def with_plurals(nouns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the forms of each noun: itself and its plural, where that is a noun too."""
    known, plurals = set(nouns), set()
    for noun in nouns:
        endings = [IRREGULAR.get(noun, ""), f"{noun}s", f"{noun}es", f"{noun[:-1]}ies"]
        if noun not in plurals and (plural := next((word for word in endings if word in known), None)):
            plurals |= {noun, plural}
            yield noun, plural
    yield from ((noun,) for noun in nouns if noun not in plurals)


def main() -> None:
    """Write the file."""
    folder = Path(sys.argv[1])
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    forms = [*with_plurals(find_nouns(np.load(folder / "captions.npz")["coco"], vocabulary))]
    (folder / "nouns.json").write_text(json.dumps(forms))
    print(f"{len(forms)} nouns, {sum(len(each) > 1 for each in forms)} of them with a plural: {forms[:20]}")


if __name__ == "__main__":
    main()
