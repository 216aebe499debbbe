"""The command line: run a command; print an error of the caller as one sentence and exit with code 2.

No heavy library is imported here, so that help and errors are immediate.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from types import FrameType
from typing import TextIO, get_type_hints

from legenda.errors import ConfigError, LegendaError, did_you_mean, install_line
from legenda.terminal import STOPPED, escape_controls, safe_stdout, shorten

COMMANDS = {
    "demo": "caption photographs, then compare two small models with and without geometry on scenes",
    "recipes": "list the recipes, or print one in full",
    "train": "train a recipe into a run folder; called again, it resumes",
    "evaluate": "caption a split with a trained model and score it",
    "table": "train the rows of a paper's table and print their scores with the paper's",
    "report": "compare runs in one page: scores, captions, and the attention of each word",
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
    if arguments is None:
        # no command multiplies large matrices in NumPy, and OpenBLAS's threads take longer to start than its import
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["help"]
    _open_closed_streams()
    with _stop_by_signal() as received:
        try:
            with safe_stdout():
                _run(arguments[0], arguments[1:])
                sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            # a library may turn the interrupt into an error of its own
            if received and not isinstance(error, KeyboardInterrupt):
                raise SystemExit(exit_code(arguments[0], _Stopped(received[0]))) from None
            raise SystemExit(exit_code(arguments[0], error)) from None


class _Stopped(KeyboardInterrupt):
    """Raised by the signal that ends a command; signum: its number."""

    def __init__(self, signum: int) -> None:
        super().__init__("stopped")
        self.signum = signum


@contextmanager
def _stop_by_signal() -> Iterator[list[int]]:
    """Raise _Stopped for SIGINT and SIGTERM, so that what is unfinished is removed; yield the signals received."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        STOPPED.set()
        raise _Stopped(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    STOPPED.clear()
    try:
        for number, handler in before.items():
            if handler in (signal.default_int_handler, signal.SIG_DFL):  # neither ignored, as by nohup, nor another's
                signal.signal(number, stop)
        yield received
    finally:
        for number, handler in before.items():
            if handler is not None:  # None is a handler that Python did not set
                signal.signal(number, handler)


def _run(command: str, arguments: list[str]) -> None:
    if command in ("-h", "--help", "help"):
        print(_help())
        return
    if command == "--version":
        from legenda.io import __version__

        print(f"legenda {__version__}")
        return
    if command not in COMMANDS:
        raise ConfigError(f"there is no such command; {did_you_mean(command, COMMANDS)}")
    module = f"{command}_" if iskeyword(command) else command
    _log_to_stderr()
    arguments = _load_plugins(arguments)
    run = import_module(f"legenda.cli.{module}").run
    kind = get_type_hints(run).get("options")
    if kind is None:  # it parses the arguments itself
        run(arguments)
        return
    from legenda.cli.options import parse

    run(parse(kind, arguments, command))


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


_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_PATH_ERRORS = {errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES}
_OF_TORCH = {"torch", "jaxtyping", "lightning_fabric"}
"""The packages of the extra torch."""
_NO_MEMORY = re.compile("out of memory|allocate memory|size calculation overflowed")  # of torch


def exit_code(command: str, error: BaseException) -> int:
    """Print one sentence about an error and return the exit code; raise any error that is not the caller's mistake."""
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()  # the reader of the output has closed it, which is no error
        return 0
    if isinstance(error, KeyboardInterrupt):
        signum = getattr(error, "signum", None)
        print("stopped" if signum is None else error, file=sys.stderr)
        return 128 + (signum or signal.SIGINT)
    sentence = _describe(error)
    if sentence is None:
        raise error
    print(f"legenda {escape_controls(command)}: {shorten(sentence)}", file=sys.stderr)
    return 2


def _describe(error: BaseException) -> str | None:
    """Return one sentence about a mistake of the caller or a limit of the machine; None for any other error."""
    if isinstance(error, LegendaError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _OF_TORCH:
        return f"PyTorch is missing, which this needs; {install_line('torch')}"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        remedy = "choose smaller sizes, such as those of batches and beams, or a machine with more memory"
        return f"there is not enough memory; {remedy}"
    if not isinstance(error, OSError):
        return None
    name = escape_controls(error.filename or "a file")
    if error.errno in _DISK_ERRORS:
        return f"{name} could not be written ({error.strerror}); free some space and call it again"
    if "temporary directory" in str(error):
        return f"{error.strerror}; free some space, or set TMPDIR to another folder"
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd
        return "the current folder does not exist any more; change to another one"
    if error.errno in _PATH_ERRORS and error.filename is not None:
        return f"{shorten(name)} cannot be opened ({error.strerror}); name another file"
    return None


def _open_closed_streams() -> None:
    """Let the standard streams that the caller has closed (>&-) read and write nothing, as /dev/null does."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - until the exit


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Write to the current standard error, which a progress bar replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


def _log_to_stderr() -> None:
    """Write messages of the logger "legenda" from the level INFO on, as they are, unless it has a handler already.

    Pillow's warnings of damaged metadata are not printed.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logger = logging.getLogger("legenda")
    if not logger.handlers:
        logger.setLevel(logging.INFO)
        logger.addHandler(_StderrHandler())


def _load_plugins(arguments: Sequence[str]) -> list[str]:
    """Run the files of every --plugin, and return the other arguments."""
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        option, equals, value = argument.partition("=")
        if option != "--plugin":
            rest.append(argument)
            continue
        file = value if equals else next(remaining, "")
        if not file or file.startswith("--"):
            raise ConfigError("missing value for --plugin; name a Python file")
        from legenda.registry import load_plugin

        load_plugin(file)
    return rest
