"""Search with models whose decoding step is compiled, and without; raise where results differ.

    python compiled_search.py BACKEND MODEL [MODEL ...]

A process of its own, as the annotations that tests check at every call cannot be compiled. BACKEND: of torch.compile.
"""

import sys

import torch
from torch import Tensor

import legenda
from legenda import Regions
from legenda.decoding import beam_search, sample
from legenda.models import Captioner


def main(backend: str, *names: str) -> None:
    """Compare the results of both for every model."""
    torch.manual_seed(0)
    regions = Regions(
        torch.randn(2, 4, 6), torch.rand(2, 4, 4).sort(dim=-1).values, torch.arange(4) < torch.tensor([[4], [2]])
    )
    for name in names:
        model = legenda.create_model(name, vocab_size=9, feature_dim=6, dim=16, num_heads=2)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
        expected = search(model.eval(), regions)
        model.decoder.compile_step(backend=backend)
        for found, other in zip(search(model, regions), expected, strict=True):
            torch.testing.assert_close(found, other, atol=1e-5, rtol=1e-5)


def search(model: Captioner, regions: Regions) -> list[Tensor]:
    """Return the results of beam search and of sampling."""
    beams = beam_search(model, regions, beam_size=3, max_length=5, need_attention=True)
    samples = sample(model, regions, num_samples=2, max_length=5, generator=torch.Generator().manual_seed(0))
    assert beams.attention is not None
    return [beams.tokens, beams.scores, beams.attention, samples.tokens, samples.log_probs]


if __name__ == "__main__":
    main(*sys.argv[1:])
