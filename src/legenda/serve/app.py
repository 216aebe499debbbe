"""The web application of `legenda serve`: the page, its sample images, and the API."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from fastapi import Depends, FastAPI, Form, HTTPException, Response, UploadFile
from fastapi import Request as HttpRequest
from fastapi.responses import HTMLResponse
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from legenda.config import descriptions, merge
from legenda.data.captions import KarpathyData
from legenda.data.scenes import FAMILIES, draw_scene, make_scenes
from legenda.errors import ConfigError, LegendaError, did_you_mean
from legenda.images.extractor import describe_unfamiliar, find_unfamiliar
from legenda.images.files import FORMATS
from legenda.io import __version__
from legenda.photo.regions import Thing
from legenda.pipeline import CaptionsModel, GeneratedCaption, Pipeline
from legenda.report.images import find_photographs, packaged_photographs
from legenda.report.overlay import draw_caption_attention
from legenda.report.page import render_html
from legenda.runtime.settings import GenerationConfig, Overrides
from legenda.serve.engine import BusyError, CaptionedImage, Engine, Request
from legenda.serve.server import create_guarded_app

_STYLES = ("theme.css", "page.css", "attention-viewer.css", "serve.css")
_SCRIPTS = ("dom.js", "attention-viewer.js", "serve-results.js", "serve.js")
_SWAGGER_UI = resources.files("fastapi_offline") / "static"
_API_STYLES = (_SWAGGER_UI / "swagger-ui.css",)
_API_SCRIPTS = (_SWAGGER_UI / "swagger-ui-bundle.js", "api.js")
_SOURCES = {"img-src": "'self' data: blob:", "connect-src": "'self'", "form-action": "'self'"}
_TILE_SIDE = 320
_PREVIEW_SIDE = 1024
_FORMATS = ", ".join(FORMATS)


_LIMITS = {"beam_size": 20, "max_length": 100, "temperature": 5, "seed": 2**31}
"""Fields of `GenerationConfig` that a request may set, and their greatest values in a request."""


def _search_field(name: str, description: str) -> Any:
    kind: Any = GenerationConfig.model_fields[name].rebuild_annotation()
    return Annotated[kind, Field(le=_LIMITS[name])] | None, Field(None, description=description)


_TEXTS = descriptions(GenerationConfig)
_Search = create_model("_Search", **{name: _search_field(name, _TEXTS[name]) for name in _LIMITS})


class Settings(_Search):
    """Fields of all requests for captions; the server has defaults for those that a request leaves out.

    A temperature above 0 samples captions, 0 searches by beams.
    """

    model_config = ConfigDict(extra="forbid")

    model: str = Field("", description="the name of a model, by default the first")
    num_captions: int = Field(1, ge=1, le=10, description="number of captions; in beam search at most the beam size")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, fields: dict[str, object]) -> dict[str, object]:
        for name in fields.keys() - cls.model_fields.keys():
            raise ConfigError(f"there is no field {name[:40]!r}; {did_you_mean(name, cls.model_fields)}")
        return fields

    def request(self, models: Mapping[str, Pipeline], search: Overrides) -> Request:
        """Return the request with these settings over those of the server; raise ConfigError for an unknown model."""
        model = self.model or next(iter(models))
        if model not in models:
            raise ConfigError(f"there is no model {model!r}; {did_you_mean(model, list(models))}")
        changes = self.model_dump(include={*_LIMITS}, exclude_none=True)
        temperature = changes.get("temperature")
        if temperature == 0:
            del changes["temperature"]
        if temperature is not None and (temperature > 0) != bool(search.get("do_sample")):
            # all other fields belong to sampling alone or to beam search alone
            kept = {"beam_size", "seed", "max_length", "no_repeat_ngram_size", "forbidden_last_words"}
            search = {name: value for name, value in search.items() if name in kept}
            changes["do_sample"] = temperature > 0
        config = models[model].search_config({**search, **changes}, self.num_captions)
        return Request(model, self.num_captions, config)


class CaptionForm(Settings):
    """Fields of /api/captions."""

    image: UploadFile = Field(description=f"the image: {_FORMATS}")
    heads: bool = Field(False, description="whether to return the attention of each head")
    preview: bool = Field(
        False, description="whether to return an image that browsers do not draw (HEIF, TIFF) as JPEG"
    )


class SheetForm(Settings):
    """Fields of /api/attention.png."""

    image: UploadFile = Field(description=f"the image: {_FORMATS}")
    head: int | None = Field(None, ge=0, description="the head to draw, by default the mean of all")


class BatchForm(Settings):
    """Fields of /api/batch."""

    image: list[UploadFile] = Field(description=f"the images, a field for each: {_FORMATS}")
    heads: bool = Field(False, description="whether to return the attention of each head")


class Caption(BaseModel):
    """One caption of an image."""

    text: str
    words: list[str]
    log_prob: float = Field(description="the sum of the log-probabilities of its tokens, in nats")
    confidence: float | None = Field(
        description="how probable it is that the image shows all that it names; null where the model cannot say"
    )
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
            confidence=None if caption.confidence is None else round(caption.confidence, 3),
            attention=_round(caption.attention) if caption.has_boxes else None,
            heads=_round(caption.heads) if with_heads and caption.has_boxes and caption.heads.shape[1] > 1 else None,
        )


class Captions(BaseModel):
    """The captions of an image by one model."""

    model: str
    boxes: list[list[float]] | None = Field(description="x1 y1 x2 y2 in 0..1 of the image; null without boxes")
    captions: list[Caption]
    things: tuple[Thing, ...] | None = Field(description="what the extractor photo sees, best first; null for others")
    warning: str | None = Field(description="why the captions should not be relied on; null where nothing is known")
    preview: str | None = Field(description="the image as JPEG, a data address; null unless requested and needed")
    seconds: float


class BatchEntry(BaseModel):
    """One image of a batch: its file name, and its captions or the error."""

    name: str
    result: Captions | None = None
    error: str | None = Field(None, description="one sentence; null where there are captions")


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


_MULTIPART = Form(media_type="multipart/form-data")
_ERRORS: dict[int | str, dict[str, object]] = {code: {"model": ErrorMessage} for code in (400, 403, 411, 413, 422, 503)}


def create_app(
    engine: Engine,
    samples: Mapping[str, Path],
    search: Overrides,
    *,
    max_bytes: int = 12_000_000,
    answer_timeout: float = 60.0,
    host: str = "127.0.0.1",
    allowed_hosts: Sequence[str] = (),
) -> FastAPI:
    """Return the application for the models of an engine.

    samples: the sample images by name. search: settings that hold where a request sets no others. max_bytes: greatest
    size of a request. answer_timeout: seconds until the captions of an image must be ready, its decoding included.
    host, allowed_hosts: see `Guard`.
    """
    summary = "Captions of images with the attention of each word."
    app = create_guarded_app(max_bytes=max_bytes, host=host, allowed_hosts=allowed_hosts, summary=summary)
    captioner = _Captioner(engine, search, answer_timeout)
    _add_captions(app, captioner)
    _add_pages(app, captioner, samples, max_bytes)
    return app


@dataclass(frozen=True)
class _Captioner:
    """An engine, the settings where a request sets no others, and the seconds in which an answer must be ready."""

    engine: Engine
    search: Overrides
    timeout: float

    async def generate(
        self, upload: UploadFile, settings: Settings, preview_side: int | None = None
    ) -> tuple[Request, CaptionedImage]:
        """Caption an image; raise LegendaError or BusyError."""
        request = settings.request(self.engine.models, self.search)
        try:
            async with asyncio.timeout(self.timeout):
                result = self.engine.submit(request, upload.file, _name_of(upload), preview_side)
                return request, await asyncio.wrap_future(result)
        except TimeoutError:
            raise BusyError(f"the captions took longer than {self.timeout:g} s; try again later") from None

    async def answer(self, upload: UploadFile, settings: Settings, *, heads: bool, preview: bool = False) -> Captions:
        """Return the captions of an image as the API does."""
        start = time.monotonic()
        side = _PREVIEW_SIDE if preview and not _browsers_draw(upload) else None
        request, image = await self.generate(upload, settings, side)
        boxes = image.captions[0].boxes
        extractor = self.engine.models[request.model].extractor.name
        return Captions(
            model=request.model,
            boxes=_round(boxes) if image.captions[0].has_boxes else None,
            captions=[Caption.create(caption, with_heads=heads) for caption in image.captions],
            things=image.captions[0].things,
            warning=describe_unfamiliar(find_unfamiliar(extractor, [(_name_of(upload), boxes)])),
            preview=None if image.preview is None else _as_jpeg(image.preview),
            seconds=round(time.monotonic() - start, 3),
        )

    async def answer_all(self, form: BatchForm) -> list[BatchEntry]:
        """Return the captions of each image, or its error."""
        entries = []
        for upload in form.image:
            try:
                result = await self.answer(upload, form, heads=form.heads)
                entries.append(BatchEntry(name=_name_of(upload), result=result))
            except (LegendaError, BusyError) as error:
                entries.append(BatchEntry(name=_name_of(upload), error=str(error)))
        return entries


def _add_captions(app: FastAPI, captioner: _Captioner) -> None:
    @app.post("/api/captions", responses=_ERRORS, dependencies=[Depends(_refuse_repeated)])
    async def caption_image(form: Annotated[CaptionForm, _MULTIPART]) -> Captions:
        """Captions of an image by one model, with the attention of every word."""
        return await captioner.answer(form.image, form, heads=form.heads, preview=form.preview)

    @app.post("/api/batch", responses=_ERRORS)
    async def caption_images(form: Annotated[BatchForm, _MULTIPART]) -> list[BatchEntry]:
        """Captions of several images in their order; a bad image does not affect the others."""
        return await captioner.answer_all(form)

    @app.post(
        "/api/attention.png",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}, **_ERRORS},
        dependencies=[Depends(_refuse_repeated)],
    )
    async def draw_attention(form: Annotated[SheetForm, _MULTIPART]) -> Response:
        """The captions as PNG, a tile with the attention of each word."""
        request, image = await captioner.generate(form.image, form, _TILE_SIDE)
        assert image.preview is not None
        sheet = await asyncio.to_thread(
            draw_caption_attention, image.preview, image.captions, title=request.model, head=form.head, side=_TILE_SIDE
        )
        data = io.BytesIO()
        sheet.save(data, format="PNG")
        return Response(data.getvalue(), media_type="image/png")


def _add_pages(app: FastAPI, captioner: _Captioner, samples: Mapping[str, Path], max_bytes: int) -> None:
    engine, search = captioner.engine, captioner.search
    infos = [
        ModelInfo(
            name=name,
            architecture=pipeline.captioner.name,
            summary=pipeline.summary,
            parameters=pipeline.captioner.parameter_count,
            extractor=pipeline.extractor.name,
        )
        for name, pipeline in engine.models.items()
    ]
    config = merge(GenerationConfig, search, "the search")
    offered = {
        "models": [info.model_dump() for info in infos],
        "samples": list(samples),
        "search": {
            "beam_size": config.beam_size,
            "temperature": config.temperature if config.do_sample else 0,
            "seed": config.seed,
        },
        "max_bytes": max_bytes,
    }

    render = partial(render_html, sources=_SOURCES)

    def render_page(answers: str = "") -> HTMLResponse:
        names = [info.name for info in infos]
        values = {"title": "Legenda", "model": names[0], "models": ", ".join(names), "answers": answers}
        html = render("serve.html", styles=_STYLES, scripts=_SCRIPTS, data=offered, placeholders=values)
        return HTMLResponse(html)

    title = {"title": "Legenda API"}
    api = render("api.html", styles=_API_STYLES, scripts=_API_SCRIPTS, data=None, placeholders=title)
    reference = HTMLResponse(api)
    page = render_page()

    @app.get("/", include_in_schema=False)
    async def _page() -> HTMLResponse:
        return page

    @app.post("/", include_in_schema=False)
    async def _page_without_script(form: Annotated[BatchForm, _MULTIPART]) -> HTMLResponse:
        lines = [
            f"{entry.name}: {entry.result.captions[0].text}" if entry.result else str(entry.error)
            for entry in await captioner.answer_all(form)
        ]
        return render_page("\n".join(lines))

    @app.get("/docs", include_in_schema=False)
    async def _reference() -> HTMLResponse:
        return reference

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


async def _refuse_repeated(http: HttpRequest) -> None:
    """Raise ConfigError for a field that is given twice; else the last would count."""
    form = await http.form()
    for name in form:
        if len(form.getlist(name)) > 1:
            hint = "; send several images to /api/batch" if name == "image" else "; give it once"
            raise ConfigError(f"the request has several fields {name!r}{hint}")


def _name_of(upload: UploadFile) -> str:
    return upload.filename or "the image"


def _browsers_draw(upload: UploadFile) -> bool:
    """Return whether a file begins as others than HEIF and TIFF do."""
    head = upload.file.read(12)
    upload.file.seek(0)
    is_heif = head[4:8] == b"ftyp" and head[8:12] not in (b"avif", b"avis")
    return not is_heif and head[:4] not in (b"II*\0", b"MM\0*")


def _as_jpeg(image: Image.Image) -> str:
    """Return an image as the address of its data."""
    data = io.BytesIO()
    image.convert("RGB").save(data, format="JPEG")
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"


def _round(values: np.ndarray) -> list:
    return values.astype(float).round(4).tolist()


_MAX_SAMPLES = 6
"""Number of scenes, and of photographs chosen by default."""


def sample_images(folder: Path, photographs: Sequence[Path], *, scenes: bool) -> dict[str, Path]:
    """Return the sample images by name: the photographs, and six scenes, drawn into `folder`, if `scenes` is set.

    Photographs with the same name are numbered.
    """
    samples: dict[str, Path] = {}
    for path in photographs:
        name, number = path.name, 2
        while name in samples:
            name, number = f"{path.stem}-{number}{path.suffix}", number + 1
        samples[name] = path
    for number, family in enumerate(FAMILIES * (_MAX_SAMPLES // len(FAMILIES)) if scenes else ()):
        candidates = [scene for scene in make_scenes("served", 40) if scene.family == family]
        path = folder / f"scene-{number + 1}.png"
        draw_scene(candidates[number // len(FAMILIES)]).save(path)
        samples[path.name] = path
    return samples


def default_photographs(runs: Collection[CaptionsModel]) -> list[Path]:
    """Return sample photographs: up to six outside the training split, of the first run whose photographs are found
    next to its annotations, and those of the package.
    """
    for run in runs:
        with suppress(LegendaError):  # an imported run has no data; annotations may have moved since the training
            data = run.data()
            if isinstance(data, KarpathyData):
                held_out = {
                    image.id: image.file for image in data.read_images() if image.split not in ("train", "restval")
                }
                if photographs := find_photographs(data, held_out, limit=_MAX_SAMPLES):
                    return [*photographs.values(), *packaged_photographs()]
    return packaged_photographs()
