"""Claims of the papers as experiments that may fail: the models, the runs, the numbers, the verdict and its page.

A claim is a TOML file in this folder:

    title, question, source, world    text; `source` names paper and table or equation
    notes                             paragraphs about what the numbers mean, below the verdict
    [data] [model] [training] [fine_tuning]    changes of the recipes of all arms, as `legenda.train` takes them; with
                                      fine_tuning the stage of a recipe is followed by a second one like it
    [[arms]]                          key, label, recipe, and changes of its own
    [[measures]]                      key, label, and what is measured: see `Measure`
    [[comparisons]]                   arm, against, measure, and the predicted sign of the difference
"""

from legenda.claims.claim import Arm, Claim, Comparison, Measure, get_claim, list_claims
from legenda.claims.page import write_page
from legenda.claims.results import collect
from legenda.claims.runs import ClaimRun, claim_runs
from legenda.claims.verdict import Interval, decide, overall_verdict, paired_interval

__all__ = [
    "Arm",
    "Claim",
    "ClaimRun",
    "Comparison",
    "Interval",
    "Measure",
    "claim_runs",
    "collect",
    "decide",
    "get_claim",
    "list_claims",
    "overall_verdict",
    "paired_interval",
    "write_page",
]
