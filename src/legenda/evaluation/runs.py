"""Load run folders and exported models: the model, its configuration, its data, and the extractor of its features.

A model of PyTorch is also a captioner, as pipelines take it: regions as arrays in, sequences as arrays out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from legenda.compute import CPU, RunOptions
from legenda.config import merge
from legenda.data.registry import Data, Split, data_settings
from legenda.decoding import GenerationOutput
from legenda.decoding.generation import to_numpy
from legenda.decoding.search import search
from legenda.errors import CheckpointError, ConfigError, LegendaError
from legenda.evaluation.exported import ExportedRun, without_data
from legenda.features.extractors import refuse_extractor, resolve_extractor
from legenda.features.readers import require_store
from legenda.hub import find_model, is_of_transformers
from legenda.images.extractor import UNNAMED, Extractor, ExtractorIdentity
from legenda.models import Captioner
from legenda.models.base import CaptionerConfig, Model, SelfSearchingCaptioner, inference
from legenda.models.checkpoint import load_with_config, naming_file, not_a_captioner
from legenda.models.packing import PackedWeights
from legenda.models.registry import summarize
from legenda.models.weights import load_weights, read_checksum
from legenda.regions import Regions
from legenda.run_folder import CONFIG, RunConfig, weights_path
from legenda.runtime.captioner import SETTINGS, Captioned, ImageRegions, OnnxCaptioner, digest, is_exported
from legenda.runtime.search import SearchOutput
from legenda.runtime.settings import ChoiceConfig, GenerationConfig
from legenda.text import Vocabulary

if TYPE_CHECKING:
    from legenda.tasks.base import Task


@dataclass(frozen=True, eq=False)
class TorchCaptioner:
    """A model on its device, in evaluation mode; see `legenda.runtime.captioner.Captioner`."""

    model: Captioner
    weights: PackedWeights = field(default_factory=PackedWeights, repr=False)
    """The packed copies of the model's weights, which the first search makes for all."""

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return self.model.name

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the model; raise CheckpointError where it has none."""
        return self.model.require_vocabulary()

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return self.model.parameter_count

    @property
    def generation_config(self) -> GenerationConfig:
        """How the model searches."""
        return self.model.generation_config

    def prepare(self, regions: Sequence[ImageRegions]) -> Regions:
        """Return the regions of images as one batch on the device; a model's backbone makes those of pixels."""
        batch = Regions.stack([Regions.from_numpy(*image) for image in regions])
        with inference(self.model, self.weights) as model:
            return model.prepare(batch.to(model.device))

    def search(
        self,
        regions: Sequence[ImageRegions],
        config: GenerationConfig,
        *,
        num_captions: int = 1,
        names: Sequence[str] | None = None,
        need_attention: bool = False,
    ) -> Captioned:
        """Generate `num_captions` sequences for the regions of each image."""
        batch = self.prepare(regions)
        with inference(self.model, self.weights) as model:
            output = search(
                model,
                batch,
                config,
                num_captions=num_captions,
                names=names,
                need_attention=need_attention,
            )
        return to_arrays(output, batch)


def to_arrays(output: GenerationOutput, regions: Regions) -> Captioned:
    """Return the output of a search over regions as arrays."""
    arrays = (None if values is None else to_numpy(values) for values in vars(output).values())
    boxes = None if regions.boxes is None else to_numpy(regions.boxes.float())
    return Captioned(SearchOutput(*arrays), boxes, to_numpy(regions.mask_or_ones))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Run:
    """A trained model of any task with the configuration of its run.

    options: how it was loaded: the device, also of its extractor, and which extractors it takes.
    stage: the stage of the weights, counted from 1; None for the last one.
    """

    folder: Path
    model: Model
    config: RunConfig
    options: RunOptions = CPU
    stage: int | None = None

    def load_stage(self, stage: int | None) -> Self:
        """Return the run with the best model of an earlier stage, counted from 1; None for the last one.

        Raise CheckpointError where the folder does not hold it.
        """
        if stage is None:
            return self
        path = weights_path(self.folder, stage)
        if not path.exists():
            raise CheckpointError(
                f"{path} does not exist; only stages before a run's last one leave such a file; leave --stage out"
            )
        load_weights(self.model, path)
        return replace(self, stage=stage)

    @property
    def weights(self) -> str:
        """The checksum of the weights, as their file has it, or that of an exported model's files."""
        if isinstance(self.model, ExportedModel):
            return digest(self.folder / SETTINGS)
        return read_checksum(weights_path(self.folder, self.stage))

    @property
    def task(self) -> type[Task]:
        """The task of the training; captioning where config.json names none."""
        from legenda.tasks.base import TASKS

        try:
            return TASKS.get(self.config.get("task", "captioning"))
        except LegendaError as error:
            raise CheckpointError(f"{self.folder / CONFIG}: {error}") from error

    def refuse_extractor(self, message: str) -> None:
        """Raise ConfigError about features of another extractor than that of the training, or warn of them."""
        refuse_extractor(message, ignore=self.options.ignore_extractor_mismatch)

    @property
    def imported(self) -> bool:
        """Whether the weights were imported from a released code, so that data and features are unknown."""
        return "imported" in self.config

    @property
    def summary(self) -> str:
        """One line about the model: that of its config.json, or what its architecture and its options are."""
        return str(self.config.get("summary") or summarize(self.model.name, self.model.config))

    @property
    def extractor(self) -> ExtractorIdentity:
        """The identity of the extractor of the features; "unnamed" where config.json has none."""
        return ExtractorIdentity.read(self.config.get("extractor") or UNNAMED, self.folder / CONFIG)

    def data(self) -> Data:
        """Return the settings of the training data; raise LegendaError where config.json lacks them."""
        if isinstance(self.model, ExportedModel):
            raise without_data(self.folder)
        if self.imported:
            raise ConfigError(
                f"{self.folder} was imported without data; name some with --annotations and --features, or with their "
                "images, or give a run of legenda train"
            )
        data = data_settings(self.config, self.folder)
        annotations = getattr(data, "annotations", None)
        if isinstance(annotations, Path) and not annotations.exists():
            raise ConfigError(
                f"{annotations}, which {self.folder} was trained on, does not exist; name data with --annotations and "
                "--features, or with their images"
            )
        return data


@dataclass(frozen=True)
class CaptionerRun(Run):
    """A trained captioner with the configuration of its run."""

    model: Captioner

    @property
    def captioner(self) -> TorchCaptioner:
        """The model as pipelines take it."""
        return TorchCaptioner(self.model)

    @property
    def choice(self) -> ChoiceConfig:
        """How one of several captions is chosen; raise CheckpointError for a value of config.json out of range."""
        choice = {name: value for name, value in self.config.items() if name in ChoiceConfig.model_fields}
        with naming_file(self.folder / CONFIG):
            return merge(ChoiceConfig, choice, "config.json")

    def resolve_extractor(self, name: str | None) -> Extractor:
        """Return the extractor of the run's features; see `legenda.features.extractors.resolve_extractor`."""
        return resolve_extractor(UNNAMED if self.imported else self.extractor, name, self.folder, self.options)


class ExportedModel(SelfSearchingCaptioner):
    """An exported captioner with the interface of a PyTorch model: its search runs on the CPU, by ONNX Runtime."""

    def __init__(self, captioner: OnnxCaptioner) -> None:
        nn.Module.__init__(self)
        self.captioner, self.name, self.vocabulary = captioner, captioner.name, captioner.vocabulary
        self.config = CaptionerConfig(vocab_size=len(captioner.vocabulary), feature_dim=captioner.settings.width)
        self.generation_config, self.backbone = captioner.generation_config, None
        self.place = nn.Parameter(torch.zeros(0))  # on the device of what it reads and returns

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters of the model that was exported."""
        return self.captioner.parameter_count

    def generate(
        self,
        regions: Regions,
        config: GenerationConfig,
        num_captions: int,
        names: Sequence[str] | None = None,
        *,
        need_attention: bool = False,
    ) -> GenerationOutput:
        """Return the sequences of the exported model's own search."""
        features, mask = regions.features.float().cpu().numpy(), regions.mask_or_ones.cpu().numpy()
        boxes = None if regions.boxes is None else regions.boxes.float().cpu().numpy()
        images = [
            (features[image][real], None if boxes is None else boxes[image][real]) for image, real in enumerate(mask)
        ]
        search = self.captioner.search(
            images, config, num_captions=num_captions, names=names, need_attention=need_attention
        )
        return GenerationOutput.from_numpy(search.output, torch.device("cpu"))


@dataclass(frozen=True)
class HubRun(CaptionerRun):
    """A model of transformers in place of a run, with its processor of images; it has no data of its own."""

    processor: Any = None

    @property
    def _config(self) -> Any:
        model: Any = self.model
        return model.net.config

    @property
    def weights(self) -> str:
        """A digest of the configuration, with the hub's commit."""
        facts = [str(getattr(self._config, "_commit_hash", None)), self._config.to_json_string()]
        return sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def summary(self) -> str:
        """The type of the model."""
        return f"{self._config.model_type} of transformers"

    def resolve_extractor(self, name: str | None) -> Extractor:
        """Return the model's own processor of images; raise ConfigError for any other extractor."""
        from legenda.evaluation.hub_captioner import extractor_of

        if name is not None:
            raise ConfigError(f"{self.folder} has its own processor of images; leave out --extractor")
        return extractor_of(self.processor, str(self.folder))


def load_captioner_run(name: str | Path, compute: RunOptions = CPU) -> CaptionerRun:
    """Load the run of a captioner; otherwise as `load_run`."""
    run = load_run(name, compute)
    if not isinstance(run, CaptionerRun):
        raise not_a_captioner(run.folder, run.model)
    return run


def load_run(name: str | Path, compute: RunOptions = CPU) -> Run:
    """Load the run of a model of any task, by a name that `find_model` takes, with the model on the device.

    Raise LegendaError for a file that is missing or damaged.
    """
    folder = find_model(name)
    if is_of_transformers(folder):
        from legenda.evaluation.hub_captioner import load_hub_model  # late: transformers take seconds to import

        model, processor = load_hub_model(folder)
        compute.apply(model)
        config: RunConfig = {"model": {"name": str(folder)}, "extractor": f"processor of {folder}"}
        config["imported"] = {"kind": "transformers"}
        return HubRun(folder, model, config, compute, processor=processor)
    if is_exported(folder) and not weights_path(folder).exists():
        exported = ExportedRun.load(folder, compute)
        return CaptionerRun(folder, ExportedModel(exported.captioner).eval(), exported.config, compute)
    model, config = load_with_config(folder)
    compute.apply(model)
    if isinstance(model, Captioner):
        return CaptionerRun(folder, model, config, compute)
    return Run(folder, model, config, compute)


def resolve_data(
    run: CaptionerRun, annotations: Path | None, features: Path | None, images: Path | None = None
) -> Data:
    """Return the data that the options name, or those the run was trained on, perhaps with other features.

    images: the folder of the images of `annotations`, whose regions the run's extractor makes when they are read. Raise
    ConfigError for `annotations` without features and images.
    """
    if annotations is None:
        return replace_features(run.data(), features)
    if features is not None:
        from legenda.data.captions import KarpathyData

        return KarpathyData(annotations=annotations, features=features)
    if images is None:
        raise ConfigError(
            "--annotations needs the features of its images, named with --features, or the folder of the images"
        )
    from legenda.data.image_files import ImageData

    return ImageData(annotations=annotations, images=images).with_extractor(run.resolve_extractor(None))


def resolve_shared_data(
    runs: Sequence[CaptionerRun], annotations: Path | None, features: Path | None, images: Path | None = None
) -> list[Data]:
    """Return the data of each run; of one whose own are unknown or elsewhere, as of `photo`, those of another run.

    Its extractor then reads the images, unless it is the one of the features. Otherwise as `resolve_data`.
    """
    resolved: list[Data | ConfigError] = []
    for run in runs:
        try:
            resolved.append(resolve_data(run, annotations, features, images))
        except ConfigError as error:
            resolved.append(error)
    lender = next((data for data in resolved if not isinstance(data, ConfigError)), None)
    for position, (run, data) in enumerate(zip(runs, resolved, strict=True)):
        if isinstance(data, ConfigError):
            if lender is None or annotations is not None:
                raise data
            resolved[position] = _borrow(run, lender, images)
    return [data for data in resolved if not isinstance(data, ConfigError)]


def _borrow(run: CaptionerRun, data: Data, images: Path | None) -> Data:
    """Return the data of another run for a run, with its own extractor where the features are of another one."""
    from legenda.data.captions import KarpathyData
    from legenda.data.image_files import ImageData

    if not isinstance(data, KarpathyData) or run.extractor.find_difference(data.open_store().extractor) is None:
        return data
    shared = {name: getattr(data, name) for name in KarpathyData.model_fields if name not in ("kind", "features")}
    folder = images or getattr(data, "images", None)
    return ImageData(**shared, images=folder).with_extractor(run.resolve_extractor(None))


def replace_features(data: Data, features: Path | None) -> Data:
    """Return the data with one store in place of its own, or unchanged; raise ConfigError for data without stores."""
    if features is None:
        return data
    if not hasattr(data, "features"):
        raise ConfigError(f"the data {data.kind!r} are read from no feature store; leave out --features")
    if getattr(data, "train_backbone", False):
        raise ConfigError("the model has a backbone of its own, which reads the images; leave out --features")
    require_store(features)  # data of images would write it
    return data.replace(features=(features,) if isinstance(data.features, tuple) else features)


def check_extractor(run: Run, split: Split) -> None:
    """Raise ConfigError where the features of a split are not those of the run's extractor.

    Runs without the name of an extractor are not checked: imported ones, and those trained on unnamed features.
    """
    actual, expected = ExtractorIdentity.read(getattr(split, "extractor", UNNAMED), split.source), run.extractor
    if not run.imported and expected != UNNAMED and expected.find_difference(actual) is not None:
        run.refuse_extractor(
            f"{split.source} was made by the extractor {actual}, but {run.folder} was trained on features of {expected}"
        )
