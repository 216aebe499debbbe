"""Base of all models: the classes of configurations, encoders, models and captioners, and evaluation mode."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from legenda.config import Config, NonNegativeInt, PositiveInt, Probability, to_json
from legenda.decoding.generation import Decoder, GenerationConfig
from legenda.decoding.search import search
from legenda.errors import CheckpointError, DataError
from legenda.hub import CARD, upload_folder
from legenda.io import FORMAT_VERSION, write_json, write_text
from legenda.models.backbone import Backbone, BackboneConfig
from legenda.models.packing import PackedWeights, packed
from legenda.models.weights import save_weights
from legenda.regions import Memory, Regions, as_regions, first_regions, hide_regions
from legenda.run_folder import CONFIG, VOCABULARY
from legenda.runtime.settings import override
from legenda.text import Vocabulary
from legenda.text.vocabulary import TokenList

M = TypeVar("M", bound=nn.Module)
C = TypeVar("C", bound="ModelConfig")
V = TypeVar("V", bound=TokenList)
TokenFiles = Mapping[str, tuple[str, Callable[[Path], object]]]
"""The attributes of a model that a folder stores as files of their own: the name of the file, and what reads it."""


class ModelConfig(Config):
    """Options of every model.

    derived: the fields that follow from the data, which no recipe and no command line sets.
    """

    vocab_size: PositiveInt
    """Tokens of the vocabulary, special tokens included."""

    derived: ClassVar[tuple[str, ...]] = ("vocab_size", "feature_dim")

    def build(self) -> Model:
        """Return a new model with random weights, for models other than captioners."""
        raise NotImplementedError


class CaptionerConfig(ModelConfig):
    """Options of every captioner; a model's configuration adds others and builds encoder and decoder."""

    feature_dim: PositiveInt = 2048
    """Channels of a region feature."""
    backbone: BackboneConfig | None = None
    """The network that makes regions of images, where it is trained with the captioner."""
    dim: PositiveInt = 512
    """Channels inside the model."""
    max_regions: NonNegativeInt = 0
    """The first regions of an image that are read: 50 in X-Transformer's release and M2's; 0 reads all."""
    drop_region: Probability = 0.0
    """Probability of hiding each region in training; at least one of an image stays."""
    decoder: str | Mapping[str, object] | None = None
    """Another model whose decoder replaces this model's: its name, or {"name": ...} with options of that model."""

    generation: ClassVar[Mapping[str, object]] = {}
    """The options of generation in the release of the decoder that differ from the defaults."""

    paper_defaults: ClassVar[Mapping[str, object]] = {}
    """The defaults with variant="paper" that differ from the released ones, in models that have a `variant`."""

    @model_validator(mode="after")
    def _set_paper_defaults(self) -> CaptionerConfig:
        if getattr(self, "variant", None) == "paper":
            missing = self.paper_defaults.keys() - self.model_fields_set
            vars(self).update({name: self.paper_defaults[name] for name in missing})
        return self

    @property
    def memory_dim(self) -> int:
        """Channels of the encoder's output, which the decoder attends to."""
        return self.dim

    def build_encoder(self) -> Encoder:
        """Return a new encoder with random weights."""
        raise NotImplementedError

    def build_decoder(self) -> Decoder:
        """Return a new decoder with random weights."""
        raise NotImplementedError

    @property
    def generation_config(self) -> GenerationConfig:
        """The defaults of generation in the release of the decoder."""
        return GenerationConfig().replace(**self.generation)


class Encoder(nn.Module):
    """Map regions to the memory that decoders attend to, once per image for any number of rows."""

    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""

    def reset_parameters(self) -> None:
        """Initialize the parameters where PyTorch's defaults are not the model's; called after construction."""

    def with_default_boxes(self, regions: Regions) -> Regions:
        """Return the regions with boxes, where they have none and the encoder has a default for them."""
        return regions

    def remove_global_branch(self) -> None:
        """Delete the parameters of the global feature alone, for a decoder that does not read it."""

    def forward(self, regions: Regions) -> Memory:
        """Return states `(B, N, D)` and a global feature `(B, D)`.

        States of padding are finite, and values of padding in `regions` have no influence, NaN included.
        """
        raise NotImplementedError


class Model(nn.Module, Generic[C, V]):
    """A model of any task; C is the class of its configuration, V that of its vocabulary."""

    config: C
    name: str = ""
    """Its name in the registry."""
    vocabulary: V | None = None
    """None for a model that was created and not trained or loaded."""
    generation_config: GenerationConfig
    """The defaults of its search; a model that generates no tokens lacks the attribute."""
    inference_dtype: torch.dtype | None = None
    """The dtype of matrix products in `inference`, by autocast on GPUs and by packed weights on CPUs; None computes in
    the dtype of the weights."""
    needs_boxes: bool = False
    """Whether it reads the boxes of the regions."""
    token_files: ClassVar[TokenFiles] = {"vocabulary": (VOCABULARY, Vocabulary.load)}

    def save(self, folder: str | Path, **sections: object) -> Path:
        """Write config.json, model.safetensors and the vocabulary; `sections` are further parts of config.json."""
        folder = Path(folder)
        self.save_vocabulary(folder)  # first, because it may raise
        save_weights(self.state_dict(), folder)
        write_json(folder / CONFIG, {"format_version": FORMAT_VERSION, **sections, **self.describe()})
        return folder

    def push_to_hub(
        self, repo_id: str, *, config: Mapping[str, object] | None = None, card: str | None = None, **options: Any
    ) -> str:
        """Upload the model to USER/MODEL on Hugging Face's hub and return the address; `legenda.load` takes the name.

        config: further parts of config.json, such as `extractor`, the identity of the extractor of the features. card:
        the model card, in Markdown. options: commit_message, private, token, branch and create_pr, as in
        `PyTorchModelHubMixin`. Raise ConfigError where the upload fails.
        """
        default = f"---\nlibrary_name: legenda\n---\n\n# {repo_id}\n\n{self.name} of Legenda.\n"
        with TemporaryDirectory() as folder:
            write_text(self.save(folder, **(config or {})) / CARD, default if card is None else card)
            return upload_folder(Path(folder), repo_id, **options)

    def describe(self) -> dict[str, object]:
        """Return the parts of config.json that say what the model is.

        These are model, its name with its configuration; generation_config; and vocabulary, a digest of its
        `token_files` or null.
        """
        generation = (
            {"generation_config": to_json(self.generation_config)} if hasattr(self, "generation_config") else {}
        )
        model = {"name": self.name, **to_json(self.config)}
        return {"model": model, **generation, "vocabulary": self.vocabulary_digest()}

    def vocabulary_digest(self) -> str | None:
        """Return a digest of the content of `token_files`; None for a model without a vocabulary."""
        if self.vocabulary is None:
            return None
        with TemporaryDirectory() as folder:
            self.save_vocabulary(Path(folder))
            content = b"".join(Path(folder, file).read_bytes() for file, _ in self.token_files.values())
        return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"

    def save_vocabulary(self, folder: Path) -> None:
        """Write the vocabulary and the other `token_files` into a folder, atomically, where the model has them.

        Raise CheckpointError, and write nothing, where only some of them are set; such a folder could not be loaded.
        """
        missing = [name for name in self.token_files if getattr(self, name) is None]
        present = [name for name in self.token_files if name not in missing]
        if present and missing:
            raise CheckpointError(f"this model has model.{present[0]} but no model.{missing[0]}; set both, or neither")
        for name in present:
            getattr(self, name).save(folder / self.token_files[name][0])

    def load_vocabulary(self, folder: Path) -> None:
        """Read the files of `save_vocabulary`; raise an error naming a file that is missing or damaged."""
        for name, (file, load) in self.token_files.items():
            setattr(self, name, load(folder / file))

    def require_vocabulary(self) -> V:
        """Return the vocabulary; raise CheckpointError where the model was not loaded or trained with one."""
        if self.vocabulary is None:
            raise CheckpointError("this model has no vocabulary of tokens; set model.vocabulary, or train one")
        return self.vocabulary

    def check_regions(self, regions: Regions) -> None:
        """Raise DataError where the features have another width than the model's, or needed boxes are missing."""
        width, name = regions.features.shape[-1], self.name or "this model"
        if width != (expected := getattr(self.config, "feature_dim", width)):
            raise DataError(
                f"the features have {width} channels but {name} reads {expected}; use features of the "
                f"extractor it was trained with, or create it with feature_dim={width}"
            )
        if self.needs_boxes and regions.boxes is None:
            raise DataError(
                f"{name} needs boxes for its geometry; pass Regions(features, boxes) or choose a model without "
                "geometry, such as transformer or mcan"
            )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def can_pack(self) -> bool:
        """Whether `inference` may pack its weights on CPUs; those of compiled steps it may not."""
        return getattr(getattr(self, "decoder", None), "compiled_step", None) is None

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class Captioner(Model[CaptionerConfig, Vocabulary]):
    """A model from regions to captions: any encoder with any decoder of the same width."""

    backbone: Backbone | None
    encoder: Encoder
    decoder: Decoder

    def __init__(self, config: CaptionerConfig, decoder_config: CaptionerConfig | None = None) -> None:
        """Build encoder and decoder; decoder_config: of another family's decoder, where `config.decoder` is set."""
        super().__init__()
        self.config = config
        self.backbone = None if config.backbone is None else Backbone(config.backbone)
        self.encoder = config.build_encoder()
        self.decoder = (decoder_config or config).build_decoder()
        self.encoder.reset_parameters()
        self.decoder.reset_parameters()
        if not self.decoder.uses_global_feature:
            self.encoder.remove_global_branch()
        self.generation_config = (decoder_config or config).generation_config
        self.needs_boxes = self.encoder.needs_boxes

    def prepare(self, regions: Regions) -> Regions:
        """Return the regions that the encoder reads: the backbone's grid of pixels, or the first `max_regions`."""
        config, count = self.config.backbone, self.config.max_regions
        if self.backbone is not None and config is not None and regions.features.shape[1:] == (1, config.width):
            return self.backbone(regions)
        return first_regions(regions, count) if count and count < regions.features.shape[1] else regions

    def encode(self, regions: Regions | Tensor) -> Memory:
        """Return the memory of the images, computed once for any number of rows; a backbone reads pixels.

        A tensor `(B, N, D)` stands for regions without boxes. Raise DataError where the features have another width
        than the model's, or needed boxes are missing.
        """
        regions = self.encoder.with_default_boxes(self.prepare(as_regions(regions)))
        self.check_regions(regions)
        if self.training and self.config.drop_region:
            regions = hide_regions(regions, self.config.drop_region)
        return self.decoder.precompute_cross_kv(self.encoder(regions)).contiguous()

    def forward(
        self, regions: Regions | Tensor, tokens: Int[Tensor, "B K T"], real: Bool[Tensor, "B K T"] | None = None
    ) -> Float[Tensor, "*positions V"]:
        """Return the logits `(B, K, T, V)` after every prefix of K rows of tokens per image.

        Each row begins with bos_token_id. With `real`, which is False for the padding at the end of rows, the logits
        are those of the real positions alone, `(P, V)`, row by row.
        """
        if tokens.dim() != 3:
            raise DataError(
                "tokens need the shape (B, K, T), K captions of each image, "
                f"not {tuple(tokens.shape)}; for one caption of each image give tokens.unsqueeze(1)"
            )
        return self.decoder(tokens, self.encode(regions), real)

    def caption(self, regions: Regions | Tensor, **overrides: object) -> list[str]:
        """Return the best caption of each image, or with do_sample=True a sample, as text, in evaluation mode.

        overrides: fields of `generation_config`, such as beam_size=5, max_length=16 or must=["dog"]. Raise
        CheckpointError where the model has no vocabulary (it was created, not loaded or trained), and ConfigError for a
        wrong field.
        """
        vocabulary = self.require_vocabulary()
        config = override(self.generation_config, overrides, vocabulary)
        with inference(self) as model:
            output = search(model, as_regions(regions), config)
        return [vocabulary.decode(row[0].tolist()) for row in output.tokens]


class SelfSearchingCaptioner(Captioner):
    """A captioner whose own `generate` encodes and searches, in another library; it has no encoder and no decoder."""

    @property
    def can_pack(self) -> bool:
        """Whether weights are packed: the other library computes with its own."""
        return False

    def encode(self, regions: Any) -> Any:
        """Return the regions as they are; `generate` encodes them."""
        return regions


@contextmanager
def inference(model: M, weights: PackedWeights | None = None) -> Iterator[M]:
    """Run the block in evaluation mode and in the model's `inference_dtype`, with the model that the block predicts by.

    On CPUs that is a view with packed weights, on other devices the model itself under PyTorch's autocast. Everything
    that predicts enters this block, so captions are the same by every way, up to rounding and to the batches that are
    searched together.

    weights: keeps the packed copies for further searches. Packing takes as long as a short search gains by it, so that
    without `weights` the model itself predicts, unless it has an `inference_dtype`.
    """
    members = [part for part in (model, *getattr(model, "models", ())) if isinstance(part, Model)]  # of an ensemble
    dtype = next((part.inference_dtype for part in members if part.inference_dtype is not None), None)
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    autocasts = dtype is not None and device != "cpu"
    with eval_mode(model), torch.autocast(device, dtype=dtype) if autocasts else nullcontext():
        packs = device == "cpu" and (weights is not None or dtype is not None)
        if not packs or not all(part.can_pack for part in members):
            yield model
        else:
            yield packed(model, weights, dtype or torch.float32)


@contextmanager
def eval_mode(*models: nn.Module) -> Iterator[None]:
    """Run the block without dropout and without gradients; each submodule gets its mode back afterwards."""
    with train_mode(*models, training=False), torch.no_grad():
        yield


@contextmanager
def train_mode(*models: nn.Module, training: bool = True) -> Iterator[None]:
    """Run the block with dropout; each submodule gets its mode back afterwards."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    if all(mode == training for _, mode in modes):
        yield
        return
    for model in models:
        model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
