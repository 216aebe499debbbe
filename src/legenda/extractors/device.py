"""The device that extractors run on."""

import torch


def best_device() -> torch.device:
    """Return CUDA or MPS if available, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
