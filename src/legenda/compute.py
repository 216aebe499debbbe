"""Options of all commands that run a model: device, precision, compilation and search."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from legenda.config import Config, Count, NonNegativeFloat, NonNegativeInt, PositiveFraction, PositiveInt
from legenda.errors import ConfigError

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bf16", "fp16"]
_OF_SAMPLING, _OF_BEAMS = ("top_k", "top_p", "trigram_penalty", "seed"), ("num_beam_groups", "length_penalty", "must")
_DTYPES = {"float32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class ComputeOptions(Config):
    """A device and a precision; torch is imported when they are used.

    Raise ConfigError for a name that no machine has.
    """

    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; auto is CUDA if there is such a device, else MPS, else the CPU."""
    precision: Precision = "float32"
    """float32, bf16 or fp16, of models by PyTorch's autocast on GPUs and by packed weights on CPUs."""

    @model_validator(mode="after")
    def _check_compute(self) -> Self:
        if re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", self.device) is None:
            raise ConfigError(f"device must be auto, cpu, cuda, cuda:N or mps, not {self.device!r}")
        return self

    def resolve(self) -> torch.device:
        """Return the device; raise ConfigError where this machine does not have it."""
        import torch

        count, has_mps = torch.cuda.device_count(), torch.backends.mps.is_available()
        if self.device == "auto":
            return torch.device("cuda" if count else "mps" if has_mps else "cpu")
        device = torch.device(self.device)
        if (device.type == "cuda" and (device.index or 0) >= count) or (device.type == "mps" and not has_mps):
            available = f"{count} CUDA devices" if device.type == "cuda" else "no MPS device"
            raise ConfigError(f"the device {device} does not exist, PyTorch finds {available}; choose auto or cpu")
        return device

    def resolve_for_models(self) -> torch.device:
        """Return the device; raise ConfigError where it does not exist or lacks operators for the precision."""
        device = self.resolve()
        if device.type == "cpu" and self.precision == "bf16" and not _has_bf16():
            raise ConfigError(
                "bf16 on the CPU takes oneDNN and AVX-512 or the like, which are not here; choose float32"
            )
        if device.type == "cpu" and self.precision == "fp16":
            raise ConfigError("models cannot compute in fp16 on the CPU; choose bf16 or float32")
        return device

    def check_count(self, devices: int) -> None:
        """Raise ConfigError where this machine has fewer devices of the kind; each is a process."""
        import torch

        available = torch.cuda.device_count() if self.resolve().type == "cuda" else max(2, os.cpu_count() or 1)
        if devices > available:
            raise ConfigError(f"--devices is {devices}, but this machine has {available}; ask for fewer")

    def apply(self, model: Any) -> None:
        """Move a model to the device; `legenda.models.base.inference` computes in the precision."""
        import torch

        model.to(self.resolve_for_models())
        model.inference_dtype = None if self.precision == "float32" else getattr(torch, _DTYPES[self.precision])

    def autocast(self) -> AbstractContextManager[Any]:
        """Return PyTorch's autocast to the precision on the device."""
        import torch

        dtype = getattr(torch, _DTYPES[self.precision])
        return torch.autocast(self.resolve().type, dtype=dtype, enabled=self.precision != "float32")


class RunOptions(ComputeOptions):
    """How commands load a run: also which extractors they take, and whether they compile its step."""

    ignore_extractor_mismatch: bool = False
    """Only warn where the features are not of the extractor of the training."""
    allow_download: bool = False
    """Fetch the extractor that a run names where this machine does not have it."""
    compile: bool = False
    """Compile the decoding step with torch.compile; it pays on GPUs and for many images, as compiling takes minutes."""

    def apply(self, model: Any) -> None:
        """Move a model to the device in the precision and compile its decoding step.

        Raise ConfigError where it has none, and for bf16 on a CPU, whose packed weights are not compiled.
        """
        super().apply(model)
        if self.compile:
            compile_step = getattr(getattr(model, "decoder", None), "compile_step", None)
            if compile_step is None:
                raise ConfigError(f"{model.name} generates no text, so it has no step to compile; leave compile out")
            if self.precision == "bf16" and self.resolve().type == "cpu":
                raise ConfigError("compiled steps compute in float32 on the CPU; leave compile or bf16 out")
            compile_step()


class SearchOptions(Config):
    """How captions are searched for; options that are None are those of the model's generation config.

    Raise ConfigError for a value out of range, and for an option of sampling without do_sample or of beams with it.
    """

    beam_size: Count = 3
    """Number of beams."""
    max_length: Count | None = None
    """Most tokens of a caption, its end included."""
    length_penalty: NonNegativeFloat | None = None
    """Exponent p of the number of tokens n by which scores of beams are divided: n**p, or as the model normalizes."""
    do_sample: bool = False
    """Draw the tokens at random instead of beam search."""
    temperature: Annotated[float, Field(ge=1e-6, le=2.0**63)] = 1.0
    """Divides the log-probabilities; in beam search all but those of the first token."""
    top_k: PositiveInt | None = None
    """Sample from the k likeliest tokens."""
    top_p: PositiveFraction | None = None
    """Sample from the fewest tokens whose probabilities reach p."""
    seed: NonNegativeInt = 0
    """Seed of the sampling."""
    num_beam_groups: PositiveInt = 1
    """Groups of diverse beam search, which divide the beam size."""
    diversity_penalty: NonNegativeFloat = 0.5
    """What a token loses for each time that earlier groups have chosen it at the same position."""
    no_repeat_ngram_size: NonNegativeInt | None = None
    """Never generate an n-gram of this size twice: 3 blocks repeated trigrams, 0 allows all."""
    trigram_penalty: NonNegativeFloat | None = None
    """Subtracted from the log-probability of a sampled token for each earlier occurrence of its trigram."""
    forbidden_last_words: tuple[str, ...] | None = None
    """Words that no caption ends with, such as a, the and of."""
    must: tuple[str, ...] | None = None
    """Words that occur in every caption; a|b is one of several."""

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        names, remedy = (
            (_OF_BEAMS, "is for beam search; leave it or --do-sample out")
            if self.do_sample
            else (_OF_SAMPLING, "is for sampling; add --do-sample or leave it out")
        )
        for name in names:
            if getattr(self, name) != SearchOptions.model_fields[name].default:
                raise ConfigError(f"--{name.replace('_', '-')} {remedy}")
        if self.beam_size % self.num_beam_groups:
            raise ConfigError(
                f"num_beam_groups must divide the beam size {self.beam_size}, {self.num_beam_groups} does not"
            )
        return self

    def check_captions(self, num_captions: int) -> None:
        """Raise ConfigError for more captions of an image than beams, and for none."""
        if num_captions < 1 or (num_captions > self.beam_size and not self.do_sample):
            raise ConfigError(f"num_captions must lie between 1 and beam_size={self.beam_size}, not {num_captions}")

    def describe(self) -> str:
        """Return the kind of search in a few words."""
        return f"samples of seed {self.seed}" if self.do_sample else f"beam {self.beam_size}"

    def select(self) -> SearchOptions:
        """Return these options alone, where the object holds others too."""
        return SearchOptions(**{name: getattr(self, name) for name in SearchOptions.model_fields})


_threads: list[int] = []
"""The threads that `set_num_threads` has set, in the last place."""


def get_num_threads() -> int:
    """Return the threads of an operation: PyTorch's where it is imported, else as many as were set.

    By default OMP_NUM_THREADS, as in PyTorch, or the CPUs that this process may use.
    """
    if torch := sys.modules.get("torch"):
        return torch.get_num_threads()
    if _threads:
        return _threads[-1]
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Set the threads of an operation, of sessions of ONNX Runtime that are opened later and of PyTorch."""
    _threads[:] = [count]
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def count_cuda_devices() -> int:
    """Return the number of CUDA devices; 0 where PyTorch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _has_bf16() -> bool:
    """Return whether oneDNN multiplies bfloat16 on this CPU."""
    import torch

    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


AUTO, CPU = ComputeOptions(), RunOptions(device="cpu")
