"""Weights that lie in shares on several devices (fully sharded data parallel), and how they are put together.

torch's parts for it take seconds to import, so they are imported where something is shared out, and what is in shares
is told by what it can do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shard(module: nn.Module, mesh: DeviceMesh) -> Any:
    """Shares weights, gradients and the optimiser's numbers out among the devices of the mesh.

    All weights make one group: they are whole on every device from the beginning of a pass to the end of its backward
    pass, so that memory is saved on gradients and on the optimiser's numbers, and between the steps.
    """
    from torch.distributed.fsdp import fully_shard

    return fully_shard(module, mesh=mesh["data_parallel"], reshard_after_forward=False)


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same with every tensor whole; all devices must call it at the same time."""
    return {name: whole(tensor) for name, tensor in tensors.items()}


def whole(tensor: Any) -> Tensor:
    """The same tensor whole; all devices must call it at the same time."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shared_like(own: Any, tensor: Tensor) -> Tensor:
    """A whole tensor shared out as `own` of the same shape is; as it is where that is whole, or of another shape."""
    if not hasattr(own, "full_tensor") or own.shape != tensor.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements)


@contextmanager
def whole_weights(module: Any) -> Iterator[None]:
    """The module's weights are whole in this block, for what is not its own forward pass."""
    if not hasattr(module, "unshard"):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()
