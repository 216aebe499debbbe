"""The web application of `run.py serve`: a page with pairs of captions, and the API that keeps the choices.

Neither names the models: a judge gets images by number, and captions by side.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from judgments import JudgmentFile
from pydantic import BaseModel, Field, StringConstraints
from starlette.middleware.trustedhost import TrustedHostMiddleware

from legenda.errors import LegendaError
from legenda.report.page import render_html

_FOLDER = Path(__file__).parent


class _Judge(BaseModel):
    """Who asks."""

    judge: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)]


class _Choice(_Judge):
    """The better caption of a pair."""

    pair: int = Field(ge=0)
    choice: Literal["left", "right", "equal"]


def create_judge_app(file: JudgmentFile, images: Sequence[Path], hosts: Sequence[str] = ("*",)) -> FastAPI:
    """Return the application for a file of judgments.

    images: the image file of each of its pairs. hosts: allowed Host headers.
    """
    app = FastAPI(openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    page = render_html(
        _FOLDER / "judge.html",
        styles=("theme.css", "page.css", _FOLDER / "judge.css"),
        scripts=("dom.js", _FOLDER / "judge.js"),
        data=None,
        placeholders={"title": "Which caption is more descriptive?"},
        sources={"img-src": "'self' data:", "connect-src": "'self'"},
    )

    @app.exception_handler(LegendaError)
    async def unprocessable(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, 422)

    @app.get("/")
    async def _page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/api/images/{pair}")
    def image(pair: int) -> Response:
        # not whose headers tell size and time of the file
        try:
            return Response(images[_check(pair)].read_bytes(), media_type=mimetypes.guess_type(images[pair])[0])
        except OSError as error:
            raise HTTPException(404, f"image {pair} can no longer be read") from error

    @app.post("/api/next")
    def next_question(judge: _Judge) -> dict[str, Any]:
        return asdict(file.next_question(judge.judge))

    @app.post("/api/answer")
    def answer(choice: _Choice) -> dict[str, Any]:
        return asdict(file.answer(choice.judge, _check(choice.pair), choice.choice))

    @app.post("/api/undo")
    def undo(judge: _Judge) -> dict[str, Any]:
        return asdict(file.undo(judge.judge))

    def _check(pair: int) -> int:
        if not 0 <= pair < len(images):
            raise HTTPException(404, f"there is no pair {pair}")
        return pair

    return app
