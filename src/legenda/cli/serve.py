"""`legenda serve`: a web page and an HTTP API that caption images and show the attention of each word."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from pydantic import Field

from legenda.cli.options import Flat, Search
from legenda.compute import RunOptions
from legenda.config import Config, PositiveInt
from legenda.errors import LegendaError, import_extra
from legenda.extractors import Extractor
from legenda.hub import unique_run_names
from legenda.images import find_images
from legenda.pipeline import CaptionsModel, Pipeline, load_for_captions


class ServeOptions(Config):
    """Serve trained models as a web page and an HTTP API; needs the extra `serve`.

    The page loads nothing from other hosts, and images are neither stored nor sent on. Only this machine can connect
    unless --host says otherwise. The options of the search apply to requests that do not set them. The API is described
    at /docs and in /openapi.json.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "photo",
        "runs/mine photo --port 8080",
        "photo --host 0.0.0.0 --allowed-host captions.example.org",
    )
    usual: ClassVar[tuple[str, ...]] = ("host", "port", "allowed_host", "samples", "beam_size", "device")

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that legenda export wrote, which take no PyTorch."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 admits the whole network."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """The port; 0 selects a free one."""
    allowed_host: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A name that the server is reached by, such as that of a reverse proxy; by default the local names are answered,
    and IP addresses where --host is not a local one. Repeatable."""
    extractor: str | None = None
    """The extractor, a Python file or a name, for runs whose extractor is not built in."""
    consensus: bool = True
    """Choose among the beams by the CIDEr to expect of each, where the model can, as photo does."""
    samples: tuple[str, ...] = ()
    """Sample photographs: files, folders or patterns; by default four of the package and six held-out ones, if
    they are found next to the annotations of a model. Models of scenes have drawn scenes."""
    max_upload_mb: PositiveInt = 12
    """The largest accepted request, in MB."""
    max_megapixels: PositiveInt = 50
    """The largest accepted image, in millions of pixels; three such images are decoded at a time."""
    search: Search = Field(default_factory=dict)
    compute: Annotated[RunOptions, Flat] = RunOptions()


def run(options: ServeOptions) -> None:
    """Serve until the process is stopped, and print the address when it answers."""
    for module in ("multipart", "fastapi", "uvicorn"):  # forms need the first
        import_extra(module, "serve")
    from legenda.serve.app import create_app, default_photographs, sample_images
    from legenda.serve.engine import Engine, return_freed_memory
    from legenda.serve.server import exit_on_sigterm, run_server

    return_freed_memory()
    runs = {name: load_for_captions(folder, options.compute) for name, folder in unique_run_names(options.runs).items()}
    models = {
        name: Pipeline.of_run(run, _load_extractor(run, options.extractor), consensus=options.consensus)
        for name, run in runs.items()
    }
    of_scenes = [model.extractor.name == "scenes" for model in models.values()]
    photographs = find_images(options.samples) if options.samples else []
    if not options.samples and not all(of_scenes):
        photographs = default_photographs(runs.values())
    with exit_on_sigterm(), tempfile.TemporaryDirectory(prefix="legenda-samples-") as folder:
        samples = sample_images(Path(folder), photographs, scenes=any(of_scenes))
        with Engine(models, options.max_megapixels * 1_000_000) as engine:
            app = create_app(
                engine,
                samples,
                options.search,
                max_bytes=options.max_upload_mb * 1_000_000,
                host=options.host,
                allowed_hosts=options.allowed_host,
            )
            run_server(
                app, options.host, options.port, ", ".join(models), partial(print, flush=True), on_stop=engine.stop
            )


def _load_extractor(run: CaptionsModel, name: str | None) -> Extractor:
    """Return the extractor recorded in the run if it can be loaded, else the named one."""
    try:
        return run.resolve_extractor(None)
    except LegendaError:
        if name is None:
            raise
        return run.resolve_extractor(name)
