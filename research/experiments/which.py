"""The page "Which attention?": sentences whose numbers are those of the rows to which they point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiment import Comparison
from page import Decision, Result, effect_of, effect_text, learned_seeds, memory_ratio, time_ratio

TABLE = "experiments/results/README.md"


class _Row:
    """A primary comparison as the page quotes it."""

    def __init__(self, results: Mapping[str, Result], name: str, index: int = 0) -> None:
        self.name, self.result = name, results[name]
        self.decision: Decision = self.result.decisions[index]

    @property
    def effect(self) -> str:
        """The difference, its 95 % interval and the number of seeds."""
        effect, metric = self.decision.effect, self.decision.metric
        return "not known" if effect is None else f"{effect_text(effect, metric, len(effect.differences))}"

    @property
    def price(self) -> str:
        """Training time and memory."""
        time, memory = (ratio(self.result, self.decision.primary) for ratio in (time_ratio, memory_ratio))
        return f"time x {time:.2f}, memory x {memory:.2f}" if time and memory else "price not known"

    @property
    def link(self) -> str:
        """The verdict as a link to the row."""
        return f"[`{self.name}`: {self.decision.verdict or 'not decided'}]({TABLE}#{self.name})"

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
    return "\n".join([*_people(results), *_scenes(results), *_rest(results)]) + "\n"


def _people(results: Mapping[str, Result]) -> Iterator[str]:
    coco = _Row(results, "coco_boxes")
    decided = [
        f"{words} {row.effect}; {row.price} ({row.link})" for words, row in _converged(results) if row.decision.verdict
    ]
    head = "- **COCO's captions from true boxes**, eight passes over the images, boxes known by what is compared alone."
    long = f"{head}\n  CIDEr-D of {'; '.join(decided)}.\n" if decided else ""
    yield f"""# Which attention?

**Take the plain `transformer`**, unless a row below is your case. In the only tests on captions that people wrote, no
attention was shown to beat a plain Transformer by a relevant amount. Differences have 95 % intervals, at equal
parameters; models are small. [The rule](experiments/README.md), [all rows]({TABLE}).

![Effects, with the intervals that decide](experiments/results/forest.svg)

## On what people wrote

{long}- **COCO's captions from true boxes**, one pass over the images, all with absolute boxes. Normalized queries
  and relative geometry (`ngsan`) change CIDEr-D by {coco.effect}; {coco.price} ({coco.link}).
- **Flickr8k's photographs**, three seeds, equal processor time. CIDEr-D of `nsan`, +0.012 (-0.007 to +0.031), and
  `mdsan`, +0.010 (-0.015 to +0.034), is not told from that of `transformer`, nor is it of `gsan` (-0.022) and `ngsan`
  (-0.017); `xlan` (-0.062) and `xtransformer` (-0.167), whose steps take longer, are behind
  ([table](results/flickr8k.md)).
- **Questions about rooms** (DAQUAR), one run each: MCAN is right in 23.7 % with geometry and in 23.4 % without
  ([row](results/other-tasks.md#rooms-daquar)).
- **Phrases of Flickr30k Entities**, one run each: MCAN finds 48.9 % with geometry and 45.2 % without, the one gain seen
  on people's words ([row](results/other-tasks.md#phrases-of-flickr30k-entities)).
- **Translation** (Multi30k), one run each: BLEU 30.3 with normalized queries and 30.5 without
  ([row](results/other-tasks.md#translation)).
"""


def _converged(results: Mapping[str, Result]) -> Iterator[tuple[str, _Row]]:
    """Yield the comparisons of `coco_converged` in plain words, with their rows."""
    words = (
        "normalized queries and relative geometry against absolute boxes",
        "relative geometry against absolute boxes",
        "normalized queries against plain ones, both without boxes",
    )
    for index, each in enumerate(words):
        yield each, _Row(results, "coco_converged", index)


def _scenes(results: Mapping[str, Result]) -> Iterator[str]:
    relations, questions, grounding = (_Row(results, name) for name in ("relations", "questions", "grounding"))
    kinds, branches, drop = (_Row(results, name) for name in ("geometry_kinds", "branches", "drop_branch"))
    linear, one, four = (_Row(results, "second_order_steps", index) for index in range(3))
    absent, queries = _Row(results, "absent"), _Row(results, "normalized_queries")
    yield f"""## If this is your case, in drawn scenes

- **State what is next to what**: relative geometry. Of G-SAN {relations.learned("gsan")} seeds learn it, of a learned
  embedding of absolute boxes {relations.learned("learned")}; {relations.price} ({relations.link}). The price in truth:
  which of two things is larger, {relations.mean("gsan", "learned", "size")}
  ([page](experiments/results/relative_geometry.md)).
- **Answer what is next to what**: the same in MCAN, right answers {questions.effect}; {questions.price}
  ({questions.link}).
- **Find what is next to what**: of MCAN with distances and branches {grounding.learned("dsa_msa")} seeds learn it, with
  absolute boxes {grounding.learned("learned")}; {grounding.price} ({grounding.link}). With geometry
  {grounding.learned("gsa")} do, and size is better by {grounding.mean("gsa", "dsa_msa", "size")}
  ([page](experiments/results/relative_geometry.md)).
- **Which geometry**: not the content-independent one; right pairs against key-dependent geometry {kinds.effect};
  {kinds.price} ({kinds.link}).
- **Few examples** (64 scenes): three branches, of which 0.4 are dropped, instead of 12 heads, truth {branches.effect};
  {branches.price} ({branches.link}). Of that, dropping makes {drop.effect} ({drop.link}).
- **Products of features**: X-Linear attention in the decoder, {linear.effect} steps to learn them; {linear.price}
  ({linear.link}). With about as much time, truth {linear.mean("blocks0", "first_longer", "truth")}
  ([page](experiments/results/second_order_steps.md)). Blocks of it in the encoder: one, {one.effect} ({one.link});
  four, {four.effect} steps ({four.link}).
- **Say what is absent**: AoA in the encoder, truth {absent.effect}; {absent.price} ({absent.link}).
- **Learn faster**: not by normalized queries, {queries.effect} steps; {queries.price} ({queries.link}).
"""


def _rest(results: Mapping[str, Result]) -> Iterator[str]:
    waiting = [words for words, row in _converged(results) if not row.decision.verdict]
    head = "- After eight passes over COCO's images, of which not all seeds have run:"
    unknown = f"{head}\n  {'; '.join(waiting)} ([rows]({TABLE}#coco_converged)).\n" if waiting else ""
    yield f"""## The price at the papers' sizes

On an H100 a cross-entropy step of 10 images takes 31 ms (Transformer), 32 (NG-SAN), 35 (MD-SAN), 70 (AoANet), 75
(X-LAN) and 146 (X-Transformer) ([table](results/speed.md#gpu)).

## What nobody knows

{unknown}- Anything trained until more steps gain nothing, with pixels and more than three seeds, at full size, or after
  self-critical training.
- Whether self-critical training costs truth: the experiment that said so is [withdrawn]({TABLE}#withdrawn).

`python research/experiments/run.py --pages` writes this page."""
