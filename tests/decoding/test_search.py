"""Search with the options of the command line."""

import itertools

import pytest
import torch
from test_generation_options import sequences_of

from legenda.decoding import beam_search, greedy
from legenda.decoding.search import search
from legenda.errors import ConfigError
from legenda.runtime.settings import GenerationConfig, check_overrides, override
from legenda.text import Vocabulary

EOS = 0
WORDS = Vocabulary(("<end>", "a", "dog"))


def run(model, **options):
    count = options.pop("num_captions", 1)
    config = override(model.generation_config, options, WORDS)
    return search(model, model.regions, config, num_captions=count, need_attention=True)


def test_samples_have_a_seed_and_top_k_1_is_greedy(table_model):
    model = table_model(vocab_size=3, max_length=4, images=3)
    first, again, other = (run(model, do_sample=True, num_captions=4, seed=seed).tokens for seed in (1, 1, 2))
    assert first.shape[:2] == (3, 4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(run(model, do_sample=True, top_k=1).tokens, greedy(model, model.regions).tokens)


def test_the_best_of_all_groups_comes_first(table_model):
    model = table_model(vocab_size=3, max_length=4, images=6, seed=2)
    groups = {"beam_size": 4, "num_beam_groups": 2, "diversity_penalty": 0.1}
    grouped = beam_search(model, model.regions, need_attention=True, **groups)
    assert (grouped.scores[:, 2] > grouped.scores[:, 1]).any()
    output = run(model, num_captions=4, **groups)
    assert torch.equal(output.scores, grouped.scores.sort(dim=1, descending=True).values)
    assert torch.equal(output.log_probs.sum(-1).sort().values, grouped.log_probs.sum(-1).sort().values)
    assert torch.equal(run(model, **groups).scores, output.scores[:, :1])
    row = int(grouped.scores[0].argmax())
    assert torch.equal(output.attention[0, 0], grouped.attention[0, row])


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4}, {"do_sample": True, "seed": 3}])
@pytest.mark.parametrize("size", [2, 3])
def test_no_ngram_is_repeated(table_model, options, size):
    model = table_model(vocab_size=3, max_length=9, images=4, seed=4, scale=0.1)
    model.decoder.logits[..., EOS] -= 2

    def has_repeats(output) -> bool:
        rows = [row for image in range(4) for row in sequences_of(output, image)]
        ngrams = [list(zip(*(row[i:] for i in range(size)), strict=False)) for row in rows]
        return any(a == b for found in ngrams for a, b in itertools.combinations(found, 2))

    assert has_repeats(run(model, **options))
    assert not has_repeats(run(model, no_repeat_ngram_size=size, **options))


def test_forbidden_last_words(table_model):
    model = table_model(vocab_size=3, max_length=5, images=4, seed=3)
    endings = [row[-2:] for image in range(4) for row in sequences_of(run(model), image)]
    assert (1, EOS) in endings
    output = run(model, forbidden_last_words=("a",))
    assert not any(row[-2:] == (1, EOS) for image in range(4) for row in sequences_of(output, image))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 1.5}, "top.p must be"),
        ({"num_beam_groups": 2}, "num_beam_groups must divide the beam size 3, 2 does not"),
        ({"top_k": 5}, "--top-k is for sampling; add --do-sample or leave it out"),
        ({"do_sample": True, "num_beam_groups": 3}, "--num-beam-groups is for beam search"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(ConfigError, match=message):
        check_overrides(options)


def test_lists_are_taken_for_tuples_and_the_model_keeps_what_is_not_set():
    own = GenerationConfig(length_penalty=0.7)
    config = override(own, {"must": ["dog"], "forbidden_last_words": ["a"], "beam_size": 4, "top_k": None}, WORDS)
    assert (config.required_tokens, config.forbidden_last_tokens) == (((2,),), (1,))
    assert (config.beam_size, config.length_penalty, config.must) == (4, 0.7, None)
