"""From images to captions: read images, extract their regions, search, decode."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, cast, overload

import numpy as np
from PIL import Image

from legenda.compute import Precision, RunOptions
from legenda.errors import ConfigError, DataError
from legenda.evaluation.exported import ExportedRun
from legenda.hub import find_model
from legenda.images.extractor import Extractor
from legenda.images.files import (
    ImageFile,
    ImageInput,
    extract_batch,
    is_image_input,
    is_url,
    read_batches,
    shrink,
    to_image,
)
from legenda.photo.consensus import Consensus
from legenda.photo.regions import Thing, describe_things, read_things
from legenda.runtime.captioner import Captioned, Captioner, OnnxCaptioner, is_exported
from legenda.runtime.settings import ChoiceConfig, GenerationConfig, Overrides, override
from legenda.text import Vocabulary

if TYPE_CHECKING:
    from legenda.data.registry import Data
    from legenda.evaluation.runs import TorchCaptioner
    from legenda.models import Captioner as TorchModel
    from legenda.regions import Regions

__all__ = ["GeneratedCaption", "ImageCaptions", "Pipeline", "open"]


@dataclass(frozen=True, eq=False, repr=False)
class GeneratedCaption:
    """A generated caption with its attention weights.

    tokens: the ids of the words; none where the caption names the things alone, whose weights are equal. log_prob: the
    sum of the log-probabilities of all tokens of the best caption, eos included, in nats. score: what the search ranked
    it by. heads: `(T, H, N)`, the weights of T words in H heads over N regions; H is 0 where attention was not asked
    for. boxes: those regions `(N, 4)`, x1 y1 x2 y2 in 0..1; `(0, 4)` where they have no boxes. things: what the
    extractor `photo` sees in the image, best first; None for other extractors. confidence: how probable it is that the
    image shows every thing that the caption of the search names, calibrated on photographs; None where the model cannot
    say.
    """

    words: tuple[str, ...]
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    heads: np.ndarray
    boxes: np.ndarray
    things: tuple[Thing, ...] | None = None
    confidence: float | None = None

    def __repr__(self) -> str:
        things = "" if self.things is None else f", things={len(self.things)}"
        return f"{type(self).__name__}({self.text!r}, log_prob={self.log_prob:.2f}{things})"

    @property
    def text(self) -> str:
        """The caption, its words joined by spaces."""
        return " ".join(self.words)

    @property
    def sentence(self) -> str:
        """The caption as a sentence, with a capital and a full stop."""
        return f"{self.text[0].upper()}{self.text[1:].rstrip('.')}." if self.words else ""

    @property
    def mean_log_prob(self) -> float:
        """The mean log-probability of the tokens, eos included."""
        return self.log_prob / (len(self.tokens) + 1)

    @property
    def has_boxes(self) -> bool:
        """Whether the regions have boxes, so that the weights can be drawn."""
        return len(self.boxes) > 0

    @property
    def attention(self) -> np.ndarray:
        """The weights `(T, N)` of each word and region, averaged over heads."""
        return self.heads.mean(axis=1)


def extract_captions(captioned: Captioned, vocabulary: Vocabulary, image: int) -> list[GeneratedCaption]:
    """Return the captions of one image of a batch, without rows of infinite score."""
    output, real = captioned.output, captioned.mask[image]
    boxes = np.zeros((0, 4)) if captioned.boxes is None else captioned.boxes[image][real]
    captions = []
    for row, tokens in enumerate(output.tokens[image].tolist()):
        score = float(output.scores[image, row])
        if not math.isfinite(score):
            continue
        words = vocabulary.words(tokens)
        heads = np.zeros((len(words), 0, int(real.sum())), np.float32)
        if output.attention is not None:
            heads = output.attention[image, row, : len(words)][..., real].astype(np.float32)
        log_prob = float(output.log_probs[image, row].sum())
        captions.append(GeneratedCaption(words, tuple(tokens[: len(words)]), log_prob, score, heads, boxes))
    return captions


@dataclass(frozen=True, eq=False)
class ImageCaptions:
    """The captions of one image, best first, or the error that kept it from having any.

    image: its path or URL. pixels: the image itself, where attention was asked for.
    """

    image: str
    captions: tuple[GeneratedCaption, ...] = ()
    error: str | None = None
    pixels: Image.Image | None = None


def json_entry(result: ImageCaptions, *, sentence: bool = False) -> dict[str, object]:
    """Return the captions of an image with their scores, and its things with boxes and scores, for JSON.

    sentence: whether captions have a capital and a full stop.
    """
    captions = [
        {"caption": caption.sentence if sentence else caption.text, "score": round(caption.score, 6)}
        | ({} if caption.confidence is None else {"confidence": round(caption.confidence, 3)})
        for caption in result.captions
    ]
    entry: dict[str, object] = {"image": result.image, "captions": captions}
    things = result.captions[0].things
    return entry if things is None else {**entry, "things": [vars(thing) for thing in things]}


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A captioner with the extractor of its features; several threads may use it at the same time."""

    captioner: Captioner
    extractor: Extractor
    least_log_prob: float | None = None
    """Least mean log-probability of a caption's tokens, in nats. A caption below it, or of an image in which the
    extractor sees nothing, is replaced by one that names the things alone; None replaces none."""
    consensus: Consensus | None = None
    """Chooses among the captions of a beam search; None keeps the order of their scores."""
    summary: str = ""
    """One line about the model, for lists."""
    min_score: float | None = None
    """Least confidence of a caption. One below it names the things alone; None lets all pass."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)
    """Held while the extractor runs, which may be a user's code."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.captioner.name!r}, extractor={self.extractor.name!r})"

    def __reduce__(self) -> tuple[object, ...]:  # without the lock, which other processes make anew
        fields = (self.captioner, self.extractor, self.least_log_prob, self.consensus, self.summary, self.min_score)
        return type(self), fields

    @classmethod
    def of_run(
        cls, run: CaptionsModel, extractor: Extractor, *, consensus: bool = True, min_score: float | None = None
    ) -> Self:
        """Return the pipeline of a run with its settings; raise LegendaError for a damaged file.

        consensus: whether to choose among beams by expected CIDEr, where the run has what it takes. min_score: see the
        field, by default that of the run; raise ConfigError where the run does not say how sure it is.
        """
        if min_score is not None and not 0 <= min_score <= 1:
            raise ConfigError(f"min_score must lie between 0 and 1, not {min_score}")
        choice = run.choice
        weight = choice.consensus if consensus and extractor.name == "photo" else None
        reranker = None if weight is None else Consensus.of_package(run.captioner.vocabulary, weight)
        if min_score is not None and reranker is None:
            raise ConfigError("min_score is for models that say how sure they are, as photo does; leave it out")
        least = choice.min_score if min_score is None else min_score
        return cls(run.captioner, extractor, choice.least_log_prob, reranker, run.summary, least)

    @property
    def model(self) -> TorchModel:
        """The PyTorch model; raise ConfigError where the captioner is an exported one, which has none."""
        return self._trained.model

    @property
    def _trained(self) -> TorchCaptioner:
        if isinstance(self.captioner, OnnxCaptioner):
            raise ConfigError(f"{self.captioner.folder} is an exported model without PyTorch's; open the run instead")
        return cast("TorchCaptioner", self.captioner)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the model; raise CheckpointError where it has none."""
        return self.captioner.vocabulary

    @overload
    def caption(
        self,
        images: ImageInput,
        *,
        num_captions: Literal[1] = 1,
        batch_size: int = 16,
        allow_urls: bool = False,
        generation_config: GenerationConfig | None = None,
        **overrides: object,
    ) -> GeneratedCaption: ...

    @overload
    def caption(
        self,
        images: ImageInput,
        *,
        num_captions: int,
        batch_size: int = 16,
        allow_urls: bool = False,
        generation_config: GenerationConfig | None = None,
        **overrides: object,
    ) -> GeneratedCaption | list[GeneratedCaption]: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        *,
        num_captions: Literal[1] = 1,
        batch_size: int = 16,
        allow_urls: bool = False,
        generation_config: GenerationConfig | None = None,
        **overrides: object,
    ) -> list[GeneratedCaption]: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        *,
        num_captions: int,
        batch_size: int = 16,
        allow_urls: bool = False,
        generation_config: GenerationConfig | None = None,
        **overrides: object,
    ) -> list[GeneratedCaption] | list[list[GeneratedCaption]]: ...

    def caption(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        num_captions: int = 1,
        batch_size: int = 16,
        allow_urls: bool = False,
        generation_config: GenerationConfig | None = None,
        **overrides: object,
    ) -> GeneratedCaption | list[GeneratedCaption] | list[list[GeneratedCaption]]:
        """Return the caption of one image, or the captions of several images in a list.

        images: paths, PIL images, arrays of uint8, `(H, W, 3)` or gray `(H, W)`, bytes or open files of encoded images,
        or any iterable of these, which is read batch by batch; with allow_urls, URLs too.
        num_captions: where it is above 1, each image has a list of up to so many captions, the best first. batch_size:
        images of a batch. generation_config: by default the model's; overrides: fields of it, such as beam_size=5, or
        do_sample=True and top_p=0.9. A caption is a `GeneratedCaption` with `text`, `words`, `tokens`, `log_prob`,
        `attention` and `boxes`. Raise DataError, naming the image, for one that cannot be read or extracted.
        """
        config = self.search_config(overrides, num_captions, generation_config)
        captions: list[list[GeneratedCaption]] = []
        for batch in self._extract(images, batch_size, allow_urls=allow_urls):
            for result in self._caption(batch, config, num_captions, need_attention=True):
                if result.error is not None:
                    raise DataError(result.error)
                captions.append(list(result.captions))
        if num_captions > 1:
            return captions[0] if is_image_input(images) else captions
        best = [several[0] for several in captions]
        return best[0] if is_image_input(images) else best

    def search_config(
        self, overrides: Overrides, num_captions: int = 1, generation_config: GenerationConfig | None = None
    ) -> GenerationConfig:
        """Return how a call searches: the model's configuration with the call's fields over it.

        Raise ConfigError for values out of range, words outside the vocabulary, and more captions than beams.
        """
        config = override(generation_config or self.captioner.generation_config, overrides, self.vocabulary)
        config.check_captions(num_captions)
        return config

    def extract(
        self, images: ImageInput | Iterable[ImageInput], *, batch_size: int = 16, allow_urls: bool = False
    ) -> Regions:
        """Return the regions of one image or several, `(B, N, D)`, on the device of the PyTorch model; see `caption`.

        Raise ConfigError for an exported model, which has none.
        """
        from legenda.regions import Regions  # late: it imports PyTorch, which captions of exported models do without

        prepare, regions = self._trained.prepare, []
        for batch in self._extract(images, batch_size, allow_urls=allow_urls):
            if error := next((file.error for file in batch if file.error is not None), None):
                raise DataError(error)
            regions.append(prepare([file.regions for file in batch if file.regions is not None]))
        if not regions:
            raise DataError("there is no image; give at least one")
        return Regions.stack(regions)

    def caption_files(
        self,
        names: Sequence[str],
        search: Overrides | None = None,
        *,
        folder: Path = Path(),
        num_captions: int = 1,
        batch_size: int = 16,
        progress: Callable[[int, int], object] = lambda *_: None,
        need_attention: bool = False,
    ) -> Iterator[ImageCaptions]:
        """Yield the captions of each image, in order, or the error for one that cannot be read or extracted.

        names: paths relative to `folder`, or URLs, which are fetched. search: what is set over the model's
        generation_config. An image on which the extractor fails, or whose features do not fit the model or give no
        finite scores, does not affect its batch. progress: called with the number of images done and in total.
        need_attention: whether the captions have their attention, and come with the image. A thread extracts the next
        batch while the caller works.
        """
        done = 0
        config = self.search_config(search or {}, num_captions)

        def extract_next() -> list[ImageFile]:
            batch = next(batches, [])
            with self._lock:
                extract_batch(batch, self.extractor)
            return batch

        batches = read_batches(names, batch_size, folder, sufficient_side=self.extractor.sufficient_side)
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(1))
            stack.callback(pool.submit, batches.close)  # by the thread that reads them, also after a second Ctrl+C
            following = pool.submit(extract_next)
            while batch := following.result():
                following = pool.submit(extract_next)
                yield from self._caption(batch, config, num_captions, need_attention=need_attention)
                done += len(batch)
                progress(done, len(names))

    def _extract(
        self, images: ImageInput | Iterable[ImageInput], batch_size: int, *, allow_urls: bool
    ) -> Iterator[list[ImageFile]]:
        """Yield batches of images with their regions, or their errors."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        is_one = is_image_input(images) or not isinstance(images, Iterable)
        numbered = enumerate(cast("Iterable[ImageInput]", [images] if is_one else images))
        while chunk := list(islice(numbered, batch_size)):
            batch = []
            for number, image in chunk:
                if isinstance(image, str | Path):
                    if is_url(str(image)) and not allow_urls:
                        raise ConfigError(f"{image} is a URL; give allow_urls=True to fetch it, or a path")
                    batch.append(ImageFile(str(image)).read(self.extractor.sufficient_side))
                else:
                    name = str(getattr(image, "filename", "") or getattr(image, "name", "") or f"image {number}")
                    image = shrink(to_image(image, name), self.extractor.sufficient_side)
                    batch.append(ImageFile(name, image=image))
            with self._lock:
                extract_batch(batch, self.extractor)
            yield batch

    def _caption(
        self, batch: Sequence[ImageFile], config: GenerationConfig, count: int, *, need_attention: bool
    ) -> Iterator[ImageCaptions]:
        """Yield the captions of each image of a batch, or its error."""
        by_file: dict[int, ImageCaptions] = {}
        readable = [file for file in batch if file.regions is not None]
        for files, captioned in self._search(readable, config, count, need_attention) if readable else ():
            for index, file in enumerate(files):
                captions = tuple(self._captions_of(captioned, file, index, config))
                by_file[id(file)] = ImageCaptions(file.name, captions, pixels=file.image if need_attention else None)
        for file in batch:
            yield by_file.get(id(file)) or ImageCaptions(file.name, error=file.error)

    def _captions_of(
        self, captioned: Captioned, file: ImageFile, image: int, config: GenerationConfig
    ) -> list[GeneratedCaption]:
        """Return the captions of an image of a batch, with what the extractor sees where it is `photo`."""
        captions = extract_captions(captioned, self.vocabulary, image)
        if self.extractor.name != "photo" or captioned.boxes is None or file.regions is None:
            return captions
        features, boxes = file.regions
        assert boxes is not None
        things = read_things(features, boxes)
        if self.consensus is not None:
            tokens, means = ([[getattr(caption, name) for caption in captions]] for name in ("tokens", "mean_log_prob"))
            (sure,) = self.consensus.confidence(features[:1], tokens, np.array(means)).tolist()
            captions = [replace(caption, confidence=value) for caption, value in zip(captions, sure, strict=True)]
        is_free = not config.do_sample and not config.required_tokens  # else the words of the search are asked for
        if is_free and file.image is not None and self._is_unsure(things, captions[0]):
            captions = [_of_words(captions[0], describe_things(things, file.image))]
        return [replace(caption, things=things) for caption in captions]

    def _is_unsure(self, things: Sequence[Thing], caption: GeneratedCaption) -> bool:
        """Return whether an image is unlike those of the training, or its best caption is not sure enough.

        Nothing is detected in it, or its best caption is less likely than `least_log_prob` or less sure than
        `min_score`.
        """
        if self.min_score is not None and caption.confidence is not None and caption.confidence < self.min_score:
            return True
        if self.least_log_prob is None or not things:
            return self.least_log_prob is not None
        return caption.mean_log_prob < self.least_log_prob

    def _search(
        self, files: Sequence[ImageFile], config: GenerationConfig, count: int, need_attention: bool
    ) -> Iterator[tuple[Sequence[ImageFile], Captioned]]:
        """Yield images with the output of their search: all, or single ones where that fails.

        An image that fails alone keeps the error.
        """
        consensus = None if config.do_sample else self.consensus
        regions = [file.regions for file in files if file.regions is not None]
        try:
            captioned = self.captioner.search(
                regions,
                config,
                num_captions=count if consensus is None else config.beam_size,
                names=[Path(file.name).name for file in files],  # samples do not depend on the folder
                need_attention=need_attention,
            )
        except DataError as error:
            if len(files) == 1:
                files[0].fail(error)
                return
            for file in files:
                yield from self._search([file], config, count, need_attention)
            return
        if consensus is not None:
            whole = np.stack([features[0] for features, _ in regions])
            output = consensus.choose(captioned.output, whole, self.vocabulary.eos_token_id, count)
            captioned = captioned._replace(output=output)
        yield files, captioned


def _of_words(caption: GeneratedCaption, text: str) -> GeneratedCaption:
    """Return the caption with the words of a text, to each of which all regions contribute equally."""
    words = tuple(text.split())
    heads = np.full((len(words), *caption.heads.shape[1:]), 1 / caption.heads.shape[2])
    return replace(caption, words=words, tokens=(), heads=heads)


class CaptionsModel(Protocol):
    """A run, or an exported model in place of one, as pipelines take it."""

    @property
    def folder(self) -> Path: ...

    @property
    def captioner(self) -> Captioner: ...

    @property
    def choice(self) -> ChoiceConfig: ...

    @property
    def summary(self) -> str: ...

    def resolve_extractor(self, name: str | None) -> Extractor: ...

    def data(self) -> Data: ...


def load_for_captions(model: str | Path, options: RunOptions) -> CaptionsModel:
    """Load a captioner: a folder of `legenda export`, without PyTorch, or any other that `load_captioner_run` takes.

    Raise LegendaError for a file that is missing or damaged, a device that does not exist, and for a device, a
    precision or a compiled step with an exported model, which has none.
    """
    folder = find_model(model)
    if is_exported(folder):
        return ExportedRun.load(folder, options)
    from legenda.evaluation.runs import load_captioner_run  # late: PyTorch takes seconds, and may not be installed

    options.resolve_for_models()
    return load_captioner_run(model, options)


def open(
    model: str | Path,
    extractor: str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    *,
    compile: bool = False,
    ignore_extractor_mismatch: bool = False,
    allow_download: bool = False,
    consensus: bool = True,
    min_score: float | None = None,
) -> Pipeline:
    """Return the pipeline of a model: a run folder or an exported one, "photo", the packaged model, or USER/MODEL.

    extractor: file or name; not needed where the run's extractor is built in or on this machine; with `allow_download`
    it is fetched. device: auto, cpu, cuda, cuda:N or mps. precision: float32, or bf16 or fp16 by autocast. compile:
    whether to compile the decoding step with torch.compile, for GPUs. consensus: whether to choose among the beams by
    expected CIDEr, where the model can. min_score: name the things alone where a caption is less sure than this. Raise
    LegendaError where the model is damaged, the device does not exist, or the extractor is missing or is not the one of
    the training; with `ignore_extractor_mismatch` another one is only warned of.
    """
    compute = RunOptions(
        device=device,
        precision=precision,
        compile=compile,
        ignore_extractor_mismatch=ignore_extractor_mismatch,
        allow_download=allow_download,
    )
    run = load_for_captions(model, compute)
    return Pipeline.of_run(run, run.resolve_extractor(extractor), consensus=consensus, min_score=min_score)
