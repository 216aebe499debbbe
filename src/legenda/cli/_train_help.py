"""The help of `legenda train`."""

import dataclasses
from typing import Any, get_type_hints

import tyro

MAIN_OPTIONS = {
    "command": ("out", "init_from", "seeds", "device", "precision", "devices", "stages"),
    "model": ("dim", "num_heads", "num_layers", "dropout"),
    "data": ("annotations", "features", "questions", "folder"),
    "training": ("epochs", "batch_size", "schedule", "objective", "seed", "monitor"),
    "schedule": ("learning_rate", "learning_rates", "factor", "warmup_steps"),
}
"""The fields of each part of a recipe that --help lists; --help-all lists all, also those of later stages."""

USAGE = """usage: legenda train RECIPE|--config FILE [--out RUN] [--init-from RUN] [--seeds N] [--device DEVICE]
                     [--precision float32|bf16|fp16] [--devices N] [--nodes N] [--strategy ddp|fsdp]
                     [--stages all|first] [--plugin FILE] [--model.FIELD VALUE]
                     [--data.FIELD VALUE] [--training.FIELD VALUE] [--fine-tuning.FIELD VALUE]

Train a recipe into a run folder (runs/RECIPE unless --out is given); called again, it resumes. A recipe has one or two
stages: training, and fine-tuning, which starts from the best model of the first.

--init-from RUN starts from the model of a trained run, with its vocabulary and configuration; it replaces the first
of two stages: legenda train flickr8k.ngsan --init-from runs/x --out runs/y fine-tunes x.
--stages first stops after the first of two, so that several runs can start from its model; with --init-from, the
first starts from RUN.
--model.decoder.name transformer gives the model the decoder of another, whose options are --model.decoder.FIELD VALUE.
--training.schedule and --training.objective take names: step_decay, epochwise, noam, plateau, constant, cosine,
inverse_sqrt; and cross_entropy, self_critical.
--device is auto, cpu, cuda, cuda:N or mps; --precision bf16 is --training.precision bf16-mixed in every stage.
--seeds 3 trains three runs, RUN/seed0 to RUN/seed2. --devices and --nodes share every step among processes, each with
the whole model, or with a shard of it (--strategy fsdp); with torchrun, each of its processes calls this command.
--plugin FILE runs a Python file that registers recipes, models, data, rewards or other parts.
--config FILE reads a recipe from a file as legenda recipes NAME prints it.
--training.epochs N continues a finished run up to N epochs.

legenda recipes lists the recipes. legenda train RECIPE --help lists the options that matter most, --help-all all."""


def _is_library(kind: type, field: str) -> bool:
    """Return whether a field is declared by a class of the library, not by one that a user registered."""
    declaring = next(base for base in reversed(kind.__mro__) if field in vars(base).get("__annotations__", ()))
    return declaring.__module__.startswith("legenda.")


def hide_options(name: str, part: Any) -> tuple[str, Any, Any]:
    """Return name, type and default of a part of a recipe that shows only its main options in the help."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    hints = get_type_hints(type(part), include_extras=True)
    types: list[tuple[str, Any]] = []
    for field, value in values.items():
        if field not in MAIN_OPTIONS.get(name, ()) and _is_library(type(part), field):
            types.append((field, tyro.conf.Suppress[hints[field]]))
        elif dataclasses.is_dataclass(value):
            _, kind, values[field] = hide_options(field, value)
            types.append((field, kind))
    keywords = {"frozen": True, "kw_only": True, "namespace": {"__post_init__": lambda _: None}}
    shown: Any = dataclasses.make_dataclass(type(part).__name__, types, bases=(type(part),), **keywords)
    return name, shown, shown(**values)
