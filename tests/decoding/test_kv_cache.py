"""Keys and values of earlier tokens, in a cache that grows and in one of fixed capacity."""

from dataclasses import replace

import pytest
import torch

import legenda
from legenda.decoding.generation import append_kv


def test_a_growing_cache_appends_and_a_static_one_writes_at_its_length():
    cache, current = torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bfloat16)
    assert append_kv(cache, current.float(), 1, 3).tolist() == [[0, 0, 0, 1]] * 2
    updated = append_kv(cache, current, 1, torch.tensor(1))
    assert updated.tolist() == [[0, 1, 0]] * 2
    assert updated.dtype == torch.float32
    assert not cache.any()


@pytest.mark.parametrize("name", ["transformer", "mdsan", "xtransformer"])
def test_a_static_cache_has_the_dtype_of_the_keys(name, draw_regions):
    """Under autocast, normalized states are float32 and keys and values bfloat16."""
    fields = {"dim": 16, "num_heads": 2, "num_layers": 1, "decoder_layers": 1, "ff_dim": 16, "mid_dim": 4}
    known = legenda.models.describe_model(name).config.model_fields
    sizes = {key: size for key, size in fields.items() if key in known}
    model = legenda.create_model(name, vocab_size=9, feature_dim=6, **sizes).eval()
    memory = model.encode(draw_regions((5, 3), dim=6))
    half = replace(memory, cross_kv=tuple((k.bfloat16(), v.bfloat16()) for k, v in memory.cross_kv))
    state = model.decoder.init_static_state(half, 2, 4)
    assert {part.dtype for pair in state.kv_cache for part in pair} == {torch.bfloat16}
