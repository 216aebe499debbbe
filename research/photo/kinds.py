"""Write the everyday names of ImageNet's classes, by which a photograph without detected things is named.

    python research/photo/kinds.py DATA OUT

reads DATA/weights/imagenet_labels.txt and writes OUT/kinds.txt, a name a line in the order of EfficientNet-Lite2's
classes, which is that of the labels without the background, their first line. Classes of one kind share a name, such as
118 breeds "dog"; the others keep their first label. A missile is a rocket in WordNet, and so is a space shuttle here.
"""

import sys
from pathlib import Path

GROUPS = {
    "fish": [1, 2, range(390, 399)],
    "shark": [3, 4, 5],
    "bird": [range(8, 26), range(81, 102), range(128, 148)],
    "salamander": [range(26, 31)],
    "frog": [31, 32, 33],
    "turtle": [range(34, 39)],
    "lizard": [range(39, 50)],
    "crocodile": [50, 51],
    "snake": [range(53, 70)],
    "spider": [range(73, 79)],
    "elephant": [102, 386, 387],
    "crab": [range(119, 123)],
    "whale": [148, 149],
    "dog": [range(152, 270)],
    "wolf": [range(270, 274)],
    "fox": [range(278, 282)],
    "cat": [range(282, 287)],
    "bear": [range(295, 299)],
    "beetle": [range(301, 309)],
    "butterfly": [range(322, 328)],
    "rabbit": [331, 332, 333],
    "pig": [342, 343, 344],
    "antelope": [352, 353, 354],
    "monkey": [range(366, 386)],
    "panda": [388, 389],
    "airplane": [405, 896, 909],
    "car": [437, 469, 512, 610, 628, 662, 752, 818],
    "truck": [570, 676, 718, 865, 868],
    "bus": [655, 780, 875],
    "train": [467, 548, 566, 706, 821],
    "boat": [473, 485, 577, 626, 781, 815, 872, 915],
    "ship": [404, 511, 629],
    "bicycle": [445, 672, 871],
    "motorcycle": [666, 671],
    "rocket": [658, 745, 813],
    "clock": [410, 531, 893],
    "telephone": [488, 529, 708],
    "laptop": [621, 682],
    "screen": [665, 783, 852],
    "guitar": [403, 547],
    "bridge": [822, 840, 889],
    "fence": [490, 717, 913],
    "lighthouse": [438],
    "chest of drawers": [494],
    "trash can": [413],
    "shore": [977, 978, 979],
    "lake": [976],
    "mountain": [971, 981],
    "mushroom": [948, *range(992, 999)],
    "bathroom sink": [897],
    "bed": [565, 832],
    "bag": [415, 729, 749],
    "cup of coffee": [505, 968],
}
"""Lines of the labels of each kind, counted from the background's, 0."""


def main() -> None:
    """Write the file."""
    data, out = map(Path, sys.argv[1:3])
    lines = (data / "weights" / "imagenet_labels.txt").read_text().splitlines()
    names = [line.split(",")[0] for line in lines]
    for name, members in GROUPS.items():
        for member in members:
            for number in [member] if isinstance(member, int) else member:
                names[number] = name
    (out / "kinds.txt").write_text("".join(f"{name}\n" for name in names[1:]))


if __name__ == "__main__":
    main()
