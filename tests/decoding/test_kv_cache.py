"""Keys and values of earlier tokens, in a cache that grows and in one of fixed capacity."""

import torch

from legenda.decoding.generation import append_kv


def test_a_growing_cache_appends_and_a_static_one_writes_at_its_length():
    cache, current = torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bfloat16)
    assert append_kv(cache, current.float(), 1, 3).tolist() == [[0, 0, 0, 1]] * 2
    updated = append_kv(cache, current, 1, torch.tensor(1))
    assert updated.tolist() == [[0, 1, 0]] * 2
    assert updated.dtype == torch.float32
    assert not cache.any()
