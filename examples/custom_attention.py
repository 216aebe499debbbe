r"""Register an attention of your own, train a small captioner with it on drawn scenes, and evaluate it.

    python examples/custom_attention.py runs/cosine

On the command line, this file is a plugin:

    legenda train scenes.transformer --plugin examples/custom_attention.py model.attention=cosine \
        --out runs/cosine
    legenda evaluate runs/cosine --plugin examples/custom_attention.py
"""

from pathlib import Path

import torch
import tyro
from torch import nn
from torch.nn import functional as F

import legenda
from legenda.attention import AttentionOutput
from legenda.config import to_json
from legenda.data.captions import ScenesData
from legenda.tasks import Captioning
from legenda.training import Constant, TrainingConfig, train


class CosineAttention(nn.Module):
    """Attention by cosine similarity with a learned temperature for each head."""

    def __init__(self, dim, num_heads, dropout):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.output = nn.Linear(dim, dim)
        self.log_scale = nn.Parameter(torch.zeros(num_heads, 1, 1))

    def forward(self, query, key, value, mask=None, geometry=None, *, need_weights=False):
        """Return the attended values (B, N, D) and the weights (B, H, N, N)."""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, N, d)
            for layer, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 10 * self.log_scale.exp()
        if mask is not None:  # (B, N), True where a region is real
            scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        values = F.dropout(weights, self.dropout, self.training) @ v
        return AttentionOutput(self.output(values.transpose(1, 2).flatten(2)), weights)


@legenda.register_attention("cosine")
def create_cosine(options, dim, num_heads, *, dropout, **_):
    """Return the attention that the option attention="cosine" names."""
    return CosineAttention(dim, num_heads, dropout)


def main(folder: Path, scenes: int = 200, epochs: int = 3) -> float:
    """Train for a few seconds; return the best validation score."""
    data = ScenesData(train=scenes, validation=20)
    task = Captioning(data.open(print))
    training = TrainingConfig(epochs=epochs, batch_size=20, captions_per_image=1, schedule=Constant(learning_rate=3e-3))
    options = {"attention": "cosine", "dim": 32, "num_heads": 2, "num_layers": 1, "ff_dim": 64, "dropout": 0.0}
    result = train("transformer", options, task, (training,), folder, sections={"data": to_json(data, folder)})
    print(f"{folder}: {training.monitor} {result.best:.3f} after epoch {result.best_epoch}")
    return result.best


if __name__ == "__main__":
    tyro.cli(main, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
