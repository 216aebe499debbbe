"""What can be said of each figure on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

Runs = tyro.conf.Positional[tuple[Path, ...]]


@dataclass(frozen=True)
class CurveOptions:
    """Draws a score of the validation by epoch, a line for each system (NG-SAN, Figure 2: N-SAN against SAN).

    It reads the metrics.jsonl of run folders and no model. Runs that differ in nothing but the seed of training are one
    system: their mean, within a band from the lowest to the highest. A folder that `legenda train --seeds` made, with
    seed0, seed1 and so on in it, stands for these.
    """

    runs: Runs
    """Run folders."""
    metric: str = "CIDEr-D"
    """A score that validation measures."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; the figure's name with .png where it is not given."""


@dataclass(frozen=True)
class SurfaceOptions:
    """Draws the geometric weight phi of a trained geometry model (NG-SAN, appendix: Figures 3 and 4).

    ngsan.3 shows it over the relative distances dx and dy, with the relative sizes dw = dh fixed at 0.5, 1 and 2;
    ngsan.4 the other way round. As in the paper phi is that of content-independent geometry in a one-layer model, such
    as `legenda train scenes.content --model.num-layers 1` gives. Of more layers one is chosen; of query- or
    key-dependent geometry (gsan, ngsan) it is the mean over the regions of pictures of the run's data.
    """

    runs: Runs
    """Run folders; a row each."""
    layer: int | None = None
    """The layer of the encoder, counted from 1, where there are several."""
    heads: tuple[int, ...] = ()
    """Heads to be shown, counted from 0, a row each; their mean where none is named."""
    split: Literal["train", "val", "test"] = "test"
    """The images over whose regions the mean is taken."""
    count: int = 100
    """How many of them."""
    annotations: Path | None = None
    """Other annotations than the run's; an imported model has none of its own."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; the figure's name with .png where it is not given."""


@dataclass(frozen=True)
class PictureOptions:
    """What figures of pictures have in common: which models, and which pictures."""

    runs: Runs
    """Run folders; a row each."""
    image_files: tuple[str, ...] = ()
    """Pictures of your own: files, folders or patterns. Without them, images of the runs' data."""
    extractor: str | None = None
    """The extractor for pictures of your own, as for legenda caption; not needed where the run knows how to have it."""
    split: Literal["train", "val", "test"] = "test"
    """The split of the runs' data from which images are taken."""
    image_ids: tuple[str, ...] = ()
    """Identities of images of the split; the first ones where none is named."""
    image_folder: Path | None = None
    """The folder of the photographs, where they do not lie beside the annotations or in a folder there."""
    annotations: Path | None = None
    """Other annotations than the runs'; an imported model has none of its own."""
    features: Path | None = None
    """The features of their images."""
    out: Path | None = None
    """The file, .png, .svg or .pdf; the figure's name with .png where it is not given."""


@dataclass(frozen=True)
class CaptionOptions(PictureOptions):
    """What figures with captions have in common besides."""

    count: int = 2
    """How many images of the split, where none is named."""
    beam_size: int = 3
    """Hypotheses that the search for captions keeps."""


@dataclass(frozen=True)
class GateOptions(CaptionOptions):
    """Draws captions word by word, each with the picture as the model saw it then (AoANet, Figure 8).

    Two or more models of AoANet's family, of which one has attention on attention in its decoder and another has not,
    such as aoanet_aoa and aoanet_base. A picture is dark where the word's attention is small; the strongest region is
    red and carries its weight.
    """


@dataclass(frozen=True)
class RegionOptions(CaptionOptions):
    """Draws captions word by word, each with the picture and its regions (X-LAN, Figure 5).

    One model or more, of which one has X-Linear attention in its decoder, such as xlan beside updown. The region with
    the largest weight is red; the others are the darker the less they weigh.
    """


@dataclass(frozen=True)
class HeatOptions(CaptionOptions):
    """Draws a heat map of the attention of each word of a caption (MD-SAN, Figure 7).

    One model or more, of which one is of MD-SAN's family, such as mdsan beside mdsan_plain. The weights are those of
    the last decoder layer, the mean over its heads.
    """


@dataclass(frozen=True)
class PositionOptions(PictureOptions):
    """Draws what positions do to the scores of each head: Z = softmax(E / E0), Eq. 19 (MD-SAN, Figure 3).

    A row for each model, such as mdsan_abspe, mdsan_relpe and mdsan_dsa; without any, these three as they are before
    training. The regions are those of one picture; without runs and --image-files, of the first drawn scene of the
    split. Models of scenes, and untrained ones, read the 49 cells of it, each as a patch of pixels.
    """

    runs: Runs = ()
    """Run folders of models with positions in their encoder; a row each."""
    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int = 1
    """The branch of that layer, counted from 1."""
    seed: int = 0
    """That of the weights of untrained models."""


@dataclass(frozen=True)
class HeadOptions(CaptionOptions):
    """Draws whom regions look at in each head of an encoder's self-attention, beside the captions (MD-SAN, Figure 4).

    A row for each model and branch, such as mdsan_plain and mdsan_dsa. With --cell it shows for one region where it
    looks, as heat over the picture.
    """

    layer: int = 1
    """The layer of the encoder, counted from 1."""
    branch: int | None = None
    """The branch of that layer, counted from 1; all of them where it is not given."""
    cell: int | None = None
    """A region, or a cell of a grid, counted from 1 line by line."""
    count: int = 1
    """How many images of the split, where none is named."""
