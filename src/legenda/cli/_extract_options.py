"""Options of `legenda extract`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import tyro

from legenda.compute import ComputeOptions
from legenda.config import Bounded, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(ComputeOptions):
    """Extract features of images, or of frames of videos, into a file that `legenda train` reads.

    Named extractors, of the extra "vision": hf:MODEL, a backbone (DINOv2, CLIP, SigLIP, ViT, ResNet ...: a grid)
    or a DETR (regions) of Hugging Face's hub or in a folder; torchvision:fasterrcnn_resnet50_fpn_v2 and the other
    detectors of torchvision, torchvision:resnext101_32x8d and its other ResNets (a grid of 7 x 7 cells), with :FILE for
    other weights; bottom-up:FILE, the Visual Genome detector of the papers with its public weights.

    A user-defined extractor is a Python file with one function, extract(images), that gets a list of RGB PIL images and
    returns for each a pair of NumPy arrays: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 relative
    to the image, in 0..1, or None for the boxes. Image ids are file names without suffix. Images that cannot be read
    are skipped and listed. Called again after a stop, it resumes.
    """

    section: ClassVar[str] = "--"

    images: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders or patterns such as "photos/*.jpg"; of videos with --num-frames or --frame-rate."""
    extractor: str
    """The Python file of an extractor, a name, or "scenes" for images of colored things on a plain ground."""
    out: Path | None = None
    """The file to write, by default features.safetensors; the folder of the shards with --engine ray."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto is CUDA if there is such a device, else MPS, else the CPU. Several with
    commas between, such as cuda:0,cuda:1, run one process each."""
    num_regions: PositiveInt | None = None
    """A fixed number of regions of each image, such as 36, for detectors; by default 10 to 100, by their confidence."""
    num_frames: PositiveInt | None = None
    """Frames of each video, evenly spread; each is stored as the mean of its regions."""
    frame_rate: PositiveFloat | None = None
    """Frames of each second of a video."""
    batch_size: PositiveInt = 32
    """Images, or frames of one video, of a batch."""
    workers: PositiveInt = 2
    """Threads that read images in advance; with --engine ray the processes that extract."""
    engine: Literal["local", "ray"] = "local"
    """ray extracts any number of images with many processes into a folder of shards, which is read like a file, and
    resumes a stopped job. @names.txt then names a listing of images; see docs/guides/extraction.md."""
    shard_size: PositiveInt = 1000
    """Images of a shard, with --engine ray."""
    allow_urls: bool = False
    """Fetch images that are named by URLs, with --engine ray."""

    def __post_init__(self) -> None:
        Bounded.__post_init__(self)
        self.computes()

    def computes(self) -> list[ComputeOptions]:
        """Return each of the devices with the precision; raise ConfigError for a name that no machine has."""
        return [ComputeOptions(device=device, precision=self.precision) for device in self.device.split(",")]

    def resolve(self) -> "torch.device":
        """Return the first device; raise ConfigError where this machine does not have one of them."""
        first, *_ = [compute.resolve() for compute in self.computes()]
        return first
