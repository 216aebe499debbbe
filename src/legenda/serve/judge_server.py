"""What `legenda judge` runs: pairs of captions with their images behind an HTTP server."""

from __future__ import annotations

from collections.abc import Callable

from legenda.evaluation.caption_files import read_single_predictions
from legenda.evaluation.comparison import find_predictions
from legenda.evaluation.judgments import JudgmentFile, choose_pairs
from legenda.locks import locked
from legenda.report.images import match_photographs
from legenda.serve.options import JudgeOptions, require_packages

_NOT_IN_BROWSERS = (".tif", ".tiff")


def serve_pairs(options: JudgeOptions, announce: Callable[[str], None]) -> None:
    """Serve until the process is stopped, and print the address when it answers.

    Raise LegendaError for files that cannot be read, without common images, or of other pairs than `out` holds.
    """
    require_packages()
    from legenda.serve.http_server import allowed_hosts, exit_on_sigterm, run_server
    from legenda.serve.judge_app import create_judge_app
    from legenda.serve.limits import Limits

    paths = [find_predictions(name, options.split) for name in (options.first, options.second)]
    first, second = (read_single_predictions(path) for path in paths)
    common = first.keys() & second.keys()
    found = match_photographs(common, options.images)
    images = {image: path for image, path in found.items() if path.suffix.lower() not in _NOT_IN_BROWSERS}
    pairs = choose_pairs(first, second, images, options.num_images, options.seed)
    limits = Limits(max_bytes=10_000, per_minute=options.rate_limit, hosts=allowed_hosts(options.host))
    with exit_on_sigterm(), locked(options.out):
        file = JudgmentFile(options.out, str(paths[0]), str(paths[1]), pairs)
        asked = sum(not pair.identical for pair in pairs)
        skipped = f", {len(pairs) - asked} more have identical captions" if asked < len(pairs) else ""
        title = f"{asked} pairs of captions{skipped}; {len(images)} of {len(common)} images found;"
        app = create_judge_app(file, [images[pair.image] for pair in pairs], limits)
        run_server(app, options.host, options.port, title, announce)
