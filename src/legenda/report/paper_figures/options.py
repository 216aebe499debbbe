"""Options of the figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import tyro

from legenda.compute import ComputeOptions, ExtractorOptions
from legenda.config import Count, NonNegativeInt, PositiveInt

Runs = tyro.conf.Positional[tuple[Path, ...]]


@dataclass(frozen=True)
class CurveOptions:
    """Draw a score of the validation by epoch, a line for each system (NG-SAN, Figure 2: N-SAN against SAN).

    It reads the metrics.jsonl of run folders and no model. Runs that differ only in the training seed are one
    system: their mean with a band from the lowest to the highest. A folder of `legenda train --seeds`, with the
    subfolders seed0, seed1 and so on, is replaced by these.
    """

    runs: Runs
    """Run folders."""
    metric: str = "CIDEr-D"
    """A validation metric."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure with .png."""


@dataclass(frozen=True)
class SurfaceOptions(ComputeOptions):
    """Draw the geometric weight phi of a trained geometry model (NG-SAN, appendix: Figures 3 and 4).

    ngsan.3 shows it over the relative distances dx and dy, with the relative sizes dw = dh fixed at 0.5, 1 and 2;
    ngsan.4 vice versa. As in the paper phi is that of content-independent geometry in a one-layer model, such
    as `legenda train scenes.content --model.num-layers 1` gives. For several layers name one; for query- or
    key-dependent geometry (gsan, ngsan) phi is the mean over the regions of images of the run's data.
    """

    section: ClassVar[str] = "--"

    runs: Runs
    """Run folders; a row each."""
    layer: int | None = None
    """The layer of the encoder, counted from 1; required for several layers."""
    heads: tuple[int, ...] = ()
    """Heads to draw, counted from 0, a row each; by default their mean."""
    split: Literal["train", "val", "test"] = "test"
    """The split of the images over whose regions the mean is taken."""
    count: PositiveInt = 100
    """The number of images."""
    annotations: Path | None = None
    """Annotations to use instead of the run's; required for imported models."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure with .png."""


@dataclass(frozen=True)
class ImageOptions(ExtractorOptions):
    """Common options of figures with images."""

    section: ClassVar[str] = "--"

    runs: Runs
    """Run folders; a row each."""
    image_files: tuple[str, ...] = ()
    """Image files, folders or patterns; by default images of the runs' data."""
    extractor: str | None = None
    """The extractor for image files, as for legenda caption; not needed if it is built in."""
    split: Literal["train", "val", "test"] = "test"
    """The split of the runs' data from which images are taken."""
    image_ids: tuple[str, ...] = ()
    """Ids of images of the split; by default the first ones."""
    image_folder: Path | None = None
    """The folder of the photographs, if they are neither next to the annotations nor one folder below."""
    annotations: Path | None = None
    """Annotations to use instead of the runs'; required for imported models."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; by default the name of the figure with .png."""


@dataclass(frozen=True)
class CaptionOptions(ImageOptions):
    """Common options of figures with captions."""

    count: PositiveInt = 2
    """The number of images of the split, if none is named."""
    beam_size: Count = 3
    """Hypotheses kept by beam search."""


@dataclass(frozen=True)
class GateOptions(CaptionOptions):
    """Draw captions word by word with the attention over the image (AoANet, Figure 8).

    Two or more models of AoANet's family, one with and one without attention on attention in its decoder, such
    as aoanet_aoa and aoanet_base. The image is dark where the attention is small; the region with the largest weight is
    red and labeled with it.
    """


@dataclass(frozen=True)
class RegionOptions(CaptionOptions):
    """Draw captions word by word with the regions of the image (X-LAN, Figure 5).

    One model or more, of which one has X-Linear attention in its decoder, such as xlan and updown. The region with
    the largest weight is red; the smaller a weight, the darker its region.
    """


@dataclass(frozen=True)
class HeatOptions(CaptionOptions):
    """Draw a heatmap of the attention of each word of a caption (MD-SAN, Figure 7).

    One model or more, of which one is of MD-SAN's family, such as mdsan and mdsan_plain. The weights are those of
    the last decoder layer, the mean over its heads.
    """


@dataclass(frozen=True)
class PositionOptions(ImageOptions):
    """Draw the effect of positions on the scores of each head: Z = softmax(E / E0), Eq. 19 (MD-SAN, Figure 3).

    A row for each model, such as mdsan_abspe, mdsan_relpe and mdsan_dsa; without any, these three with random
    weights. The regions are those of one image; without runs and --image-files, of the first scene of the split. Models
    of scenes, and untrained ones, read 49 grid cells of it, each as a patch of pixels.
    """

    runs: Runs = ()
    """Run folders of models with positions in their encoder; a row each."""
    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int = 1
    """The branch of that layer, counted from 1."""
    seed: NonNegativeInt = 0
    """The seed of the weights of untrained models."""


@dataclass(frozen=True)
class HeadOptions(CaptionOptions):
    """Draw the self-attention of each head of an encoder with the captions (MD-SAN, Figure 4).

    A row for each model and branch, such as mdsan_plain and mdsan_dsa. With --cell it draws the attention of
    one query region as a heatmap over the image.
    """

    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int | None = None
    """The branch of that layer, counted from 1; by default all."""
    cell: int | None = None
    """A query region, or a grid cell, counted from 1 row by row."""
    count: PositiveInt = 1
    """The number of images of the split, if none is named."""
