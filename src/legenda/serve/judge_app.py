"""The web application of `legenda judge`: a page with pairs of captions, and the API that keeps the choices.

Neither names the models: a judge gets images by number, and captions by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field, StringConstraints

from legenda.evaluation.judgments import JudgmentFile
from legenda.report.page import render_html
from legenda.serve.guarded_app import create_guarded_app, send_image
from legenda.serve.limits import Limits

_STYLES = ("theme.css", "page.css", "judge.css")
_SCRIPTS = ("dom.js", "judge.js")
_SOURCES = {"img-src": "'self' data:", "connect-src": "'self'"}


class _Judge(BaseModel):
    """Who asks."""

    judge: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)]


class _Choice(_Judge):
    """The better caption of a pair."""

    pair: int = Field(ge=0)
    choice: Literal["left", "right", "equal"]


def create_judge_app(file: JudgmentFile, images: Sequence[Path], limits: Limits) -> FastAPI:
    """Return the application for a file of judgments; images: the image file of each of its pairs."""
    app = create_guarded_app(limits, openapi_url=None)
    page = render_html(
        "judge.html",
        styles=_STYLES,
        scripts=_SCRIPTS,
        data=None,
        texts={"title": "Which caption is more descriptive?"},
        sources=_SOURCES,
    )

    @app.get("/")
    async def _page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/api/images/{pair}")
    def image(pair: int) -> Response:
        return send_image(images[_check(pair)], f"image {pair}")

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
