"""What training minimises."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

PADDING = -1


def cross_entropy(
    logits: Float[Tensor, "B K T V"], targets: Int[Tensor, "B K T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean negative log-probability of the target words, in nats per word; targets of -1 do not count.

    With label_smoothing e, a share e of each target is spread evenly over the vocabulary (Szegedy et al., 2016).
    """
    return F.cross_entropy(
        logits.flatten(0, -2).float(), targets.flatten(), ignore_index=PADDING, label_smoothing=label_smoothing
    )
