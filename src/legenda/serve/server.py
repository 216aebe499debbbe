"""What `legenda serve` runs: models, sample images and limits behind an HTTP server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from legenda.errors import LegendaError
from legenda.evaluation.runs import CaptionerRun, load_captioner_run, unique_run_names
from legenda.extractors import Extractor, find_images
from legenda.serve.options import ServeOptions, require_packages


def serve(options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serve until the process is stopped, and print the address when it answers.

    Raise ConfigError where a package of the extra `serve` is missing.
    """
    require_packages()
    from legenda.serve.app import create_app
    from legenda.serve.engine import LoadedModel
    from legenda.serve.http_server import allowed_hosts, exit_on_sigterm, return_freed_memory, run_server
    from legenda.serve.limits import Limits
    from legenda.serve.samples import default_photographs, sample_images

    return_freed_memory()
    runs = {name: load_captioner_run(folder, options) for name, folder in unique_run_names(options.runs).items()}
    models = {name: LoadedModel(run, _load_extractor(run, options)) for name, run in runs.items()}
    photographs = find_images(options.samples) if options.samples else default_photographs(models.values())
    limits = Limits(
        max_bytes=options.max_upload_mb * 1_000_000,
        per_minute=options.rate_limit,
        hosts=allowed_hosts(options.host),
        max_pixels=options.max_megapixels * 1_000_000,
    )
    scenes = any(loaded.extractor.name == "scenes" for loaded in models.values())
    with exit_on_sigterm(), tempfile.TemporaryDirectory(prefix="legenda-samples-") as folder:
        samples = sample_images(Path(folder), photographs, scenes=scenes)
        app = create_app(models, samples, limits, options.select())
        run_server(app, options.host, options.port, ", ".join(models), announce)


def _load_extractor(run: CaptionerRun, options: ServeOptions) -> Extractor:
    """Return the extractor recorded in the run if it can be loaded, else the named one."""
    try:
        return run.resolve_extractor(None, options)
    except LegendaError:
        if options.extractor is None:
            raise
        return run.resolve_extractor(options.extractor, options)
