"""`legenda extract`: features of images or videos, in one file or in the shards of a job."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import tyro
from pydantic import model_validator

from legenda.cli.jobs import JobOptions, check_engine, describe_shards, is_folder, report_skipped
from legenda.cli.options import Flat
from legenda.compute import ComputeOptions, Precision
from legenda.config import Config, PositiveFloat, PositiveInt
from legenda.errors import ConfigError, import_extra
from legenda.extractors import load_extractor
from legenda.features.extraction import FeatureTask, extract_file, extract_shards, load_features
from legenda.features.extractors import absolute_name
from legenda.images import FrameSampling
from legenda.images.extractor import identify
from legenda.images.files import Medium, find_names
from legenda.jobs.engine import Load, run_job
from legenda.terminal import counted, progress_bar

if TYPE_CHECKING:
    import torch


class ExtractOptions(Config):
    """Extract features of images, or of frames of videos, into a file or a folder that `legenda train` reads.

    Named extractors, of the extra "vision": hf:MODEL, a backbone (DINOv2, CLIP, SigLIP, ViT, ResNet ...: a grid)
    or a DETR (regions) of Hugging Face's hub or in a folder; torchvision:fasterrcnn_resnet50_fpn_v2 and the other
    detectors of torchvision, torchvision:resnext101_32x8d and its other ResNets (a grid of 7 x 7 cells), with :FILE for
    other weights; bottom-up:FILE, the Visual Genome detector of the papers with its public weights.

    A user-defined extractor is a Python file with one function, extract(images), that gets a list of RGB PIL images and
    returns for each a pair of NumPy arrays: features (regions, channels) and boxes (regions, 4) as x1 y1 x2 y2 relative
    to the image, in 0..1, or None for the boxes. Image ids are file names without suffix. Images that cannot be read
    or extracted are named and skipped; the exit code is then 2. Called again after a stop, it resumes.
    """

    examples: ClassVar[tuple[str, ...]] = (
        "photos/ --extractor photo",
        "photos/ --extractor hf:facebook/dinov2-small --out dino.safetensors",
        "photos/ --extractor my_extractor.py --out features",
    )
    usual: ClassVar[tuple[str, ...]] = ("extractor", "out", "num_regions", "batch_size", "device", "engine")

    images: tyro.conf.Positional[tuple[str, ...]]
    """Files, folders, patterns such as "photos/*.jpg", or - for a list of them on the standard input; of videos with
    --num-frames or --frame-rate."""
    extractor: str
    """The Python file of an extractor, a name, or "scenes" for images of colored things on a plain ground."""
    out: Path = Path("features.safetensors")
    """The file to write; or, without a suffix, a folder of shards for any number of images, which is read like a file.
    @names.txt then names a listing of images; see docs/guides/extraction.md."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto is CUDA if there is such a device, else MPS, else the CPU. Several with
    commas between, such as cuda:0,cuda:1, are those of a pool of one process each."""
    num_regions: PositiveInt | None = None
    """A fixed number of regions of each image, such as 36, for detectors; by default 10 to 100, by their confidence."""
    num_frames: PositiveInt | None = None
    """Frames of each video, evenly spread; each is stored as the mean of its regions."""
    frame_rate: PositiveFloat | None = None
    """Frames of each second of a video."""
    batch_size: PositiveInt = 32
    """Images, or frames of one video, of a batch."""
    precision: Precision = "float32"
    """float32, bf16 or fp16, of models by PyTorch's autocast on GPUs and by packed weights on CPUs."""
    job: Annotated[JobOptions, Flat] = JobOptions()

    @model_validator(mode="after")
    def _check_compute(self) -> Self:
        self.computes()
        return self

    def computes(self) -> list[ComputeOptions]:
        """Return each of the devices with the precision; raise ConfigError for a name that no machine has."""
        return [ComputeOptions(device=device, precision=self.precision) for device in self.device.split(",")]

    def resolve(self) -> "torch.device":
        """Return the first device; raise ConfigError where this machine does not have one of them."""
        first, *_ = [compute.resolve() for compute in self.computes()]
        return first


def run(options: ExtractOptions) -> None:
    """Write the features and print how many images there are; raise DataError at the end where images were skipped."""
    if not is_folder(options.out) and options.out.suffix != ".safetensors":
        raise ConfigError(f"{options.out} is no folder and no .safetensors file; name one of them with --out")
    sampling: FrameSampling | None = None
    medium: Medium = "image"
    if options.num_frames is not None or options.frame_rate is not None:
        sampling, medium = FrameSampling(num_frames=options.num_frames, frame_rate=options.frame_rate), "video"
        import_extra("av", "video")
    engine, workers = options.job.engine, options.job.shares()
    if engine == "local" and len(options.computes()) > 1:
        engine, workers = "pool", len(options.computes())
    check_engine(engine, options.device)
    name = absolute_name(options.extractor)
    compute = options.computes()[0] if engine == "local" else ComputeOptions(device="cpu", precision=options.precision)
    extractor = load_extractor(name, compute, options.num_regions)
    identity = identify(extractor, sampling)
    make = partial(FeatureTask, identity=identity, sampling=sampling, batch_size=options.batch_size)
    load: Load = partial(load_features, name, options.precision, options.num_regions, make)
    if engine == "local":
        task = make(extractor)
        load = lambda _: task  # noqa: E731
    process = partial(run_job, load=load, engine=engine, workers=workers, device=options.device)
    listing: Any = {"medium": medium, "allow_urls": options.job.allow_urls}
    title = f"extracting with {extractor.name}"
    if is_folder(options.out):
        listing["shard_size"] = options.job.shard_size
        with progress_bar(title) as update:
            stats = extract_shards(options.images, identity, options.out, partial(process, progress=update), **listing)
        return describe_shards(stats, options.out, f"{medium}s", "extracted")
    names = find_names(options.images, **listing)
    with progress_bar(title) as update:
        process = partial(process, progress=update)
        report = extract_file(names, identity, options.out, process, shard_size=options.job.shard_size)
    rate = (report.images - report.cached) / max(report.seconds, 1e-9)
    cached = f", {report.cached} of them by earlier calls" if report.cached else ""
    print(
        f"{options.out}: {counted(report.images, medium + 's')} by {extractor.name}{cached}, {rate:.1f} {medium}s/s, "
        f"{len(report.skipped)} skipped"
    )
    report_skipped([reason for _, reason in report.skipped], len(names), f"{medium}s")
