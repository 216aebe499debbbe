"""The command line: run a command; print an error of the caller as one sentence and exit with code 2.

Only the standard library is imported here, so that help and errors are immediate.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword

from legenda.errors import ConfigError, LegendaError, did_you_mean
from legenda.terminal import safe_stdout

COMMANDS = {
    "demo": "caption photographs, then compare two small models with and without geometry on scenes",
    "recipes": "list the recipes, or print one in full",
    "train": "train a recipe into a run folder; called again, it resumes",
    "evaluate": "caption a split with a trained model and score it",
    "table": "train the rows of a paper's table and print their scores with the paper's",
    "report": "compare runs in one page: scores, curves, captions, and the attention of each word",
    "caption": "caption images with a trained model",
    "serve": "serve models on this machine as a page and an HTTP API",
    "score": "score captions in a file against references, and compare two files",
    "compare": "compare the predictions of two runs: differences, p, and where they disagree",
    "inspect": "describe a feature store or a run, and verify it",
    "extract": "extract features of images into a file",
    "convert": "convert feature files of one format to another",
    "export": "write a model as ONNX or torch.export files",
    "push": "upload a run to Hugging Face's hub with a model card",
    "import": "convert weights of a released code to a run folder",
    "models": "list the models with paper and number of parameters",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exit with code 2 for a LegendaError, 128 and its number for a signal."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        raise SystemExit(0)
    if arguments[0] == "--version":
        from legenda import __version__

        print(f"legenda {__version__}")
        raise SystemExit(0)
    try:
        with safe_stdout():
            _run(arguments[0], arguments[1:])
    except (LegendaError, KeyboardInterrupt, OSError, MemoryError, RuntimeError) as error:
        from legenda.cli._errors import exit_code

        raise SystemExit(exit_code(arguments[0], error)) from None


def _run(command: str, arguments: list[str]) -> None:
    if command not in COMMANDS:
        raise ConfigError(f"there is no such command; {did_you_mean(command, COMMANDS)}")
    module = f"{command}_" if iskeyword(command) else command
    from legenda.cli._logging import log_to_stderr
    from legenda.cli._plugins import load_plugins

    log_to_stderr()
    arguments = load_plugins(arguments)
    import_module(f"legenda.cli.{module}").run(arguments)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: legenda COMMAND [OPTIONS]\n\n"
        "Legenda captions images with attention.\n\n"
        f"commands:\n{lines}\n\n"
        "Every command takes --plugin FILE, a Python file that registers models, data, metrics or other parts.\n"
        "legenda COMMAND --help describes what a command reads, writes and needs; start with legenda demo."
    )
