"""Search with models whose decoding step is compiled, and without; raise where results differ.

    python compiled_search.py BACKEND MODEL [MODEL ...]

A process of its own, as the annotations that tests check at every call cannot be compiled. BACKEND: of torch.compile.
"""

import sys
from copy import deepcopy

import torch
from torch import Tensor

import legenda
from legenda import Regions
from legenda.decoding import Ensemble, beam_search, sample
from legenda.models import Captioner


def main(backend: str, *names: str) -> None:
    """Compare the results of both for every model."""
    torch.manual_seed(0)
    regions = Regions(
        torch.randn(2, 4, 6), torch.rand(2, 4, 4).sort(dim=-1).values, torch.arange(4) < torch.tensor([[4], [2]])
    )
    models = []
    for name in names:
        model = legenda.create_model(name, vocab_size=9, feature_dim=6, dim=16, num_heads=2)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
        expected = search(model.eval(), regions)
        model.decoder.compile_step(backend=backend)
        compare(search(model, regions), expected)
        models.append(model)
    both, plain = Ensemble(models), Ensemble([deepcopy(model) for model in models])
    assert plain.decoder.compiled_step is None
    both.decoder.compile_step(backend=backend)
    compare(search(both, regions), search(plain, regions))


def compare(found: list[Tensor], expected: list[Tensor]) -> None:
    """Raise AssertionError where results differ."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def search(model: Captioner | Ensemble, regions: Regions) -> list[Tensor]:
    """Return the results of beam search and of sampling."""
    beams = beam_search(model, regions, beam_size=3, max_length=5, need_attention=True)
    groups = beam_search(model, regions, beam_size=4, num_beam_groups=2, max_length=5)
    part = beam_search(model, regions[:1], beam_size=3, max_length=5)
    samples = sample(model, regions, num_samples=2, max_length=5, generator=torch.Generator().manual_seed(0))
    assert beams.attention is not None
    return [
        beams.tokens, beams.scores, beams.attention, groups.tokens, part.scores, samples.tokens, samples.log_probs
    ]  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
