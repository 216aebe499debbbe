"""The LSTM of models of videos; the laws of all models are those of these models too."""

import pytest
import torch

import legenda
from legenda.errors import ConfigError
from legenda.models.layers import run_packed_lstm


def test_frames_are_read_both_ways():
    """Each frame has half of its channels from the frames up to it and half from those after it."""
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(3, 2, batch_first=True, bidirectional=True)
    frames, mask = torch.randn(1, 4, 3), torch.tensor([[True, True, True, False]])
    read = run_packed_lstm(lstm, frames, mask)
    torch.testing.assert_close(read[:, :3], lstm(frames[:, :3])[0])
    assert not read[:, 3].any()
    changed = frames.clone()
    changed[:, 2] += 1
    again = run_packed_lstm(lstm, changed, mask)
    assert torch.equal(read[:, :2, :2], again[:, :2, :2])
    assert not torch.allclose(read[:, :2, 2:], again[:, :2, 2:])


def test_frames_are_not_dropped():
    with pytest.raises(ConfigError, match="drop_region"):
        legenda.create_model("aoanet", vocab_size=9, dim=16, num_heads=2, recurrent=True, drop_region=0.1)
