"""ROUGE-L: the longest common subsequence of a candidate and its references.

Sources: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, section 3; pycocoevalcap 1.2 for beta
and for several references.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

_BETA = 1.2


def rouge_l(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """ROUGE-L of one image, in 0..1: the F score of the best precision and the best recall over the references.

    The two maxima may come from different references, as in pycocoevalcap. No caption may be without tokens; there, an
    empty caption is the one token "".
    """
    places: defaultdict[str, int] = defaultdict(int)
    for place, token in enumerate(candidate):
        places[token] |= 1 << place
    common = [_common_subsequence(len(candidate), places, reference) for reference in references]
    precision = max(common) / len(candidate)
    recall = max(length / len(reference) for length, reference in zip(common, references, strict=True))
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _common_subsequence(length: int, places: Mapping[str, int], other: Sequence[str]) -> int:
    """The length of the longest common subsequence with a caption of a length, whose tokens' places are bits.

    One row of the usual table is the bits of an integer, a zero for every step up (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004).
    """
    everything = (1 << length) - 1
    row = everything
    for token in other:
        if token in places:
            hits = row & places[token]
            row = ((row + hits) | (row - hits)) & everything
    return length - row.bit_count()
