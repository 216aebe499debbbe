"""The web application of `legenda serve`: page, API and limits."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, File, Form, HTTPException, Response, UploadFile
from fastapi.responses import HTMLResponse
from PIL import Image

from legenda import __version__
from legenda.errors import ConfigError, did_you_mean
from legenda.extractors import read_image
from legenda.extractors.familiarity import describe_unfamiliar, find_unfamiliar
from legenda.extractors.images import count_pixels
from legenda.models import describe_model
from legenda.pipeline import GeneratedCaption
from legenda.report.overlay import draw_caption_attention
from legenda.report.page import render_html
from legenda.search_options import SearchOptions
from legenda.serve.engine import Engine, LoadedModel
from legenda.serve.guarded_app import create_guarded_app, send_image
from legenda.serve.limits import BusyError, Limits, MemoryBudget
from legenda.serve.request_settings import RequestSettings, read_settings
from legenda.serve.schemas import Caption, Captions, ErrorMessage, Health, ModelInfo

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "serve.css")
_SCRIPTS = ("dom.js", "attention-scale.js", "attention-viewer.js", "head-choice.js", "serve-results.js", "serve.js")
_SWAGGER_UI = resources.files("fastapi_offline") / "static"
_API_STYLES = (_SWAGGER_UI / "swagger-ui.css",)
_API_SCRIPTS = (_SWAGGER_UI / "swagger-ui-bundle.js", "api.js")
_SOURCES = {"img-src": "'self' data: blob:", "connect-src": "'self'"}
_SHEET_SIDE = 320


def create_app(
    models: Mapping[str, LoadedModel], samples: Mapping[str, Path], limits: Limits, search: SearchOptions
) -> FastAPI:
    """Return the application for loaded models.

    samples: the sample images by name. search: what requests do not set.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.engine = Engine(models)
        yield
        await asyncio.to_thread(app.state.engine.close)

    app = create_guarded_app(limits, summary="Captions of images with the attention of each word.", lifespan=lifespan)
    _add_pages(app, models, samples, search)
    _add_captions(app, models, limits, search)
    return app


def _add_pages(
    app: FastAPI, models: Mapping[str, LoadedModel], samples: Mapping[str, Path], search: SearchOptions
) -> None:
    infos = [
        ModelInfo(
            name=name,
            architecture=loaded.run.model.name,
            summary=describe_model(loaded.run.model.name).summary,
            parameters=loaded.run.model.parameter_count,
            extractor=loaded.extractor.name,
        )
        for name, loaded in models.items()
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
        """The state of the server: queued and completed requests, and batches."""
        engine: Engine = app.state.engine
        return Health(
            status="ok",
            version=__version__,
            models=list(models),
            queued=engine.queue.qsize(),
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
        return send_image(samples[name], f"the sample {name!r}")


_Image = Annotated[UploadFile, File(description="the image: JPEG, PNG, WebP, GIF, BMP or TIFF")]
_Heads = Annotated[bool, Form(description="whether to return the attention of each head")]
_Head = Annotated[int | None, Form(ge=0, description="the head to draw, by default the mean of all")]
_Settings = Annotated[RequestSettings, Depends(read_settings)]
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorMessage} for code in (403, 408, 411, 413, 422, 429, 503)
}


def _add_captions(app: FastAPI, models: Mapping[str, LoadedModel], limits: Limits, search: SearchOptions) -> None:
    memory = MemoryBudget(limits.max_pixels)

    @asynccontextmanager
    async def generate(
        upload: UploadFile, settings: RequestSettings
    ) -> AsyncIterator[tuple[str, Image.Image, list[GeneratedCaption]]]:
        """Give the name of the model, the image and its captions, and hold the memory of the image meanwhile."""
        request = settings.request(settings.model or next(iter(models)), search)
        if request.model not in models:
            raise ConfigError(f"there is no model {request.model!r}; {did_you_mean(request.model, list(models))}")
        name = upload.filename or "the image"
        pixels = await asyncio.to_thread(count_pixels, upload.file, name, max_pixels=limits.max_pixels)
        with memory.reserve(pixels):
            image = await asyncio.to_thread(read_image, upload.file, name)
            try:
                async with asyncio.timeout(limits.answer_timeout):
                    # a variable with the future would keep the image until the garbage collector runs
                    captions = await asyncio.wrap_future(app.state.engine.submit(request, image, name))
            except TimeoutError:
                sentence = f"the captions took longer than {limits.answer_timeout:g} s; try again later"
                raise BusyError(sentence) from None
            yield request.model, image, captions

    @app.post("/api/captions", responses=_ERRORS)
    async def caption_image(image: _Image, request: _Settings, heads: _Heads = False) -> Captions:
        """Captions of an image by one model, with the attention of every word."""
        start = time.monotonic()
        async with generate(image, request) as (model, _, captions):
            pass
        return Captions(
            model=model,
            boxes=_round(captions[0].boxes) if captions[0].has_boxes else None,
            captions=[_caption(caption, with_heads=heads) for caption in captions],
            warning=describe_unfamiliar(
                find_unfamiliar(models[model].extractor.name, [(image.filename or "the image", captions[0].boxes)])
            ),
            seconds=round(time.monotonic() - start, 3),
        )

    @app.post(
        "/api/attention.png",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}, **_ERRORS},
    )
    async def draw_attention(image: _Image, request: _Settings, head: _Head = None) -> Response:
        """The captions as PNG, a tile with the attention of each word."""
        async with generate(image, request) as (model, pixels, captions):
            sheet = await asyncio.to_thread(
                draw_caption_attention, pixels, captions, title=model, head=head, side=_SHEET_SIDE
            )
        data = io.BytesIO()
        sheet.save(data, format="PNG")
        return Response(data.getvalue(), media_type="image/png")


def _caption(caption: GeneratedCaption, *, with_heads: bool) -> Caption:
    return_heads = with_heads and caption.has_boxes and caption.heads.shape[1] > 1
    return Caption(
        text=caption.text,
        words=list(caption.words),
        log_prob=round(caption.log_prob, 4),
        attention=_round(caption.attention) if caption.has_boxes else None,
        heads=_round(caption.heads) if return_heads else None,
    )


def _round(values: np.ndarray) -> list[Any]:
    return values.astype(float).round(4).tolist()
