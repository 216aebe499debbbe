"""What BLEU and CIDEr count."""

from collections import Counter
from collections.abc import Sequence

LONGEST = 4


def count_ngrams(tokens: Sequence[str]) -> Counter[tuple[str, ...]]:
    """How often each run of one to four tokens occurs."""
    counts: Counter[tuple[str, ...]] = Counter()
    for n in range(1, LONGEST + 1):
        counts.update(zip(*(tokens[start:] for start in range(n)), strict=False))
    return counts
