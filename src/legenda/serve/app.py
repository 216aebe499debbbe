"""The web application of `legenda serve`: the page and the API."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from fastapi import FastAPI, Form, HTTPException, Response, UploadFile
from fastapi.responses import HTMLResponse
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator

from legenda import __version__
from legenda.errors import ConfigError, did_you_mean
from legenda.extractors.familiarity import describe_unfamiliar, find_unfamiliar
from legenda.models import describe_model
from legenda.pipeline import GeneratedCaption
from legenda.report.overlay import draw_caption_attention
from legenda.report.page import render_html
from legenda.search_options import SearchOptions
from legenda.serve.engine import BusyError, CaptionedImage, Engine, Request
from legenda.serve.server import create_guarded_app

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "serve.css")
_SCRIPTS = ("dom.js", "attention-scale.js", "attention-viewer.js", "head-choice.js", "serve-results.js", "serve.js")
_SWAGGER_UI = resources.files("fastapi_offline") / "static"
_API_STYLES = (_SWAGGER_UI / "swagger-ui.css",)
_API_SCRIPTS = (_SWAGGER_UI / "swagger-ui-bundle.js", "api.js")
_SOURCES = {"img-src": "'self' data: blob:", "connect-src": "'self'"}
_TILE_SIDE = 320


class CaptionForm(BaseModel):
    """An image and the settings of its captions; those that are left out are the server's."""

    model_config = ConfigDict(extra="forbid")

    image: UploadFile = Field(description="the image: JPEG, PNG, WebP, GIF, BMP or TIFF")
    model: str = Field("", description="the name of a model, by default the first")
    num_captions: int = Field(1, ge=1, le=10, description="number of captions; in beam search at most the beam size")
    beam_size: int | None = Field(None, ge=1, le=20, description="number of beams")
    temperature: float | None = Field(None, ge=0, le=5, description="0 for beam search; above 0, captions are sampled")
    seed: int | None = Field(None, ge=0, le=2**31, description="seed of the sampling; equal seeds give equal captions")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, fields: dict[str, Any]) -> dict[str, Any]:
        for name in fields.keys() - cls.model_fields.keys():
            raise ConfigError(f"there is no field {name!r}; {did_you_mean(name, cls.model_fields)}")
        return fields

    def request(self, models: Mapping[str, Any], search: SearchOptions) -> Request:
        """Return the request with these settings over those of the server; raise ConfigError for an unknown model."""
        model = self.model or next(iter(models))
        if model not in models:
            raise ConfigError(f"there is no model {model!r}; {did_you_mean(model, list(models))}")
        given = {"beam_size": self.beam_size, "temperature": self.temperature or None, "seed": self.seed}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.temperature is not None and (self.temperature > 0) != search.do_sample:
            search = SearchOptions(  # the others are either of sampling or of beam search
                do_sample=self.temperature > 0,
                beam_size=search.beam_size,
                seed=search.seed,
                no_repeat_ngram_size=search.no_repeat_ngram_size,
                forbidden_last_words=search.forbidden_last_words,
            )
        search = replace(search, **changes)
        if self.num_captions > search.beam_size and not search.do_sample:
            raise ConfigError(f"num_captions must be at most beam_size={search.beam_size}, not {self.num_captions}")
        return Request(model, self.num_captions, search)


class CaptionsForm(CaptionForm):
    """Fields of /api/captions."""

    heads: bool = Field(False, description="whether to return the attention of each head")


class SheetForm(CaptionForm):
    """Fields of /api/attention.png."""

    head: int | None = Field(None, ge=0, description="the head to draw, by default the mean of all")


class Caption(BaseModel):
    """One caption of an image."""

    text: str
    words: list[str]
    log_prob: float = Field(description="the sum of the log-probabilities of its tokens, in nats")
    attention: list[list[float]] | None = Field(
        description="for each word a weight for each box, the mean of all heads; null without boxes"
    )
    heads: list[list[list[float]]] | None = Field(
        description="for each word the weights of each head; null unless requested, and for a single head"
    )

    @classmethod
    def create(cls, caption: GeneratedCaption, *, with_heads: bool) -> Self:
        """Return a caption of the pipeline as JSON values."""
        return cls(
            text=caption.text,
            words=list(caption.words),
            log_prob=round(caption.log_prob, 4),
            attention=_round(caption.attention) if caption.has_boxes else None,
            heads=_round(caption.heads) if with_heads and caption.has_boxes and caption.heads.shape[1] > 1 else None,
        )


class Captions(BaseModel):
    """The captions of an image by one model."""

    model: str
    boxes: list[list[float]] | None = Field(description="x1 y1 x2 y2 in 0..1 of the image; null without boxes")
    captions: list[Caption]
    warning: str | None = Field(description="why the captions should not be relied on; null where nothing is known")
    seconds: float


class ModelInfo(BaseModel):
    """A served model."""

    name: str
    architecture: str
    summary: str
    parameters: int
    extractor: str


class Health(BaseModel):
    """The state of the server."""

    status: str
    version: str
    models: list[str]
    queued: int
    completed: int
    batches: int


class ErrorMessage(BaseModel):
    """An error, in one sentence."""

    detail: str


_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorMessage} for code in (400, 403, 411, 413, 422, 503)}


def create_app(
    engine: Engine,
    samples: Mapping[str, Path],
    search: SearchOptions,
    *,
    max_bytes: int = 12_000_000,
    answer_timeout: float = 60.0,
    host: str = "127.0.0.1",
    allowed_hosts: Sequence[str] = (),
) -> FastAPI:
    """Return the application for the models of an engine.

    samples: the sample images by name. search: what requests do not set. max_bytes: of one request. answer_timeout:
    seconds until the captions of an image must be ready, its decoding included. host, allowed_hosts: see `Guard`.
    """
    app = create_guarded_app(
        max_bytes=max_bytes,
        host=host,
        allowed_hosts=allowed_hosts,
        summary="Captions of images with the attention of each word.",
    )
    _add_pages(app, engine, samples, search)
    _add_captions(app, engine, search, answer_timeout)
    return app


def _add_pages(app: FastAPI, engine: Engine, samples: Mapping[str, Path], search: SearchOptions) -> None:
    infos = [
        ModelInfo(
            name=name,
            architecture=pipeline.model.name,
            summary=describe_model(pipeline.model.name).summary,
            parameters=pipeline.model.parameter_count,
            extractor=pipeline.extractor.name,
        )
        for name, pipeline in engine.models.items()
    ]
    temperature = search.temperature if search.do_sample else 0
    defaults = {"beam_size": search.beam_size, "temperature": temperature, "seed": search.seed}
    offered = {"models": [info.model_dump() for info in infos], "samples": list(samples), "search": defaults}
    page, reference = (
        render_html(body, styles=styles, scripts=scripts, data=data, texts={"title": title}, sources=_SOURCES)
        for body, styles, scripts, data, title in (
            ("serve.html", _STYLES, _SCRIPTS, offered, "Legenda"),
            ("api.html", _API_STYLES, _API_SCRIPTS, None, "Legenda API"),
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
        """The state of the server: queued and completed images, and batches."""
        return Health(
            status="ok",
            version=__version__,
            models=list(engine.models),
            queued=engine.waiting,
            completed=engine.completed,
            batches=engine.batches,
        )

    @app.get("/api/models")
    async def list_models() -> list[ModelInfo]:
        """The served models."""
        return infos

    @app.get("/api/samples")
    async def list_samples() -> list[str]:
        """The names of the sample images."""
        return list(samples)

    @app.get("/api/samples/{name}", response_class=Response, responses={404: {"model": ErrorMessage}})
    def sample_image(name: str) -> Response:
        """One sample image, as JPEG or PNG."""
        if name not in samples:
            raise HTTPException(404, f"there is no sample {name!r}")
        try:
            data = samples[name].read_bytes()
            kind = Image.open(io.BytesIO(data)).format or "PNG"
        except (OSError, Image.DecompressionBombError) as error:
            raise HTTPException(404, f"the sample {name!r} can no longer be read") from error
        return Response(data, media_type=str(Image.MIME[kind]))


def _add_captions(app: FastAPI, engine: Engine, search: SearchOptions, answer_timeout: float) -> None:
    async def generate(form: CaptionForm, request: Request, preview_side: int | None = None) -> CaptionedImage:
        name = form.image.filename or "the image"
        try:
            async with asyncio.timeout(answer_timeout):
                return await asyncio.wrap_future(engine.submit(request, form.image.file, name, preview_side))
        except TimeoutError:
            raise BusyError(f"the captions took longer than {answer_timeout:g} s; try again later") from None

    @app.post("/api/captions", responses=_ERRORS)
    async def caption_image(form: Annotated[CaptionsForm, Form(media_type="multipart/form-data")]) -> Captions:
        """Captions of an image by one model, with the attention of every word."""
        start = time.monotonic()
        request = form.request(engine.models, search)
        captions = (await generate(form, request)).captions
        boxes = captions[0].boxes
        extractor = engine.models[request.model].extractor.name
        unfamiliar = find_unfamiliar(extractor, [(form.image.filename or "the image", boxes)])
        return Captions(
            model=request.model,
            boxes=_round(boxes) if captions[0].has_boxes else None,
            captions=[Caption.create(caption, with_heads=form.heads) for caption in captions],
            warning=describe_unfamiliar(unfamiliar),
            seconds=round(time.monotonic() - start, 3),
        )

    @app.post(
        "/api/attention.png",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}, **_ERRORS},
    )
    async def draw_attention(form: Annotated[SheetForm, Form(media_type="multipart/form-data")]) -> Response:
        """The captions as PNG, a tile with the attention of each word."""
        request = form.request(engine.models, search)
        found = await generate(form, request, _TILE_SIDE)
        assert found.preview is not None
        sheet = await asyncio.to_thread(
            draw_caption_attention, found.preview, found.captions, title=request.model, head=form.head, side=_TILE_SIDE
        )
        data = io.BytesIO()
        sheet.save(data, format="PNG")
        return Response(data.getvalue(), media_type="image/png")


def _round(values: np.ndarray) -> list[Any]:
    return values.astype(float).round(4).tolist()
