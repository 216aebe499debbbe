"""`legenda serve`: a web page and an HTTP API that caption images and show the attention of each word."""

from collections.abc import Sequence

from legenda.cli.options import parse


def run(arguments: Sequence[str]) -> None:
    """Serve until the process is stopped."""
    from legenda.serve.options import ServeOptions

    options = parse(ServeOptions, arguments, "serve")
    from legenda.serve.server import serve

    serve(options, announce=lambda line: print(line, flush=True))
