"""`legenda serve`: a page and an API on this machine that caption pictures and show where each word looked."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from legenda.cli.options import parse
from legenda.errors import UserError

if TYPE_CHECKING:
    from legenda.evaluation.runs import CaptionerRun
    from legenda.extractors import Extractor

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Options:
    """Serves trained models as a page to try them on and as an HTTP API; needs the extra `serve`.

    Nothing leaves the machine: the page loads nothing from elsewhere, and pictures are neither kept nor sent on. Only
    this machine is answered unless --host says otherwise. The API is described at /docs and in /openapi.json.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""
    extractor: str | None = None
    """The Python file of the extractor, for runs whose extractor is not built in."""
    samples: tuple[str, ...] = ()
    """Photographs to try, as files, folders or patterns; without them six that a model did not learn from, where
    they lie beside its annotations. Scenes are always there for models of scenes."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 lets all of the network in."""
    port: int = 8000
    """The port; 0 takes a free one."""
    rate_limit: int = 600
    """Requests that one address may send in a minute."""
    max_upload_mb: int = 12
    """The size of the largest picture that is taken."""


def run(arguments: Sequence[str]) -> None:
    """Serves until it is stopped."""
    options = parse(Options, arguments, "serve")
    if not options.runs:
        raise UserError("name at least one run folder, such as runs/demo/ngsan")
    if options.rate_limit < 1 or options.max_upload_mb < 1 or not 0 <= options.port < 65536:
        raise UserError("--rate-limit and --max-upload-mb must be 1 or more, and --port must lie in 0..65535")
    try:
        import fastapi  # noqa: F401 - whether the extra is there
        import multipart  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise UserError(f"{error.name} is missing; install it with pip install 'legenda[serve]'") from error

    from legenda.evaluation.runs import load_captioner_run, unique_run_names
    from legenda.extractors import find_images
    from legenda.serving.app import Limits, create_app
    from legenda.serving.engine import Served
    from legenda.serving.samples import photographs_of, sample_pictures

    opened = {name: load_captioner_run(folder) for name, folder in unique_run_names(options.runs).items()}
    models = {name: Served(one, _extractor(one, options.extractor)) for name, one in opened.items()}
    photographs = find_images(options.samples) if options.samples else photographs_of(models.values())
    local = options.host in _LOOPBACK
    limits = Limits(
        options.max_upload_mb * 1_000_000, options.rate_limit, hosts=(*_LOOPBACK, "[::1]") if local else ("*",)
    )
    scenes = any(served.extractor.name == "scenes" for served in models.values())
    with tempfile.TemporaryDirectory(prefix="legenda-samples-") as folder:
        samples = sample_pictures(Path(folder), photographs, scenes=scenes)
        app = create_app(models, samples, limits)
        config = uvicorn.Config(app, host=options.host, port=options.port, log_level="warning", server_header=False)
        socket = config.bind_socket()
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(f"{', '.join(models)} at http://{host}:{socket.getsockname()[1]} (stop with Ctrl+C)", flush=True)
        uvicorn.Server(config).run(sockets=[socket])


def _extractor(opened: "CaptionerRun", given: str | None) -> "Extractor":
    """The built-in extractor of a run, else the one that is given."""
    if given is None:
        return opened.extractor(None)
    try:
        return opened.extractor(None)
    except UserError:
        return opened.extractor(given)
