"""`legenda import`: weights of a released code become a run folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from legenda.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Turns a released checkpoint into a run folder that every other command takes.

    Sizes and ablations are read from the names and shapes of the tensors.
    """

    kind: tyro.conf.Positional[str]
    """The released code: aoanet, xlan, xtransformer, mdsan or mcan."""
    weights: tyro.conf.Positional[Path]
    """Its checkpoint: .pth, .pt, .npz or .safetensors."""
    vocabulary: Path
    """Its words: a text with one a line, cocotalk.json, infos_*.pkl or vocab.pkl; nothing in a pickle is run."""
    answers: Path | None = None
    """For mcan: its answers, answer_dict.json or a list; its vocabulary is a text of the questions' words."""
    out: Path | None = None
    """The run folder (default: runs/KIND)."""
    num_heads: int | None = None
    """Attention heads, which the tensors do not tell; the release's own where it is not given."""


def run(arguments: Sequence[str]) -> None:
    """Writes the run folder and says what to do with it."""
    options = parse(Options, arguments, "import")
    from legenda.importers import load
    from legenda.models import Captioner, describe_model
    from legenda.training.run_folder import check_new_folder

    out = Path("runs") / options.kind if options.out is None else options.out
    check_new_folder(out)
    model = load(
        options.kind,
        options.weights,
        num_heads=options.num_heads,
        vocabulary=options.vocabulary,
        answers=options.answers,
    )
    imported = {"kind": options.kind, "weights": str(options.weights.resolve())}
    model.save(out, task=describe_model(model.name).task, imported=imported)
    print(f"{out}: {model.name}, {model.parameter_count:,} parameters, {model.config.vocab_size:,} words")
    if isinstance(model, Captioner):
        print(f"next: legenda caption PICTURES --model {out} --extractor EXTRACTOR.py")
