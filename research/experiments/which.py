"""The page "Which attention?": sentences whose numbers are those of the rows to which they point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiment import Comparison
from page import Decision, Result, anchor_of, effect_of, effect_text, learned_seeds, memory_ratio, time_ratio

TABLE = "experiments/results/README.md"


class _Row:
    """A primary comparison as the page quotes it."""

    def __init__(self, results: Mapping[str, Result], name: str, index: int = 0) -> None:
        self.name, self.result, self.anchor = name, results[name], anchor_of(name, index)
        self.decision: Decision = self.result.decisions[index]

    @property
    def effect(self) -> str:
        """The difference, its 95 % interval and the number of seeds."""
        effect, metric = self.decision.effect, self.decision.metric
        return "not known" if effect is None else effect_text(effect, metric, len(effect.differences))

    @property
    def price(self) -> str:
        """Training time and memory."""
        time, memory = (ratio(self.result, self.decision.primary) for ratio in (time_ratio, memory_ratio))
        return f"time x {time:.2f}, memory x {memory:.2f}" if time and memory else "price not known"

    @property
    def link(self) -> str:
        """The verdict as a link to the row."""
        return f"[`{self.name}`: {self.decision.verdict or 'not decided'}]({TABLE}#{self.anchor})"

    def mean(self, condition: str, against: str, metric: str) -> str:
        """Return another difference of the experiment."""
        part, experiment = Comparison(condition=condition, against=against, metric=metric), self.result.experiment
        effect = effect_of(experiment, self.result.conditions, part)
        return (
            "not known" if effect is None else effect_text(effect, experiment.metrics[metric], len(effect.differences))
        )

    def learned(self, condition: str) -> str:
        """Return how many seeds of a condition learn the task."""
        count, total = learned_seeds(self.result, condition)
        return f"{count} of {total}"


def which_page(results: Mapping[str, Result]) -> str:
    """Return the page; the numbers of other pages than those of experiments are written here."""
    return "\n".join([*_people(results), *_scenes(results), *_rest()]) + "\n"


def _people(results: Mapping[str, Result]) -> Iterator[str]:
    coco = _Row(results, "coco_boxes")
    boxes = _Row(results, "coco_converged").mean("absolute", "none", "CIDEr-D")
    long = "; ".join(f"{words} {row.effect} ({row.link})" for words, row in _converged(results) if row.decision.effect)
    yield f"""# Which attention?

**Take the plain `transformer`**, with each region's box among its features where they do not tell it, unless a row
below is your case. On captions that people wrote no attention was shown to beat that by a relevant amount. Models are
small; differences of experiments have 95 % intervals and equal parameters. [The rule](experiments/README.md),
[all rows]({TABLE}).

![Effects, with the intervals that decide](experiments/results/forest.svg)

## On what people wrote

- **COCO's captions from true boxes**, eight passes over the images, boxes known only through what is compared.
  CIDEr-D of {long}.
  Most of what `ngsan` lacks is information: given absolute boxes, too, its pilots almost reach them; a rate of its own
  makes up two fifths (one seed). Absolute boxes against none, in `transformer`:
  {boxes} ([page](experiments/results/coco_converged.md)).
- **The same**, less than one pass, boxes among the features of all. `ngsan` changes CIDEr-D by
  {coco.effect} on these images; {coco.price} ({coco.link}).
- **Flickr8k's photographs**, three seeds, equal processor time, 2.11 to 2.97 million parameters. After correction,
  CIDEr-D of `nsan` (+0.012), `mdsan` (+0.010), `aoanet` (-0.013), `ngsan` (-0.017) and `gsan` (-0.022) is not told from
  that of `transformer`; `xlan` (-0.062) and `xtransformer` (-0.167) are behind
  ([table](results/flickr8k.md)).
- **One run each**. Geometry in MCAN: DAQUAR's questions 23.7 % right, 23.4 % without
  ([row](results/other-tasks.md#rooms-daquar)); phrases of Flickr30k Entities 48.9 %, 45.2 % without
  ([row](results/other-tasks.md#phrases-of-flickr30k-entities)). Normalized queries: Multi30k's BLEU 30.3, 30.5
  without ([row](results/other-tasks.md#translation)).
"""


def _converged(results: Mapping[str, Result]) -> Iterator[tuple[str, _Row]]:
    """Yield the comparisons of `coco_converged` in plain words, with their rows."""
    words = (
        "`ngsan` (normalized queries, relative geometry) against absolute boxes",
        "`gsan` against them",
        "`nsan` against `transformer`, both without boxes,",
    )
    for index, each in enumerate(words):
        yield each, _Row(results, "coco_converged", index)


def _scenes(results: Mapping[str, Result]) -> Iterator[str]:
    coco = _Row(results, "coco_boxes")
    relations, questions, grounding = (_Row(results, name) for name in ("relations", "questions", "grounding"))
    kinds, branches, drop = (_Row(results, name) for name in ("geometry_kinds", "branches", "drop_branch"))
    linear, one, four = (_Row(results, "second_order_steps", index) for index in range(3))
    absent, queries = _Row(results, "absent"), _Row(results, "normalized_queries")
    yield f"""## If this is your case, in drawn scenes

- **State what is next to what**: relative geometry. Of G-SAN {relations.learned("gsan")} seeds learn it, of a learned
  embedding of absolute boxes {relations.learned("learned")}; {relations.price} ({relations.link}). The price in truth:
  which of two things is larger, {relations.mean("gsan", "learned", "size")}
  ([page](experiments/results/relative_geometry.md)). On COCO, F1 of relations
  {coco.mean("ngsan", "san", "relation_f1")} ([page](experiments/results/coco_boxes.md)).
- **Answer what is next to what**: the same in MCAN, right answers {questions.effect}; {questions.price}
  ({questions.link}).
- **Find what is next to what**: of MCAN with distances and branches {grounding.learned("dsa_msa")} seeds learn it, with
  absolute boxes {grounding.learned("learned")}; {grounding.price} ({grounding.link}). With geometry
  {grounding.learned("gsa")} do, and size is better by {grounding.mean("gsa", "dsa_msa", "size")}
  ([page](experiments/results/relative_geometry.md)).
- **Which geometry**: for pairs not the content-independent one, {kinds.effect} against the key-dependent one, though
  for size {kinds.mean("content", "key", "size")} ({kinds.link}).
- **Few examples** (64 scenes): three branches, of which 0.4 are dropped, instead of 12 heads, truth {branches.effect};
  {branches.price} ({branches.link}). Of that, dropping makes {drop.effect} ({drop.link}).
- **Products of features**: X-Linear attention in the decoder, {linear.effect} steps to learn them; {linear.price}
  ({linear.link}). Against a longer baseline, truth {linear.mean("blocks0", "first_longer", "truth")}
  ([page](experiments/results/second_order_steps.md)). Blocks of it in the encoder: one, {one.effect} steps
  ({one.link}); four, {four.effect} steps ({four.link}).
- **Say what is absent**: AoA in the encoder, truth {absent.effect}, after correction not told from 0 ({absent.link}).
- **Learn faster**: not by normalized queries, {queries.effect} steps ({queries.link}).
"""


def _rest() -> Iterator[str]:
    yield f"""## The price at the papers' sizes

On an H100 a cross-entropy step of 10 images takes 31 ms (Transformer), 32 (NG-SAN), 35 (MD-SAN), 70 (AoANet), 75
(X-LAN) and 146 (X-Transformer) ([table](results/speed.md#gpu)).

## What nobody knows

- Anything trained until more steps gain nothing, with pixels and more than three seeds, at full size, or after
  self-critical training.
- Whether self-critical training costs truth: where it fell, captioners were half trained and rates high
  ([withdrawn]({TABLE}#withdrawn)).

Written by `python research/experiments/run.py --pages`."""
