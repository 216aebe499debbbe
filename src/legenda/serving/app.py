"""The web application of `legenda serve`: its page, its API and its limits."""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, File, Form, HTTPException, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from PIL import Image
from starlette.middleware.trustedhost import TrustedHostMiddleware

from legenda import __version__
from legenda.errors import UserError, nearest
from legenda.extractors import read_image
from legenda.models import describe_model
from legenda.serving.engine import BusyError, Engine, Served, Wish
from legenda.serving.limits import Rate
from legenda.serving.schemas import Caption, Captions, Health, Problem, ServedModel
from legenda.visualization.caption_attention import CaptionAttention, draw_caption_attention
from legenda.visualization.page import render_html

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "serve.css")
_SOURCES = {"img-src": "'self' data: blob:", "connect-src": "'self'"}
_SHEET_SIDE = 320
_NO_TELEMETRY: Any = {
    "auto_configure": False,  # else variables of the environment can make FastAPI report to an address they name
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
}

Next = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Limits:
    """most_bytes: of one request; per_minute: requests of one address; hosts: the names it answers to."""

    most_bytes: int = 12_000_000
    per_minute: int = 600
    hosts: tuple[str, ...] = ("*",)


def create_app(models: Mapping[str, Served], samples: Mapping[str, Path], limits: Limits) -> FastAPI:
    """The application over opened models; `samples` are pictures to try, by the name that the page shows."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.engine = Engine(models)
        yield
        await asyncio.to_thread(app.state.engine.close)

    app = FastAPI(
        title="Legenda",
        version=__version__,
        summary="Captions for pictures, and where each word looked.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(limits.hosts))
    _add_limits(app, limits)
    _add_pages(app, models, samples)
    _add_captions(app, models)
    return app


def _add_limits(app: FastAPI, limits: Limits) -> None:
    rate = Rate(limits.per_minute)

    @app.middleware("http")
    async def limit(request: Request, call_next: Next) -> Response:
        if request.method == "POST":
            length = request.headers.get("content-length", "")
            if not length.isdigit():
                return _problem(411, "say how long the request is (Content-Length)")
            if int(length) > limits.most_bytes:
                most = limits.most_bytes / 1e6
                return _problem(413, f"the picture is too large; send one of at most {most:.0f} MB")
            seconds = rate.admit(request.client.host if request.client else "")
            if seconds > 0:
                answer = _problem(429, f"too many requests from this address; try again in {seconds:.0f} s")
                answer.headers["Retry-After"] = f"{seconds + 1:.0f}"
                return answer
        answer = await call_next(request)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "no-referrer"
        return answer

    @app.exception_handler(UserError)
    async def refuse(_: Request, error: Exception) -> Response:
        return _problem(422, str(error))

    @app.exception_handler(BusyError)
    async def postpone(_: Request, __: Exception) -> Response:
        return _problem(503, "too many requests wait already; try again in a few seconds")

    @app.exception_handler(RequestValidationError)
    async def explain(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return _problem(422, f"{'.'.join(map(str, first['loc'][1:])) or 'request'}: {first['msg']}")


def _problem(code: int, text: str) -> JSONResponse:
    return JSONResponse({"detail": text}, status_code=code)


def _add_pages(app: FastAPI, models: Mapping[str, Served], samples: Mapping[str, Path]) -> None:
    described = [_described(name, served) for name, served in models.items()]
    texts = {"title": "Legenda"}
    data = {"models": [model.model_dump() for model in described], "samples": list(samples)}
    page, reference = (
        render_html(
            f"{name}.html",
            styles=_STYLES,
            scripts=("dom.js", *scripts),
            data=data,
            texts=texts,
            sources=_SOURCES,
        )
        for name, scripts in (
            ("serve", ("attention-viewer.js", "head-choice.js", "serve-answers.js", "serve.js")),
            ("api", ("api.js",)),
        )
    )

    @app.get("/", include_in_schema=False)
    async def _page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/docs", include_in_schema=False)
    async def _reference() -> HTMLResponse:
        return HTMLResponse(reference)

    @app.get("/health")
    async def health() -> Health:
        """Whether the server lives, how many requests wait, and how many it has answered."""
        engine: Engine = app.state.engine
        return Health(
            status="ok",
            version=__version__,
            models=list(models),
            waiting=engine.line.qsize(),
            answered=engine.answered,
            batches=engine.batches,
        )

    @app.get("/api/models")
    async def list_models() -> list[ServedModel]:
        """The models that can be asked."""
        return described

    @app.get("/api/samples")
    async def list_samples() -> list[str]:
        """The names of pictures to try."""
        return list(samples)

    @app.get("/api/samples/{name}", response_class=Response, responses={404: {"model": Problem}})
    def sample_picture(name: str) -> Response:
        """One of them, as JPEG or PNG."""
        if name not in samples:
            raise HTTPException(404, f"there is no sample {name!r}")
        try:
            data = samples[name].read_bytes()
            kind = Image.open(io.BytesIO(data)).format or "PNG"
        except OSError as error:
            raise HTTPException(404, f"the sample {name!r} cannot be read any more") from error
        return Response(data, media_type=str(Image.MIME[kind]))


def _described(name: str, served: Served) -> ServedModel:
    model = served.run.model
    return ServedModel(
        name=name,
        kind=model.name,
        summary=describe_model(model.name).summary,
        parameters=model.parameter_count,
        extractor=served.extractor.name,
    )


_Picture = Annotated[UploadFile, File(description="the picture: JPEG, PNG, WebP, GIF, BMP or TIFF")]
_Model = Annotated[str, Form(description="the name of a model; the first one where it is empty")]
_Beam = Annotated[int, Form(ge=1, le=20, description="hypotheses that the search keeps")]
_Count = Annotated[int, Form(ge=1, le=10, description="how many captions")]
_Heat = Annotated[float, Form(ge=0, le=5, description="0 searches; above 0, captions are sampled at it")]
_Seed = Annotated[int, Form(ge=0, le=2**31, description="of the sampling; the same seed gives the same captions")]
_Heads = Annotated[bool, Form(description="whether the attention of each head is wanted too")]
_Head = Annotated[int | None, Form(ge=0, description="the head that is drawn; the mean of all without it")]
_PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (411, 413, 422, 429, 503)}


def _add_captions(app: FastAPI, models: Mapping[str, Served]) -> None:
    async def answered(upload: UploadFile, wish: Wish) -> tuple[Image.Image, list[CaptionAttention]]:
        if wish.model not in models:
            raise UserError(f"there is no model {wish.model!r}; {nearest(wish.model, list(models))}")
        name = upload.filename or "the picture"
        picture = await asyncio.to_thread(_read_upload, await upload.read(), name)
        future = app.state.engine.ask(wish, picture, name)
        return picture, await asyncio.wrap_future(future)

    first = next(iter(models))

    @app.post("/api/captions", responses=_PROBLEMS)
    async def describe(
        picture: _Picture,
        model: _Model = "",
        beam_size: _Beam = 3,
        captions: _Count = 1,
        temperature: _Heat = 0.0,
        seed: _Seed = 0,
        heads: _Heads = False,
    ) -> Captions:
        """Captions of a picture by one model, with the attention of every word."""
        began = time.monotonic()
        wish = Wish(model or first, beam_size, captions, temperature, seed)
        _, told = await answered(picture, wish)
        return Captions(
            model=wish.model,
            boxes=_rounded(told[0].boxes) if told[0].has_boxes else None,
            captions=[_caption(looked, with_heads=heads) for looked in told],
            seconds=round(time.monotonic() - began, 3),
        )

    @app.post(
        "/api/attention.png",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}, **_PROBLEMS},
    )
    async def draw(
        picture: _Picture,
        model: _Model = "",
        beam_size: _Beam = 3,
        captions: _Count = 1,
        temperature: _Heat = 0.0,
        seed: _Seed = 0,
        head: _Head = None,
    ) -> Response:
        """The captions as sheets of pictures, a tile for each word with its attention."""
        wish = Wish(model or first, beam_size, captions, temperature, seed)
        image, told = await answered(picture, wish)
        sheet = await asyncio.to_thread(
            draw_caption_attention, image, told, title=wish.model, head=head, side=_SHEET_SIDE
        )
        data = io.BytesIO()
        sheet.save(data, format="PNG")
        return Response(data.getvalue(), media_type="image/png")


def _caption(looked: CaptionAttention, *, with_heads: bool) -> Caption:
    several = with_heads and looked.has_boxes and looked.heads.shape[1] > 1
    return Caption(
        text=looked.text,
        words=list(looked.words),
        score=round(looked.log_prob, 4),
        attention=None if looked.attention is None else _rounded(looked.attention),
        heads=_rounded(looked.heads) if several else None,
    )


def _rounded(values: np.ndarray) -> list[Any]:
    return values.astype(float).round(4).tolist()


def _read_upload(data: bytes, name: str) -> Image.Image:
    """The picture that was sent; UserError, in words that name it as its owner does, for what is none."""
    with tempfile.TemporaryDirectory(prefix="legenda-") as folder:
        path = Path(folder) / "picture"
        path.write_bytes(data)
        try:
            return read_image(path)
        except UserError as error:
            raise UserError(str(error).replace(str(path), name)) from error
