"""The published results, computed again from the stored numbers by code that shares nothing with research/.

And what the pages say: every row follows from the numbers, and every sentence of "Which attention?" points to a row.
"""

import json
import math
import re
import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from scipy.stats import t as student

RESEARCH = Path(__file__).resolve().parents[2] / "research"
DESIGNS, RESULTS = RESEARCH / "experiments", RESEARCH / "experiments" / "results"
SHARE, STEPS, CIDER_D, SEEDS = 0.05, 75, 0.015, 0.3
COUNTED = {"relations": "pair", "grounding": "near", "distances": "pair"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


@cache
def design(name):
    return tomllib.loads((DESIGNS / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def numbers(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"conditions": {}}


def primaries(name):
    primary = design(name)["primary"]
    return primary if isinstance(primary, list) else [primary]


ALL = [(p.stem, i) for p in sorted(DESIGNS.glob("*.toml")) for i in range(len(primaries(p.stem)))]


def metric_of(name, key):
    return next(metric for metric in design(name)["metrics"] if metric["key"] == key)


def value(name, condition, seed, key):
    metric, stored = metric_of(name, key), condition["seeds"][seed][key]
    if stored is None:
        return Fraction(condition["steps"])
    exact = Fraction(str(stored))
    if COUNTED.get(name) == key:
        return Fraction(exact >= Fraction(1 + Fraction(str(metric["chance"])), 2))
    return exact


def pairs(name, index):
    """The exact differences of all seeds that both conditions have."""
    primary, conditions = primaries(name)[index], numbers(name)["conditions"]
    first, second = (conditions.get(primary[key], {"seeds": {}}) for key in ("condition", "against"))
    both = [seed for seed in first["seeds"] if seed in second["seeds"]]
    assert all(int(seed) >= 100 for seed in both)
    key = primary["metric"]
    return [value(name, first, seed, key) - value(name, second, seed, key) for seed in both]


def exact_p(differences):
    """The share of all changes of signs with a sum as far from 0, counted over sums as whole numbers."""
    scale = math.lcm(*(d.denominator for d in differences))
    whole = [int(d * scale) for d in differences]
    unit = math.gcd(*whole) or 1
    whole = [abs(d) // unit for d in whole]
    reach = sum(whole)
    ways = np.zeros(2 * reach + 1, dtype=np.int64)
    ways[reach] = 1
    for step in filter(None, whole):
        moved = np.zeros_like(ways)
        moved[step:] += ways[: len(ways) - step]
        moved[: len(ways) - step] += ways[step:]
        ways = moved
    observed = abs(int(sum(differences) * scale)) // unit
    far = np.abs(np.arange(-reach, reach + 1)) >= observed
    return float(ways[far].sum() / ways.sum())


def image_error(name, index):
    primary, conditions = primaries(name)[index], numbers(name)["conditions"]
    both = [conditions[primary[key]].get("images") for key in ("condition", "against")]
    if None in both:
        return 0.0
    first, second = (np.array([float(x) for x in images["thousandths"].split()]) / 1000 for images in both)
    return float(np.std(first - second, ddof=1)) / math.sqrt(len(first))


def share_bounds(count, total, level):
    """Clopper and Pearson's interval by bisection on the binomial tails."""

    def tail(p, counts):
        return sum(math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in counts)

    def solve(counts, rises):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (tail(middle, counts) < (1 - level) / 2) == rises else (low, middle)
        return low

    lower = solve(range(count, total + 1), True) if count else 0.0
    return lower, solve(range(count + 1), False) if count < total else 1.0


def share_interval(name, index, level):
    """Newcombe's interval of paired shares from the table of both outcomes (a: both, b, c: one, d: none)."""
    primary, conditions = primaries(name)[index], numbers(name)["conditions"]
    first, second = (conditions[primary[key]] for key in ("condition", "against"))
    both = [seed for seed in first["seeds"] if seed in second["seeds"]]
    table = [tuple(int(value(name, each, seed, primary["metric"])) for each in (first, second)) for seed in both]
    a, b, c, d = (table.count(cell) for cell in ((1, 1), (1, 0), (0, 1), (0, 0)))
    n, margins = len(table), (a + b) * (c + d) * (a + c) * (b + d)
    excess = a * d - b * c
    excess = excess if excess < 0 else max(excess - n / 2, 0)
    phi = excess / math.sqrt(margins) if margins else 0.0
    (l1, u1), (l2, u2) = share_bounds(a + b, n, level), share_bounds(a + c, n, level)
    p1, p2 = (a + b) / n, (a + c) / n
    down = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    up = (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2
    return p1 - p2 - math.sqrt(down), p1 - p2 + math.sqrt(up)


def interval(name, index, level):
    if primaries(name)[index]["metric"] == COUNTED.get(name):
        return share_interval(name, index, level)
    differences = [float(d) for d in pairs(name, index)]
    n = len(differences)
    error = math.sqrt(stdev(differences) ** 2 / n + image_error(name, index) ** 2)
    half = student.ppf(1 - (1 - level) / 2, n - 1) * error
    return mean(differences) - half, mean(differences) + half


@cache
def adjusted():
    """Holm's p values; what has not all its seeds counts as 1."""
    complete = [each for each in ALL if len(pairs(*each)) >= design(each[0])["seeds"]]
    raw = sorted((exact_p(pairs(*each)), each) for each in complete)
    result, largest = dict.fromkeys(ALL, 1.0), 0.0
    for rank, (p, each) in enumerate(raw):
        largest = max(largest, min(1.0, p * (len(ALL) - rank)))
        result[each] = largest
    return result


def bound_of(name, index):
    key = primaries(name)[index]["metric"]
    if COUNTED.get(name) == key:
        return SEEDS
    if "reaches" in metric_of(name, key):
        return STEPS
    return CIDER_D if key == "CIDEr-D" else SHARE


def verdict(name, index):
    primary, bound, control = primaries(name)[index], bound_of(name, index), design(name)["control"]
    if design(name).get("withdrawn"):
        return "withdrawn"
    if len(pairs(name, index)) < design(name)["seeds"]:
        return f"not decided: {len(pairs(name, index))} of {design(name)['seeds']} seeds"
    baseline = numbers(name)["conditions"][primaries(name)[0]["against"]]
    if mean(seed[control["metric"]] for seed in baseline["seeds"].values()) < control["at_least"]:
        return "inconclusive"
    steps = "reaches" in metric_of(name, primary["metric"])
    up = primary["paper"]["condition"] > primary["paper"]["against"]
    gain = -1 if up == steps else 1
    low, high = sorted(gain * end for end in interval(name, index, 0.90))
    if max(abs(low), abs(high)) < bound:
        return "no relevant effect"
    outer = interval(name, index, 0.95)
    if adjusted()[name, index] < 0.05 and outer[0] * outer[1] > 0:
        return "supported" if gain * mean(pairs(name, index)) > 0 else "contradicted"
    if high < bound:
        return "not faster" if steps else "no relevant gain"
    return "no harm" if low > -bound else "inconclusive"


def shown(name, index, number):
    if "reaches" in metric_of(name, primaries(name)[index]["metric"]):
        return f"{float(number):,.0f}"
    return f"{round(float(number), 3) + 0.0:.3f}"


@cache
def rows():
    """The cells of each row of the table of results, in the order of the designs."""
    lines = (RESULTS / "README.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith('| <a id="')]


def test_the_table_has_every_primary_comparison():
    expected = [name if index == 0 else f"{name}-{index + 1}" for name, index in ALL]
    assert [re.search('id="(.*?)"', row[0])[1] for row in rows()] == expected


@pytest.mark.parametrize("position", range(len(ALL)), ids=lambda i: f"{ALL[i][0]}-{ALL[i][1]}")
def test_a_row_follows_from_the_stored_numbers(position):
    name, index = ALL[position]
    _, _, seeds, difference, outer, inner, p, holm, bound, stated, *_ = rows()[position]
    differences = pairs(name, index)
    assert stated == verdict(name, index)
    assert holm == f"{adjusted()[name, index]:.2g}"
    assert bound == ("–" if stated == "withdrawn" else shown(name, index, bound_of(name, index)))
    if len(differences) < 2:
        assert difference == outer == inner == p == "–"
        return
    assert seeds == str(len(differences))
    assert difference == shown(name, index, mean(differences))
    for text, level in ((outer, 0.95), (inner, 0.90)):
        assert text == " to ".join(shown(name, index, end) for end in interval(name, index, level))
    assert p == f"{exact_p(differences):.2g}"


def test_core_hours_and_changed_trees_are_those_of_the_numbers():
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    stored = [numbers(path.stem) for path in DESIGNS.glob("*.toml")]
    blocks = [condition for each in stored for condition in each["conditions"].values()]
    timed = [seed["seconds"] for block in blocks for seed in block["seeds"].values()]
    timed += [pilot["seconds"] for each in stored for pilot in each.get("pilots", [])]
    hours = sum(times.get("train", 0) + times.get("evaluate", 0) for times in timed) / 3600
    assert f"{hours:.2f} core-hours" in text
    changed = sum(any("dirty" in commit for commit in block["commits"]) for block in blocks)
    assert f"Of {len(blocks)} conditions {changed} ran on a tree that differed" in text


def test_the_groups_of_images_add_up_to_all():
    """Where differences lie, by the number of things: groups of images, their counts, means and standard errors."""
    name = "coco_converged"
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8").split("By the number of things")[1].split("\n\n")[1]
    _, _, *groups = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    both = [numbers(name)["conditions"][primaries(name)[0][key]]["images"] for key in ("condition", "against")]
    first, second = ([float(value) / 1000 for value in images["thousandths"].split()] for images in both)
    things = [int(value) for value in both[0]["things"].split()]
    assert sum(int(group[1].replace(",", "")) for group in groups) == len(things)
    for group in groups:
        least, *rest = map(int, group[0].split(" to "))
        inside = range(least, (rest or [least])[0] + 1)
        values = [x - y for x, y, count in zip(first, second, things, strict=True) if count in inside]
        assert int(group[1].replace(",", "")) == len(values)
        assert group[2] == f"{mean(values):.3f} ± {stdev(values) / math.sqrt(len(values)):.3f}"


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(path):
    text = path.read_text(encoding="utf-8")
    return {slug(h) for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} | set(re.findall(r'<a id="(.*?)"', text))


def targets(page, text):
    """The files and anchors of the links in a text."""
    for _, link in LINK.findall(text):
        if not link.startswith(("http:", "https:", "mailto:")):
            file, _, anchor = link.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


PAGES = sorted(RESEARCH.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(RESEARCH)))
def test_the_links_of_research_lead_somewhere(page):
    for file, anchor in targets(page, page.read_text(encoding="utf-8")):
        assert file.exists(), file
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), (file, anchor)


@pytest.mark.parametrize("name", sorted({name for name, _ in ALL}))
def test_the_numbers_of_notes_stand_in_the_tables_of_their_page(name):
    page = RESULTS / f"{design(name).get('page', name)}.md"
    for note in design(name).get("notes", []) if numbers(name)["conditions"] else []:
        known = "".join(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
        known += (RESULTS / "README.md").read_text(encoding="utf-8")
        known += "".join(file.read_text(encoding="utf-8") for file, _ in targets(page, note))
        missing = [number for number in re.findall(r"-?\d+\.\d+", note) if number not in known]
        assert not missing, (note, missing)


WHICH = RESEARCH / "which-attention.md"


def test_every_sentence_points_to_a_row_with_its_numbers():
    text = WHICH.read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    items = [" ".join(item.split()) for item in re.split(r"\n\n|\n(?=- )", text)]
    quoting = [item for item in items if item.startswith("- ") or re.search(r"\d\.\d|\d ms", item)]
    assert len(quoting) > 10
    for item in quoting:
        linked = list(targets(WHICH, item))
        if "not decided" not in item and re.search(r"\d", LINK.sub("", item)):
            assert linked, item
        known = ""
        for file, anchor in linked:
            content = file.read_text(encoding="utf-8")
            known += content
            row = re.search(rf'<a id="{anchor}"></a>\[.*?\]\((\S+?)\)', content) if anchor else None
            known += (file.parent / row[1]).read_text(encoding="utf-8") if row else ""
        quoted = re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?", LINK.sub("", item))
        quoted = [number.removeprefix("+") for number in quoted]  # of gains, which tables write without a sign
        missing = [number for number in quoted if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", known)]
        assert not missing, (item, missing)
