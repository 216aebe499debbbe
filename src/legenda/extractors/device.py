"""Where extractors compute."""

import torch


def best_device() -> torch.device:
    """CUDA or Apple's processor where there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
