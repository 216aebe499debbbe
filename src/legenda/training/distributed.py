"""Training on several devices: their shares of a step, sharding and gathering of weights.

torch's distributed modules take seconds to import and are imported where they are used; sharded tensors and modules are
recognized by their methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from legenda.errors import ConfigError

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import MixedPrecision
    from torch.distributed.device_mesh import DeviceMesh

    from legenda.compute import Precision
    from legenda.training.config import TrainingConfig

T = TypeVar("T")
_MOST_NAMES = 6
"""Parameters that a message names."""


def describe_idle_devices(config: TrainingConfig, world_size: int) -> str | None:
    """Return the sentence that warns of devices without examples in a part of each step, or None."""
    num_chunks = min(config.gradient_accumulation_steps, -(-config.batch_size // world_size))
    total = num_chunks * world_size
    if config.batch_size >= total:
        return None
    parts = f" in {num_chunks} accumulation steps" if num_chunks > 1 else ""
    empty = total - config.batch_size
    return (
        f"batch_size {config.batch_size} is the total over {world_size} devices{parts}, so {empty} of "
        f"{total} shares of each step are empty and their devices wait; use a batch_size of {total} or fewer devices"
    )


def stage_precision(device: str) -> MixedPrecision:
    """Return Fabric's plugin for the precision of a stage: float32 until its `use(precision)` is called.

    Fabric rounds every floating-point tensor of a batch to half precision; boxes and targets need float32, and autocast
    converts the inputs of the operations that compute in half precision. A gradient scaler is kept while the precision
    stays fp16.
    """
    from lightning_fabric.plugins import MixedPrecision

    class StagePrecision(MixedPrecision):
        stage_precision: Precision = "float32"

        def use(self, precision: Precision) -> None:
            if precision == self.stage_precision:
                return
            self.stage_precision = precision
            self.scaler = torch.amp.GradScaler(device) if precision == "fp16" else None

        def forward_context(self) -> AbstractContextManager[object]:
            if self.stage_precision == "float32":
                return nullcontext()
            return torch.autocast(device, dtype=torch.bfloat16 if self.stage_precision == "bf16" else torch.float16)

        def convert_input(self, data: object) -> object:
            return data

        def convert_output(self, data: object) -> object:
            return data if self.stage_precision == "float32" else super().convert_output(data)

    return StagePrecision("bf16-mixed", device)


def shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard weights, gradients and optimizer states over the devices of the mesh.

    All weights are one group: they are gathered on every device from the forward pass to the end of the backward pass,
    so memory is saved on gradients and optimizer states, and between steps.
    """
    from torch.distributed.fsdp import fully_shard

    fully_shard(module, mesh=mesh["data_parallel"], reshard_after_forward=False)
    return module


def all_gather(value: T) -> list[T]:
    """Return the picklable values of all processes, in the order of their ranks; of this one without a launch."""
    if not torch.distributed.is_initialized():
        return [value]
    gathered: list = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, value)
    return gathered


def check_gradients(model: nn.Module) -> None:
    """Raise ConfigError, on all processes, where the last backward pass of any of them gave a parameter no gradient.

    The gradients of such a step are not those of all devices, and PyTorch refuses the next step.
    """
    own = [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]
    unused = list(dict.fromkeys(name for names in all_gather(own) for name in names))
    if unused:
        shown, rest = unused[:_MOST_NAMES], len(unused) - _MOST_NAMES
        raise ConfigError(
            f"the loss does not depend on {', '.join(shown)}{f' and {rest} others' if rest > 0 else ''}, but several "
            "devices need a gradient of every parameter; remove what is not used, or train with --devices 1"
        )


def all_reduce_sum(fabric: Fabric, values: Tensor) -> Tensor:
    """Return the sum of the values of all processes, on the CPU."""
    if fabric.world_size == 1:
        return values
    return cast(Tensor, fabric.all_reduce(values.to(fabric.device), reduce_op="sum")).cpu()


def full_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return unsharded tensors; a collective operation, which all devices must call."""
    return {name: full_tensor(tensor) for name, tensor in tensors.items()}


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor unsharded; a collective operation, which all devices must call."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(reference: Tensor, tensor: Tensor) -> Tensor:
    """Shard a full tensor as `reference`; return it as it is where that is not sharded or has another shape."""
    if not hasattr(reference, "full_tensor") or reference.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(reference, DTensor)
    return distribute_tensor(tensor.to(reference.device), reference.device_mesh, reference.placements)


@contextmanager
def unsharded_params(module: Any) -> Iterator[None]:
    """Gather the module's weights for the block, for use outside its forward pass."""
    if not hasattr(module, "unshard"):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()
