"""ROUGE-L: the longest common subsequence of a candidate and its references.

Sources: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, section 3; pycocoevalcap 1.2 for beta
and for several references.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from legenda.metrics.metric import CaptionSet, Metric

_BETA = 1.2


def rouge_l(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return ROUGE-L of one image, in 0..1: the F score of the best precision and the best recall over the references.

    The two maxima may come from different references, as in pycocoevalcap. Every caption needs a token; for an empty
    one, pycocoevalcap uses the token "".
    """
    positions: defaultdict[str, int] = defaultdict(int)
    for position, token in enumerate(candidate):
        positions[token] |= 1 << position
    common = [_common_subsequence(len(candidate), positions, reference) for reference in references]
    precision = max(common) / len(candidate)
    recall = max(length / len(reference) for length, reference in zip(common, references, strict=True))
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _common_subsequence(length: int, positions: Mapping[str, int], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of `other` and a caption of `length` tokens.

    positions: for each token of the caption, its positions as bits. A row of the dynamic program is stored as the bits
    of an integer, with a zero for each increment (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004).
    """
    all_bits = (1 << length) - 1
    row = all_bits
    for token in other:
        if token in positions:
            hits = row & positions[token]
            row = ((row + hits) | (row - hits)) & all_bits
    return length - row.bit_count()


def _measure(captions: CaptionSet) -> list[float]:
    """Return the score of each image.

    The reference program splits at single spaces for ROUGE-L, so that an empty caption is one empty token, and at any
    white space for the others, so that the U+00A0 of "3 1/2" makes two.
    """
    return [
        rouge_l(caption.split(" "), [reference.split(" ") for reference in references])
        for caption, references in captions
    ]


ROUGE_L = Metric(_measure, "longest common subsequence with a reference")
