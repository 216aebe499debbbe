"""Several models as one."""

import pytest
import torch

import legenda
from legenda import UserError
from legenda.decoding import Ensemble, beam_search, greedy, sample

WORDS, FEATURES = 9, 6


def build(name="transformer", seed=0, words=WORDS):
    torch.manual_seed(seed)
    sizes = {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 16}
    model = legenda.create_model(name, vocab_size=words, feature_dim=FEATURES, **sizes)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.fixture
def regions(draw_regions):
    return draw_regions((4, 2), dim=FEATURES)


@torch.no_grad()
@pytest.mark.parametrize("mean", ["probabilities", "log_probabilities"])
def test_one_member_twice_is_that_member(regions, mean):
    model = build()
    alone, twice = (beam_search(one, regions, max_length=5) for one in (model, Ensemble([model, model], mean=mean)))
    assert torch.equal(alone.tokens, twice.tokens)
    torch.testing.assert_close(alone.scores, twice.scores, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_means_of_different_models_word_by_word(regions, weights):
    first, second = build(seed=1), build("aoanet", seed=2)
    tokens = torch.randint(WORDS, (2, 2, 4), generator=torch.Generator().manual_seed(0))
    said = torch.stack([model(regions, tokens).log_softmax(dim=-1) for model in (first, second)])
    shares = torch.tensor(weights or [1.0, 1.0])
    shares = (shares / shares.sum()).view(2, 1, 1, 1, 1)
    for mean, expected in {
        "probabilities": (said.exp() * shares).sum(dim=0).log(),
        "log_probabilities": (said * shares).sum(dim=0),
    }.items():
        both = Ensemble([first, second], weights=weights, mean=mean)
        memory = both.encode(regions)
        torch.testing.assert_close(both.decoder(tokens, memory), expected, atol=1e-5, rtol=0)
        state = both.decoder.start(memory, 2)
        for place in range(4):
            logits, state = both.decoder.step(tokens[..., place], state, memory)
            torch.testing.assert_close(logits, expected[:, :, place], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_static_cache_of_an_ensemble(regions, table_model):
    both = Ensemble([build(seed=1), build("mdsan", seed=2)])
    memory = both.encode(regions)
    growing, static = both.decoder.start(memory, 2), both.decoder.start_with_room(memory, 2, 4)
    for word in torch.randint(WORDS, (4, 2, 2), generator=torch.Generator().manual_seed(0)):
        expected, growing = both.decoder.step(word, growing, memory)
        found, static = both.decoder.step(word, static, memory)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        growing, static = (state.reorder(torch.tensor([[1, 0], [1, 1]])) for state in (growing, static))
    assert static.members[0].keys_values[0][0].shape[3] == 4
    table = table_model(4, 3, images=2)
    mixed = Ensemble([table, table])
    assert mixed.decoder.start_with_room(mixed.encode(table.regions), 2, 4) is None


@torch.no_grad()
def test_every_search_takes_an_ensemble(regions):
    both = Ensemble([build(seed=1), build("mdsan", seed=2)])
    assert greedy(both, regions, max_length=4).tokens.shape[:2] == (2, 1)
    assert sample(both, regions, rows=3, max_length=4).tokens.shape[:2] == (2, 3)
    whole = beam_search(both, regions, max_length=4)
    part = beam_search(both, both.encode(regions)[1:], max_length=4)
    torch.testing.assert_close(part.scores[0], whole.scores[1], atol=1e-5, rtol=0)


def test_members_that_do_not_belong_together():
    with pytest.raises(UserError, match="at least one model"):
        Ensemble([])
    with pytest.raises(UserError, match="same vocabulary"):
        Ensemble([build(), build(words=WORDS + 1)])
    with pytest.raises(UserError, match="as many weights above 0"):
        Ensemble([build(), build()], weights=[1.0])
