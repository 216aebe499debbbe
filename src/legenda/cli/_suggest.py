"""Suggest the option that is meant: by its last part, by a name that it has elsewhere, or by its spelling."""

from collections.abc import Sequence
from difflib import get_close_matches

SYNONYMS = {
    "amp": "precision",
    "accumulate": "gradient-accumulation-steps",
    "batch": "batch-size",
    "beam": "beam-size",
    "beams": "beam-size",
    "bf16": "precision",
    "bs": "batch-size",
    "clip": "max-grad-norm",
    "cuda": "device",
    "d-model": "dim",
    "dtype": "precision",
    "ema": "weight-averaging",
    "epoch": "epochs",
    "fp16": "precision",
    "gpu": "device",
    "gpus": "devices",
    "grad-accum": "gradient-accumulation-steps",
    "half": "precision",
    "heads": "num-heads",
    "hidden-dim": "dim",
    "hidden-size": "dim",
    "layers": "num-layers",
    "learning-rate": "learning-rate learning-rates factor",
    "lr": "learning-rate learning-rates factor",
    "max-epochs": "epochs",
    "max-len": "max-caption-length",
    "metric": "monitor",
    "n-heads": "num-heads",
    "n-layers": "num-layers",
    "num-beams": "beam-size",
    "num-epochs": "epochs",
    "num-gpus": "devices",
    "num-workers": "workers",
    "output": "out",
    "output-dir": "out",
    "patience": "early-stopping-patience",
    "pretrained": "init-from",
    "rate": "learning-rate learning-rates factor",
    "run": "model",
    "save-every": "checkpoint-every",
    "smoothing": "label-smoothing",
    "warmup": "warmup-steps",
    "wd": "weight-decay",
}
"""Names that options have in other programs, or short ones, and the last parts of the options here."""

_MOST_LISTED = 20
"""Options that are listed where none is similar; help lists more."""


def suggest_option(unknown: str, known: Sequence[str], help_command: str) -> str:
    """Return the end of a sentence that names the options which `unknown` may stand for.

    help_command: the command that lists all options.
    """
    prefix, dot, last = unknown.removeprefix("--").rpartition(".")
    lasts = {option: option.removeprefix("--").rpartition(".")[2] for option in known}
    meant = {last, *SYNONYMS.get(last, "").split()}
    same = [option for option in known if lasts[option] in meant]
    inside = [option for option in same if option.startswith(f"--{prefix}{dot}")]
    if same:
        return f"did you mean {' or '.join((inside or same)[:3])}?"
    close = get_close_matches(unknown, known, n=1)
    if not close:
        similar = get_close_matches(last, set(lasts.values()), n=1)
        close = [option for option in known if lasts[option] in similar][:1]
    if close:
        return f"did you mean {close[0]}?"
    return f"choose from {', '.join(sorted(known))}" if len(known) <= _MOST_LISTED else f"{help_command} lists them"
