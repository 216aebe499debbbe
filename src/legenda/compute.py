"""Options of what runs a model: device, precision and compilation."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from legenda.config import Config, Precision
from legenda.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["ComputeOptions", "RunOptions"]

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
        if re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]?))?|mps", self.device) is None:
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
        if device.type == "cpu" and self.precision == "bf16" and not has_bf16():
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

    def check_exported(self, folder: Path) -> None:
        """Raise ConfigError for a device, a precision or a compiled step, which an exported model does not have."""
        for name, plain in (("device", ("auto", "cpu")), ("precision", ("float32",)), ("compile", (False,))):
            if getattr(self, name) not in plain:
                raise ConfigError(
                    f"{folder} is an exported model, which computes in float32 on the CPU; leave {name} out, or name "
                    "the run"
                )

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


def count_cuda_devices() -> int:
    """Return the number of CUDA devices; 0 where PyTorch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def has_bf16() -> bool:
    """Return whether oneDNN multiplies bfloat16 on this CPU."""
    import torch

    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


AUTO, CPU = ComputeOptions(), RunOptions(device="cpu")
