"""AoANet's decoders of Figure 7."""

import dataclasses

import pytest
import torch

import legenda
from legenda.errors import DataError


@torch.no_grad()
@pytest.mark.parametrize("multi_head", [True, False])
def test_the_base_decoder_as_printed_has_a_linear_context_and_as_released_a_relu(draw_regions, multi_head):
    """Section 4.4 and Figure 7 (a), and the release's code."""
    sizes = {"vocab_size": 11, "feature_dim": 6, "dim": 16, "num_heads": 2, "num_layers": 0, "additive_dim": 8}
    regions, tokens = draw_regions((5, 3), dim=6), torch.tensor([[2], [3]])
    for variant in ("paper", "released"):
        torch.manual_seed(0)
        options = {"context": "linear", "multi_head": multi_head, "variant": variant}
        model = legenda.create_model("aoanet", **sizes, **options).eval()
        memory = model.encode(regions)
        _, state = model.decoder.step(tokens, model.decoder.init_state(memory, 1), memory)
        values = state.attention.squeeze(1) @ memory.states
        if multi_head:
            values = model.decoder.attention.value(memory.states).unflatten(-1, (2, 8)).transpose(1, 2)
            values = (state.attention.squeeze(1).unsqueeze(2) @ values).flatten(1).unsqueeze(1)
        expected = model.decoder.linear(torch.cat([values, state.hidden], dim=-1))
        assert (expected < 0).any()
        torch.testing.assert_close(state.context, expected if variant == "paper" else expected.relu())


def test_a_global_feature_of_another_width_is_refused(draw_regions):
    sizes = {"vocab_size": 9, "feature_dim": 6, "dim": 8, "num_heads": 2, "num_layers": 1}
    regions = dataclasses.replace(draw_regions((3, 2), dim=6), global_feature=torch.zeros(2, 5))
    with pytest.raises(DataError, match="5 channels"):
        legenda.create_model("aoanet", mean_feats=False, **sizes).encode(regions)
    legenda.create_model("aoanet", **sizes).encode(regions)  # reads none


@pytest.mark.parametrize("options", [{"head_dim": 6}, {"query_head_dim": 6}, {"attention_heads": 4, "head_dim": 3}])
def test_the_refiner_as_printed_takes_heads_of_any_width(draw_regions, options):
    """Its gate reads the projected query, which is as wide as the heads together (Eq. 6)."""
    sizes = {"vocab_size": 9, "feature_dim": 6, "dim": 8, "num_heads": 2, "num_layers": 1}
    model = legenda.create_model("aoanet", variant="paper", **sizes, **options)
    assert model.encode(draw_regions((3, 2), dim=6)).states.shape == (2, 3, 8)
