"""`legenda caption`: captions of images, printed, in a file, or in the shards of a job."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import tyro
from pydantic import Field, model_validator

from legenda.cli.jobs import JobOptions, check_engine, describe_shards, is_folder, report_skipped
from legenda.cli.options import Flat, Search
from legenda.compute import RunOptions
from legenda.config import Config, Count, NonNegativeInt, PositiveInt, Probability, merge, to_json
from legenda.errors import ConfigError, DataError
from legenda.hub import is_of_transformers
from legenda.images.shards import ImageResult, failure
from legenda.io import check_output, coco_id, follow_links, locked, remove_leftovers, write_text
from legenda.pipeline import GeneratedCaption, ImageCaptions, Pipeline, json_entry
from legenda.pipeline import open as open_pipeline
from legenda.run_folder import CONFIG, VOCABULARY, WEIGHTS
from legenda.runtime.captioner import SETTINGS, is_exported
from legenda.runtime.settings import GenerationConfig, Overrides
from legenda.terminal import escape_controls, progress_bar

Format = Literal["text", "json", "jsonl", "csv", "tsv", "coco"]
_FORMATS: dict[str, Format] = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
"""The format of a file by its suffix; of others it is text."""


class CaptionOptions(Config):
    """Caption images with a trained model: one line each, file and caption.

    Images that cannot be read are named on the standard error and skipped; the exit code is then 2.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "photo.jpg",
        "photos/ --out captions.csv",
        "photos/ --model runs/mine --num-captions 3",
        "photo.jpg --sentence --save-boxes boxes --save-attention attention",
    )
    usual: ClassVar[tuple[str, ...]] = ("model", "out", "output_format", "num_captions", "sentence", "save_boxes")

    images: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders, patterns such as "photos/*.jpg", or - for a list of them on the standard input."""
    model: str = "photo"
    """A run folder, USER/MODEL of Hugging Face's hub, photo, the packaged model of photographs, or hf:MODEL, an
    image-to-text model of transformers on the hub or in a folder."""
    extractor: str | None = None
    """The extractor the model was trained with, a Python file or a name as for legenda extract; not needed where it is
    built in, as for scenes, or on this machine, as models of Hugging Face's hub that were fetched before."""
    num_captions: Count = 1
    """Captions of each image, best first with their scores, at most the beam size; or samples."""
    consensus: bool = True
    """Choose among the beams by the CIDEr to expect of each, where the model can, as photo does."""
    min_score: Probability | None = None
    """Name only the things that are seen where the model is less sure than this, from 0 to 1, that an image shows all
    that its caption names, by default 0.05; for photo and models that were fine-tuned from it."""
    output_format: Annotated[Format | None, tyro.conf.arg(name="format")] = None
    """text; json; jsonl, a JSON object a line; csv; tsv; or coco, the list of image_id and caption that COCO's server
    takes; by default that of the suffix of --out, or text."""
    out: Path | None = None
    """A file for the captions instead of the standard output; or, without a suffix, a folder for a job that captions
    any number of images into shards of JSON lines and resumes after a stop. @names.txt then names a listing of images;
    see docs/guides/large-scale.md."""
    batch_size: PositiveInt = 16
    """Images of a batch."""
    sentence: bool = False
    """Write captions with a capital and a full stop."""
    sidecar: bool = False
    """Write the captions of NAME.jpg into NAME.txt beside it too, one a line, where there is no such file."""
    save_boxes: Path | None = None
    """A folder for what was detected: a PNG for each image, with the boxes of things, their names and scores."""
    save_attention: Path | None = None
    """A folder for the attention of each word: a PNG for each image, one tile a word."""
    head: NonNegativeInt | None = None
    """The attention head that is drawn, from 0; by default the mean of all."""
    search: Search = Field(default_factory=dict)
    compute: Annotated[RunOptions, Flat] = RunOptions()
    job: Annotated[JobOptions, Flat] = JobOptions()

    @model_validator(mode="after")
    def _check_caption(self) -> Self:
        search = merge(GenerationConfig, self.search, "the search")
        if "beam_size" in self.search:  # else the model's own is checked once it is open
            search.check_captions(self.num_captions)
        if self.output_format == "coco" and self.num_captions > 1:
            raise ConfigError("--format coco has one caption for each image; leave out --num-captions or use json")
        if self.out is not None and not is_folder(self.out) and self.output_format is None:
            self._check_suffix(self.out.suffix.lower())
        if self.out is not None and self.output_format is not None and not is_folder(self.out):
            suffix = "json" if self.output_format == "coco" else self.output_format
            if (meant := _FORMATS.get(self.out.suffix.lower())) not in (None, suffix):
                raise ConfigError(
                    f"--format {self.output_format} does not fit {self.out}, named as {meant}; leave --format out, "
                    "or name another file"
                )
        if self.head is not None and self.save_attention is None:
            raise ConfigError("--head chooses what --save-attention FOLDER draws; name the folder too")
        if self.save_boxes is not None and self.save_boxes == self.save_attention:
            raise ConfigError("--save-boxes and --save-attention write files of the same names; name two folders")
        return self

    def _check_suffix(self, suffix: str) -> None:
        if suffix not in (*_FORMATS, ".txt", ""):  # a device has none
            raise ConfigError(
                f"--out {self.out}: captions are written as {', '.join(_FORMATS)} or .txt; name such a file, or choose "
                "a --format"
            )


def run(options: CaptionOptions) -> None:
    """Print captions, or write them to a file or a folder; raise DataError at the end where images were skipped."""
    if options.out is not None and is_folder(options.out):
        return _caption_job(options, options.out)
    if options.job.engine != "local":
        raise ConfigError(f"--engine {options.job.engine} writes many files; name a folder for them with --out")
    return _caption(options)


def _caption(options: CaptionOptions) -> None:
    """Caption in this process, and print each caption when it is there."""
    from legenda.images.files import find_names, is_url

    names = find_names(options.images, allow_urls=options.job.allow_urls)
    check_output(options.out, [name for name in names if not is_url(name)])
    suffix = options.out.suffix.lower() if options.out else ""
    output_format = options.output_format or _FORMATS.get(suffix, "text")
    if output_format == "coco":
        _check_coco_names(names)
    if options.sidecar:
        sidecars = _check_sidecars(names)
    pipeline = open_pipeline(options.model, options.extractor, options.compute.device, **_flags(options))
    sheets = []
    if options.save_attention is not None or options.save_boxes is not None:
        from legenda.report.overlay import Sheets, attention_sheet, boxes_sheet

        if options.save_attention is not None:
            sheets.append(Sheets(options.save_attention, partial(attention_sheet, head=options.head)))
        if options.save_boxes is not None:
            sheets.append(Sheets(options.save_boxes, boxes_sheet))
    errors: list[str] = []

    def read_captions(progress: Callable[[int, int], None]) -> Iterator[ImageCaptions]:
        """Yield the captioned images, and keep the errors of all other images."""
        limits = {"num_captions": options.num_captions, "batch_size": options.batch_size}
        need_attention = bool(sheets)
        results = pipeline.caption_files(
            names, options.search, progress=progress, need_attention=need_attention, **limits
        )
        for result in results:
            if result.error is not None:
                errors.append(result.error)
                continue
            for folder in sheets:
                folder.write(result)
            if options.sidecar:
                lines = (caption.sentence if options.sentence else caption.text for caption in result.captions)
                write_text(sidecars[result.image], "".join(f"{line}\n" for line in lines))
            yield result

    with progress_bar("captioning images") as update:
        lines = format_captions(read_captions(update), output_format, sentence=options.sentence)
        if options.out is None:
            for line in lines:
                print(line, flush=True)
        else:
            content = "\n".join([*lines, ""])
            if len(errors) < len(names):
                write_text(options.out, content)
                remove_leftovers(follow_links(options.out))
    note = f"; {options.out} was not written" if options.out and len(errors) == len(names) else ""
    report_skipped(errors, len(names), "images", note)


def _caption_job(options: CaptionOptions, out: Path) -> None:
    """Caption into the shards of a folder."""
    if options.output_format not in (None, "text") or options.save_attention or options.save_boxes or options.sidecar:
        raise ConfigError(
            f"{out} is a folder for JSON lines; leave out --format, --sidecar, --save-boxes and --save-attention, or "
            "name a file"
        )
    from legenda.features.extractors import absolute_name
    from legenda.hub import find_model
    from legenda.images.shards import open_job
    from legenda.jobs.engine import Load, run_job

    check_engine(options.job.engine, options.compute.device)
    extractor = None if options.extractor is None else absolute_name(options.extractor)
    folder, flags = find_model(options.model), _flags(options)
    folder = folder if is_of_transformers(folder) else folder.resolve()
    limits = {name: getattr(options, name) for name in ("num_captions", "batch_size", "sentence")}
    make = partial(_CaptionTask, search=options.search, **limits)
    load_task = partial(_load_captioner, partial(open_pipeline, folder, extractor, **flags), make)
    load: Load = load_task
    if options.job.engine == "local":
        task = load_task(options.compute.device)
        pipeline, load = task.pipeline, lambda _: task
    else:
        # a model that cannot be opened is refused here, not in each worker
        pipeline = open_pipeline(folder, extractor, "cpu", **flags | {"precision": "float32", "compile": False})
    settings = {
        "model": fingerprint(folder),
        "extractor": pipeline.extractor.name,
        "precision": options.compute.precision,
        "search": to_json(options.search),
        "consensus": options.consensus,
        "min_score": options.min_score,
        **limits,  # the last digits of scores, and samples, depend on the size of batches
    }
    with locked(out):
        with progress_bar("listing images"):
            sources = {
                "shard_size": options.job.shard_size,
                "sources": options.images,
                "allow_urls": options.job.allow_urls,
            }
            job = open_job(out, settings, kind="captions", **sources)
        with progress_bar("captioning images") as update:
            stats = run_job(job, load, options.job.engine, options.job.shares(), update, options.compute.device)
    describe_shards(stats, out, "images", "captioned")


@dataclass(frozen=True)
class _CaptionTask:
    """Captions the images of a shard, whose lines hold the captions.

    sentence: whether captions have a capital and a full stop.
    """

    pipeline: Pipeline
    search: Overrides
    num_captions: int = 1
    batch_size: int = 16
    sentence: bool = False

    def process(self, names: Sequence[str], folder: Path) -> Iterator[ImageResult]:
        """Yield the captions of each image, or the error."""
        for result in self.pipeline.caption_files(
            names, self.search, folder=folder, num_captions=self.num_captions, batch_size=self.batch_size
        ):
            if result.error is None:
                yield ImageResult(json_entry(result, sentence=self.sentence))
            else:
                yield failure(result.image, result.error)

    def save(self, results: Sequence[ImageResult], path: Path) -> None:
        """Write nothing: captions need no store beside the shard's lines."""


def _load_captioner(
    open: Callable[..., Pipeline], make: Callable[[Pipeline], _CaptionTask], device: str
) -> _CaptionTask:
    """Return the task of workers on a device."""
    return make(open(device=device))


def fingerprint(run: Path) -> str:
    """Return the SHA-256 of a run's configuration and vocabulary, and of the checksum of its weights.

    For an exported model it is that of export.json, which holds the digests of all other files.
    """
    if is_of_transformers(run):
        return str(run)
    if is_exported(run):
        return hashlib.sha256((run / SETTINGS).read_bytes()).hexdigest()
    from legenda.models.weights import read_checksum  # late: it imports PyTorch, which exported models do without

    digest = hashlib.sha256(read_checksum(run / WEIGHTS).encode())
    for path in (run / CONFIG, run / VOCABULARY):
        if path.is_file():
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _flags(options: CaptionOptions) -> dict[str, Any]:
    """Return further arguments of `legenda.open`."""
    compute = {name: value for name, value in options.compute if name != "device"}
    return {**compute, "consensus": options.consensus, "min_score": options.min_score}


def _check_sidecars(names: Sequence[str]) -> dict[str, Path]:
    """Return the text file beside each image, by the name of the image.

    Raise DataError for a file that exists, which may be a person's, and for one of two images; ConfigError for a URL.
    """
    images: dict[Path, str] = {}
    for name in names:
        if "://" in name:
            raise ConfigError(f"{name} is a URL, beside which nothing can be written; leave it or --sidecar out")
        path = Path(name).with_suffix(".txt")
        if path in images:
            raise DataError(f"{images[path]} and {name} would share {path}; rename one of them")
        if path.exists():
            raise DataError(f"{path} exists; remove it, or leave out --sidecar or {name}")
        images[path] = name
    return {name: path for path, name in images.items()}


def format_captions(
    results: Iterable[ImageCaptions], output_format: Format, *, sentence: bool = False
) -> Iterator[str]:
    """Yield the lines of an output, without line ends, each as soon as its image is captioned.

    text: image, its control characters and line feeds as escapes, and caption, with the score where an image has
    several; json: a list of objects with `image`, `captions` and, with the extractor `photo`, `things`; jsonl: such an
    object a line; csv and tsv: image, rank, score and caption, with a header; coco: a list of objects with `image_id`
    and `caption`. sentence: with a capital and a full stop. Raise ConfigError for an image whose name is not one of
    COCO's.
    """

    def text_of(caption: GeneratedCaption) -> str:
        return caption.sentence if sentence else caption.text

    if output_format == "text":
        for result in results:
            name = escape_controls(result.image).replace("\n", "\\n")
            for caption in result.captions:
                yield f"{name}: {f'{caption.score:.3f} ' if len(result.captions) > 1 else ''}{text_of(caption)}"
    elif output_format == "jsonl":
        yield from (json.dumps(json_entry(result, sentence=sentence), ensure_ascii=False) for result in results)
    elif output_format == "tsv":
        yield "image\trank\tscore\tcaption"
        for result in results:
            name = escape_controls(result.image).replace("\n", "\\n").replace("\t", "\\t")
            for rank, caption in enumerate(result.captions, start=1):
                yield f"{name}\t{rank}\t{caption.score:.6f}\t{text_of(caption)}"
    elif output_format == "csv":
        yield "image,rank,score,caption"
        for result in results:
            for rank, caption in enumerate(result.captions, start=1):
                line = io.StringIO()
                # the writer quotes characters of its line end alone
                row = [result.image, rank, f"{caption.score:.6f}", text_of(caption)]
                csv.writer(line, lineterminator="\r\n").writerow(row)
                yield line.getvalue().removesuffix("\r\n")
    else:  # one list, an entry a line
        pending = "["
        for result in results:
            if pending != "[":
                yield pending + ","
            entry = json_entry(result, sentence=sentence)
            if output_format == "coco":
                entry = {"image_id": _coco_id(result.image), "caption": text_of(result.captions[0])}
            pending = ("[" if pending == "[" else " ") + json.dumps(entry, ensure_ascii=False)
        yield pending + "]"


def _check_coco_names(names: Iterable[str]) -> None:
    """Raise ConfigError unless all file names are those of COCO images, each with its own id."""
    images: dict[int, str] = {}
    for name in names:
        first = images.setdefault(_coco_id(name), name)
        if first is not name:
            raise ConfigError(
                f"{first} and {name} have the COCO id {_coco_id(name)}; leave one of them out, or use --format json"
            )


def _coco_id(name: str) -> int:
    image_id = coco_id(Path(name).stem)
    if image_id is None:
        raise ConfigError(f"{name} is not the name of a COCO image, which ends in its id; use --format json")
    return image_id
