"""Tables of captions on which the fine-tuning of the packaged model is tried, as users would write them.

    python research/photo/own.py DATA OUT

writes OUT/coco.csv, of 300 of COCO's validation photographs and, as test, the 100 others, which no stage was trained
on; and OUT/rooms30.csv, rooms300.csv and rooms998.csv, of so many photographs of rooms in DATA/daquar, with the same
200 as test. What DAQUAR (Malinowski and Fritz, NeurIPS 2014) asks of a room becomes a caption by rule: "what is on the
desk", "lamp" is "a lamp on the desk". Photographs of less than three such captions are left out.
"""

import csv
import random
import re
import sys
from collections import defaultdict
from pathlib import Path

from coco import read_photographs

PLACE = (
    r"(on|in front of|to the|behind|at the|above|beneath|in|near|below|left|right|between|in between|under|next to|over"
    r"|inside|stuck on|found on|hanging|placed)"
)
QUESTION = rf"what (?:is|are) (?:the (?:object|objects|things|thing) (?:found |placed )?)?({PLACE}\b.*)"
MOST_CAPTIONS = 8
Captions = dict[str, list[str]]


def main() -> None:
    """Write the tables."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    entries = [e for e in read_photographs(data) if e["split"] == "val" and e["folder"].parent.name == "coco_photos"]
    entries.sort(key=lambda entry: entry["cocoid"])
    coco = {entry["filename"]: [sentence["raw"] for sentence in entry["sentences"]] for entry in entries}
    write_table(out / "coco.csv", coco, list(coco)[:300], list(coco)[300:])
    rooms = room_captions(data / "daquar")
    listed = set((data / "daquar" / "test_images_list.txt").read_text().split())
    names = sorted(rooms, key=lambda name: int(name.removeprefix("image").removesuffix(".jpg")))
    test = [name for name in names if name.removesuffix(".jpg") in listed][:200]
    train = [name for name in names if name not in set(test)]
    random.Random(0).shuffle(train)
    for count in (30, 300, len(train)):
        write_table(out / f"rooms{count}.csv", rooms, train[:count], test)


def room_captions(folder: Path) -> Captions:
    """Return the captions of each photograph of DAQUAR that has at least three."""
    captions: Captions = defaultdict(list)
    with (folder / "data.csv").open() as file:
        for row in csv.DictReader(file):
            match = re.match(QUESTION, row["question"].strip().rstrip("?").strip())
            if match:
                things = [answer.strip().replace("_", " ") for answer in row["answer"].split(",")][:2]
                named = " and ".join(map(_with_article, things))
                captions[f"{row['image_id']}.jpg"].append(f"{named} {match.group(1)}")
    return {name: sentences for name, sentences in captions.items() if len(sentences) >= 3}


def _with_article(thing: str) -> str:
    if thing.endswith("s"):
        return thing
    return f"an {thing}" if thing[0] in "aeiou" else f"a {thing}"


def write_table(path: Path, captions: Captions, train: list[str], test: list[str]) -> None:
    """Write a table with the columns file, caption and split."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "caption", "split"])
        for split, names in (("train", train), ("test", test)):
            writer.writerows([name, caption, split] for name in names for caption in captions[name][:MOST_CAPTIONS])


if __name__ == "__main__":
    main()
