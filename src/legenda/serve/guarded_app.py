"""What the applications share: the guard, answers to errors in one sentence, and image files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from PIL import Image
from starlette.middleware.trustedhost import TrustedHostMiddleware

from legenda import __version__
from legenda.errors import LegendaError
from legenda.extractors.images import ImageTooLargeError
from legenda.serve.guard import Guard, error_response
from legenda.serve.limits import BusyError, Limits

_NO_TELEMETRY: Any = {
    "auto_configure": False,  # else environment variables can make FastAPI send telemetry
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
}


def create_guarded_app(limits: Limits, **settings: Any) -> FastAPI:
    """Return an application without pages that refuses requests beyond the limits; settings: FastAPI's."""
    app = FastAPI(
        title="Legenda", version=__version__, docs_url=None, redoc_url=None, telemetry=_NO_TELEMETRY, **settings
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(limits.hosts))
    app.add_middleware(Guard, limits=limits)
    _add_error_handlers(app)
    return app


def send_image(path: Path, name: str) -> Response:
    """Return an image file as it is; raise HTTPException, calling it `name`, if unreadable or too large."""
    try:
        data = path.read_bytes()
        kind = Image.open(io.BytesIO(data)).format or "PNG"
    except (OSError, Image.DecompressionBombError) as error:
        raise HTTPException(404, f"{name} can no longer be read") from error
    return Response(data, media_type=str(Image.MIME[kind]))


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(LegendaError)
    async def unprocessable(_: Request, error: Exception) -> Response:
        return error_response(422, str(error))

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: Exception) -> Response:
        return error_response(503, str(error), retry_after=5)

    @app.exception_handler(ImageTooLargeError)
    async def too_large(_: Request, error: Exception) -> Response:
        return error_response(413, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return error_response(422, f"{'.'.join(map(str, first['loc'][1:])) or 'request'}: {first['msg']}")
