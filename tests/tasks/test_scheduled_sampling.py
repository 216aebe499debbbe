"""Words of the given caption and words of the model, mixed."""

import pytest
import torch

import legenda
from legenda import Regions
from legenda.tasks.objectives import apply_scheduled_sampling

V, T = 6, 5


def case(name: str, rows: int):
    torch.manual_seed(0)
    sizes = {"dim": 8, "num_heads": 2}
    model = legenda.create_model(name, vocab_size=V, feature_dim=3, **sizes).eval()
    inputs = torch.randint(1, V, (2, rows, T))
    inputs[..., 0] = 0
    return model, model.encode(Regions(torch.randn(2, 4, 3))), inputs


@pytest.mark.parametrize("name", ["transformer", "aoanet", "xlan"])
def test_the_first_word_stays_and_a_share_of_the_others_is_replaced(name):
    model, memory, inputs = case(name, 400)
    assert torch.equal(apply_scheduled_sampling(model, memory, inputs, 0.0), inputs)
    before = inputs.clone()
    mixed = apply_scheduled_sampling(model, memory, inputs, 0.5)
    assert torch.equal(inputs, before)
    assert torch.equal(mixed[..., 0], inputs[..., 0])
    other = (mixed != inputs)[..., 1:].float().mean().item()
    assert 0.3 < other < 0.5  # half of them, of which some are drawn as they were


def test_draws_follow_the_model_after_the_words_drawn_before():
    """With all words replaced, rows are samples of the model: so are pairs of words as likely as it says."""
    model, memory, inputs = case("transformer", 4000)
    mixed = apply_scheduled_sampling(model, memory[:1], inputs[:1, :, :3], 1.0)
    with torch.no_grad():
        first = model.decoder(torch.zeros(2, 1, 1, dtype=torch.long), memory)[0, 0, 0].softmax(dim=-1)
        pairs = torch.stack([torch.zeros(V, dtype=torch.long), torch.arange(V)], dim=-1).expand(2, V, 2)
        second = model.decoder(pairs, memory)[0, :, 1].softmax(dim=-1)
    expected = first.unsqueeze(1) * second
    drawn = torch.zeros(V, V)
    for one, other in mixed[0, :, 1:3].tolist():
        drawn[one, other] += 1 / 4000
    torch.testing.assert_close(drawn, expected, atol=0.03, rtol=0)
