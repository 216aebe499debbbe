"""Ensembles of models."""

import pytest
import torch

from legenda.decoding import Ensemble, beam_search
from legenda.errors import ConfigError

VOCAB_SIZE = 9


@torch.no_grad()
@pytest.mark.parametrize("mean", ["probabilities", "log_probabilities"])
def test_one_member_twice_is_that_member(build, regions, mean):
    model = build()
    alone, twice = (beam_search(one, regions, max_length=5) for one in (model, Ensemble([model, model], mean=mean)))
    assert torch.equal(alone.tokens, twice.tokens)
    torch.testing.assert_close(alone.scores, twice.scores, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_means_of_two_models_at_every_step(build, regions, weights):
    first, second = build(seed=1), build("aoanet", seed=2)
    tokens = torch.randint(VOCAB_SIZE, (2, 2, 4), generator=torch.Generator().manual_seed(0))
    log_probs = torch.stack([model(regions, tokens).log_softmax(dim=-1) for model in (first, second)])
    weights_of_members = torch.tensor(weights or [1.0, 1.0])
    weights_of_members = (weights_of_members / weights_of_members.sum()).view(2, 1, 1, 1, 1)
    for mean, expected in {
        "probabilities": (log_probs.exp() * weights_of_members).sum(dim=0).log(),
        "log_probabilities": (log_probs * weights_of_members).sum(dim=0),
    }.items():
        both = Ensemble([first, second], weights=weights, mean=mean)
        memory = both.encode(regions)
        torch.testing.assert_close(both.decoder(tokens, memory), expected, atol=1e-5, rtol=0)
        state = both.decoder.init_state(memory, 2)
        for position in range(4):
            logits, state = both.decoder.step(tokens[..., position], state, memory)
            torch.testing.assert_close(logits, expected[:, :, position], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_static_cache_of_an_ensemble(build, regions, table_model):
    both = Ensemble([build(seed=1), build("mdsan", seed=2)])
    memory = both.encode(regions)
    growing, static = both.decoder.init_state(memory, 2), both.decoder.init_static_state(memory, 2, 4)
    for tokens in torch.randint(VOCAB_SIZE, (4, 2, 2), generator=torch.Generator().manual_seed(0)):
        expected, growing = both.decoder.step(tokens, growing, memory)
        logits, static = both.decoder.step(tokens, static, memory)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
        growing, static = (state.reorder(torch.tensor([[1, 0], [1, 1]])) for state in (growing, static))
    assert static.members[0].kv_cache[0][0].shape[3] == 4
    table = table_model(4, 3, images=2)
    mixed = Ensemble([table, table])
    assert mixed.decoder.init_static_state(mixed.encode(table.regions), 2, 4) is None


def test_members_that_do_not_match(build):
    with pytest.raises(ConfigError, match="one model"):
        Ensemble([])
    with pytest.raises(ConfigError, match="vocabulary"):
        Ensemble([build(), build(vocab_size=VOCAB_SIZE + 1)])
    for weights in ([1.0], [1.0, 0.0], [1.0, float("nan")], [float("inf"), 1.0]):
        with pytest.raises(ConfigError, match="weights"):
            Ensemble([build(), build()], weights=weights)
