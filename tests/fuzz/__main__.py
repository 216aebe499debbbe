"""Fuzz every reader through the command line for some minutes; exit code 1 where anything is found.

    make fuzz                                           # 10 minutes, a new seed
    python tests/fuzz --minutes 30 --seed 7
    python tests/fuzz --only features.packed --cases 500
    python tests/fuzz --only features.packed --seed 7 --case 123

The seed is printed. A finding is saved in build/fuzz with its files and the command that repeats it; campaign.py lists
what counts as one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from campaign import Campaign, Case

_SAVED = Path(__file__).resolve().parents[2] / "build" / "fuzz"


def main() -> int:
    """Run cases, and print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long to run (default: 10)")
    parser.add_argument("--seed", type=int, help="of the damage (default: a random one, which is printed)")
    parser.add_argument("--only", metavar="SUBJECT", help="subjects whose names begin so, such as run.config")
    parser.add_argument("--cases", type=int, help="cases of each subject, instead of the minutes")
    parser.add_argument("--case", type=int, help="one case, by its number")
    options = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with TemporaryDirectory(prefix="legenda-fuzz-") as folder:
        campaign = Campaign(Path(folder), _SAVED, options.only)
        if not campaign.subjects:
            parser.error(f"no subject begins with {options.only!r}")
        try:
            for case in cases(campaign, seed, options):
                found = campaign.run(case)
                if found is not None:
                    print(f"\n{found}", flush=True)
            return report(campaign)
        except KeyboardInterrupt:
            return report(campaign)
        finally:
            campaign.child.close()


def cases(campaign: Campaign, seed: int, options: argparse.Namespace) -> Iterator[Case]:
    """Yield the one case, so many of each subject, or, until the time is over, of the one that had least CPU time."""
    if options.case is not None or options.cases is not None:
        for number in range(options.cases) if options.case is None else [options.case]:
            yield from (Case(subject, seed, number) for subject in campaign.subjects)
        return
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        subject = min(campaign.subjects, key=lambda subject: campaign.tallies[subject.name].seconds)
        yield Case(subject, seed, campaign.tallies[subject.name].cases)


def report(campaign: Campaign) -> int:
    """Print the counts of every subject; 1 where anything was found."""
    total: Counter[str] = Counter()
    for name, tally in campaign.tallies.items():
        total += tally.counts
        print(f"{name:<24} {tally.cases:>6} files {format_counts(tally.counts)}")
    files, findings = (
        sum(map(get, campaign.tallies.values())) for get in (lambda t: t.cases, lambda t: len(t.findings))
    )
    print(
        f"{'all':<24} {files:>6} files {format_counts(total)}\n{findings} findings{f' in {_SAVED}' if findings else ''}"
    )
    return 1 if findings else 0


def format_counts(counts: Counter[str]) -> str:
    """Return the number of commands and how they ended, on one line."""
    return f"{counts.total():>6} commands: " + "  ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
