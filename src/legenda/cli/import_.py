"""`legenda import`: weights of a released code become a run folder."""

from pathlib import Path

import tyro

from legenda.config import Config, Count


class ImportOptions(Config):
    """Convert a released checkpoint to a run folder for the other commands.

    Sizes and ablations are read from the names and shapes of the tensors.
    """

    kind: tyro.conf.Positional[str]
    """The released code: aoanet, xlan, xtransformer, mdsan or mcan."""
    weights: tyro.conf.Positional[Path]
    """Its checkpoint: .pth, .pt, .npz or .safetensors."""
    vocabulary: Path
    """Its vocabulary: a text file with one word a line, cocotalk.json, infos_*.pkl or vocab.pkl; no code in a pickle is
    run."""
    answers: Path | None = None
    """The answers, for mcan: answer_dict.json or a list; its vocabulary is a text file of the questions' words."""
    out: Path | None = None
    """The run folder (default: runs/KIND)."""
    num_heads: Count | None = None
    """Attention heads, which the tensors do not show; by default those of the release."""


def run(options: ImportOptions) -> None:
    """Write the run folder and print the next command."""
    from legenda.config import to_json
    from legenda.environment import describe_environment
    from legenda.importers import load
    from legenda.io import follow_links, locked, partial_folder
    from legenda.models import Captioner, describe_model
    from legenda.training.launch import check_new_folder

    out = Path("runs") / options.kind if options.out is None else options.out
    check_new_folder(out)
    kind, heads = options.kind, options.num_heads
    model = load(kind, options.weights, num_heads=heads, vocabulary=options.vocabulary, answers=options.answers)
    imported = {"kind": options.kind, "weights": to_json(options.weights, out)}
    sections = {"task": describe_model(model.name).task, "imported": imported}
    with locked(out), partial_folder(out) as folder:  # the lock removes what a killed import has left
        model.save(folder, **sections, environment=describe_environment(out))
        folder.replace(follow_links(out))
    print(f"{out}: {model.name}, {model.parameter_count:,} parameters, {model.config.vocab_size:,} words")
    if isinstance(model, Captioner):
        print(f"next: legenda caption IMAGES --model {out} --extractor EXTRACTOR.py")
