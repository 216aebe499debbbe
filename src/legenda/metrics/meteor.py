"""METEOR 1.5: its authors' Java program matches words, and its formula is computed here.

Sources: Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target Language",
2014; pycocoevalcap 1.2 for the options of the program, to whose values every value is equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legenda.errors import LegendaError
from legenda.metrics.metric import Metric
from legenda.metrics.spice import find_program, run_java

_SEPARATOR = " ||| "
# Characters that the program or its protocol interpret as the end of a caption.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]|\|\|\|+")

# The program's parameters for English: weights of the four kinds of match, of content and function words, of precision
# and recall, and of the penalty for fragments.
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
_DELTA, _ALPHA, _BETA, _GAMMA = 0.75, 0.85, 0.20, 0.60
_NUM_COUNTS = 23


def count_matches(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the counts `(images, 23)` of one caption an image and its references, all PTB tokens joined by spaces.

    METEOR of the corpus is `meteor_scores` of their sum. Line breaks, other control characters and "|||" count as
    spaces. A call takes about six CPU seconds to start the program, and 1.1 GB of memory.

    Raise ConfigError where the extra `meteor` or Java is missing, and LegendaError where the program fails.
    """
    commands = [
        _SEPARATOR.join(("SCORE", *(_UNSAFE.sub(" ", caption) for caption in (*group, candidate))))
        for candidate, group in zip(candidates, references, strict=True)
    ]
    jar = find_program("METEOR", "meteor/meteor-1.5.jar")
    # Without this option the program does not find its paraphrases in a folder whose name has a space.
    paraphrases = find_program("METEOR", "meteor/data/paraphrase-en.gz")
    options = ["-Xmx2G", "-jar", str(jar), "-", "-", "-stdio", "-l", "en", "-norm", "-a", str(paraphrases)]
    lines = run_java("METEOR", options, stdin="\n".join(commands) + "\n").splitlines()
    try:
        counts = np.array([line.split() for line in lines], float).reshape(len(candidates), _NUM_COUNTS)
    except ValueError as error:
        raise LegendaError(f"METEOR printed something other than counts ({error}); try again") from error
    # A caption that equals its reference as a whole has no fragmentation, in its own score and in that of the corpus.
    is_whole = (counts[:, 20] == 1) & (counts[:, 0:2] == counts[:, 21:23]).all(axis=1)
    counts[is_whole, 20] = 0
    return counts


def meteor_scores(counts: ArrayLike) -> NDArray[np.float64]:
    """Return METEOR, shape (...), of the program's counts or of their sums over a corpus, shape (..., 23).

    The counts are the lengths of caption and reference, the function words of both, for each of four kinds of match
    the content words of both and the function words of both, the chunks (0 where the whole caption is one chunk that
    matches), and the matched words of both.
    """
    counts = np.asarray(counts, np.float64)
    kinds = counts[..., 4:20].reshape(*counts.shape[:-1], 4, 4)
    shares = []
    for side in (0, 1):
        matched = _DELTA * kinds[..., side] + (1 - _DELTA) * kinds[..., 2 + side]
        function = counts[..., 2 + side]
        words = _DELTA * (counts[..., side] - function) + (1 - _DELTA) * function
        shares.append(_ratio((_WEIGHTS * matched).sum(-1), words))
    precision, recall = shares
    mean = _ratio(precision * recall, _ALPHA * precision + (1 - _ALPHA) * recall)
    chunks, matches = counts[..., 20], (counts[..., 21] + counts[..., 22]) / 2
    return mean * (1 - _GAMMA * _ratio(chunks, matches) ** _BETA)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return the quotient, and 0 where there is nothing below."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)


METEOR = Metric(
    lambda captions: count_matches(captions.captions, captions.references),
    "words, stems, synonyms and paraphrases that match a reference, in its order",
    total=meteor_scores,
    needs_java=True,
)
