"""The environments of parallel processes."""

import os


def process_environments(processes: int | None) -> list[dict[str, str]]:
    """Return the environment variables of each parallel process: a CUDA device each, or a share of the cores."""
    import torch

    count = torch.cuda.device_count()
    if count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = visible.split(",") if visible else [str(device) for device in range(count)]
        return [{"CUDA_VISIBLE_DEVICES": devices[index % count]} for index in range(processes or count)]
    if "OMP_NUM_THREADS" in os.environ:
        return [{}] * (processes or 1)
    return [{"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // (processes or 1)))}] * (processes or 1)
