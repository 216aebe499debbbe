"""Options of `legenda caption`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from legenda.compute import ExtractorOptions
from legenda.config import Count, PositiveInt
from legenda.errors import ConfigError
from legenda.evaluation.caption_formats import Format
from legenda.search_options import RunSearchOptions


@dataclass(frozen=True)
class CaptionOptions(RunSearchOptions, ExtractorOptions):
    """Caption images with a trained model: one line each, file and caption.

    Images that cannot be read are named on the standard error and skipped; the exit code is then 2.
    """

    images: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders, patterns such as "photos/*.jpg", or - for a list of them on the standard input."""
    model: str = "photo"
    """A run folder, USER/MODEL of Hugging Face's hub, or photo, the packaged model of photographs."""
    extractor: str | None = None
    """The extractor the model was trained with, a Python file or a name as for legenda extract; not needed where it is
    built in, as for scenes, or on this machine, as models of Hugging Face's hub that were fetched before."""
    num_captions: Count = 1
    """Captions of each image, best first with their scores, at most the beam size; or samples."""
    output_format: Annotated[Format, tyro.conf.arg(name="format")] = "text"
    """text; json; csv; or coco, the list of image_id and caption that COCO's server takes."""
    out: Path | None = None
    """A file for the captions instead of the standard output."""
    batch_size: PositiveInt = 16
    """Images of a batch."""
    allow_urls: bool = False
    """Download images that are named by http and https."""
    save_attention: Path | None = None
    """A folder for the attention of each word: a PNG for each image, one tile a word."""
    head: int | None = None
    """The attention head that is drawn, from 0; by default the mean of all."""
    engine: Literal["local", "ray"] = "local"
    """ray captions any number of images with many processes into shards of JSON lines in the folder --out and resumes a
    stopped job. @names.txt then names a listing of images; see docs/guides/large-scale.md."""
    workers: PositiveInt = 2
    """Processes that caption, with --engine ray."""
    shard_size: PositiveInt = 1000
    """Images of a shard, with --engine ray."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reject_unused()
        if self.num_captions > self.beam_size and not self.do_sample:
            raise ConfigError(f"--num-captions must be at most --beam-size {self.beam_size}, not {self.num_captions}")
        if self.output_format == "coco" and self.num_captions > 1:
            raise ConfigError("--format coco has one caption for each image; leave out --num-captions or use json")
        if self.head is not None and self.save_attention is None:
            raise ConfigError("--head chooses what --save-attention FOLDER draws; name the folder too")
