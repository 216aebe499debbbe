"""Models of videos, which read the order of the frames."""

import pytest
import torch

import legenda
from legenda import Regions
from legenda.models.layers import run_packed_lstm

SIZES = {"vocab_size": 7, "feature_dim": 5, "dim": 8, "num_heads": 2}
ORDERED = {
    "transformer": {"num_layers": 1, "ff_dim": 8, "ordered": True},
    "nsan": {"num_layers": 1, "ff_dim": 8, "ordered": True},
    "AoA decoder": {"num_layers": 0, "multi_head": False, "additive_dim": 8, "recurrent": True},
    "aoanet": {"num_layers": 1, "ff_dim": 8, "recurrent": True},
}


def create(name: str, **options) -> legenda.models.Captioner:
    return legenda.create_model("aoanet" if name == "AoA decoder" else name, **SIZES, **options)


def case(name: str) -> tuple[legenda.models.Captioner, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = create(name, **ORDERED[name]).eval()
    return model, torch.randn(2, 4, 5), torch.randint(1, 7, (2, 3, 5))


@pytest.mark.parametrize("name", ORDERED)
def test_the_order_of_frames_matters(name):
    model, frames, tokens = case(name)
    assert not torch.allclose(model(Regions(frames), tokens), model(Regions(frames.flip(1)), tokens), atol=1e-4)
    plain = create(name, **{k: v for k, v in ORDERED[name].items() if v is not True}).eval()
    logits = [plain(Regions(given), tokens) for given in (frames, frames.flip(1))]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ORDERED)
def test_padding_plays_no_part(name):
    model, frames, tokens = case(name)
    longer = torch.cat([frames, torch.full((2, 3, 5), float("nan"))], dim=1)
    mask = torch.arange(7).expand(2, 7) < 4
    padded = model(Regions(longer, mask=mask), tokens)
    torch.testing.assert_close(padded, model(Regions(frames), tokens), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ORDERED)
def test_a_step_is_what_all_positions_at_once_give(name):
    model, frames, tokens = case(name)
    memory = model.encode(Regions(frames))
    whole, state = model.decoder(tokens, memory), model.decoder.init_state(memory, 3)
    for place in range(5):
        logits, state = model.decoder.step(tokens[..., place], state, memory)
        torch.testing.assert_close(logits, whole[:, :, place], atol=1e-5, rtol=1e-4)


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
