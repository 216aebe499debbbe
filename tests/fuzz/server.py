"""Send requests that schemathesis derives from the server's OpenAPI document, valid and invalid ones.

    python tests/fuzz/server.py --examples 200 --seed 3

Every answer must have a status, a type and a content that the document names, and none may be a server error. Half of
the uploads are images. Exit code 1 where an answer is another.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import Any

from subjects import SHORT, TINY, call


def create_app(folder: Path) -> Any:
    """Return the application with a small model of scenes."""
    from legenda.evaluation.runs import load_captioner_run
    from legenda.pipeline import Pipeline
    from legenda.search_options import SearchOptions
    from legenda.serve.app import create_app
    from legenda.serve.engine import Engine
    from legenda.serve.samples import sample_images

    scenes = "--data.train 12 --data.validation 3 --data.test 4"
    call(f"train scenes.ngsan --out {folder}/run {TINY} --model.geometry-dim 4 {SHORT} {scenes}")
    run = load_captioner_run(folder / "run")
    models = {"run": Pipeline(run.model, run.resolve_extractor(None))}
    (folder / "samples").mkdir()
    samples = sample_images(folder / "samples", [], scenes=True)
    return create_app(Engine(models), samples, SearchOptions(), allowed_hosts=["testserver"])


def draw() -> bytes:
    """Return an image as PNG."""
    from legenda.data.scenes import draw_scene, make_scene

    data = io.BytesIO()
    draw_scene(make_scene("fresh", 1)).save(data, "PNG")
    return data.getvalue()


def check_operation(operation: Any, examples: int, seed: int) -> str | None:
    """Send requests to one operation; return what is wrong with an answer, or None."""
    import hypothesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy())
    def send(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])  # bytes that are no image are valid data

    try:
        send()
    except (Exception, BaseExceptionGroup) as error:  # all kinds of failures, and what the application itself raises
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    """Check all operations of the document."""
    import schemathesis
    from hypothesis import strategies
    from starlette.testclient import TestClient

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200, help="requests of each operation (default: 200)")
    parser.add_argument("--seed", type=int, help="of the requests (default: a random one, which is printed)")
    options = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed = False
    with tempfile.TemporaryDirectory(prefix="legenda-server-") as folder:
        app = create_app(Path(folder))
        with TestClient(app):  # starts the engine
            schemathesis.openapi.format("binary", strategies.binary() | strategies.just(draw()))
            schema = schemathesis.openapi.from_asgi("/openapi.json", app)
            for found in schema.get_all_operations():
                operation = found.ok()
                problem = check_operation(operation, options.examples, seed)
                failed |= problem is not None
                print(f"{operation.label:<28} {problem or f'{options.examples} requests'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
