"""Constrained beam search against the enumeration of all sequences, and the option --must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.data.captions import ScenesData
from legenda.decoding import beam_search
from legenda.errors import ConfigError
from legenda.tasks.base import set_vocabulary
from legenda.text import Vocabulary

EOS = 0
ALL = 1 + 3 + 9 + 27 + 81
SETS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True).map(tuple), min_size=1, max_size=3)


def satisfying(model, image, sets, penalty):
    """All sequences that hold one token of each set, best first."""
    found = [s for s in model.sequences(image) if all(set(tokens) & set(s.tokens) for tokens in sets)]
    return sorted(found, key=lambda s: -s.score / len(s.tokens) ** penalty)


@given(st.integers(0, 1000), SETS, st.sampled_from([0.0, 1.0]))
def test_wide_beams_find_the_true_ranking(table_model, seed, sets, penalty):
    model = table_model(4, 4, images=2, seed=seed).with_options(required_tokens=tuple(sets), length_penalty=penalty)
    output = beam_search(model, model.regions, beam_size=ALL, need_attention=True)
    for image in range(2):
        truth = satisfying(model, image, sets, penalty)
        T = output.tokens.shape[-1]
        assert output.tokens[image, : len(truth)].tolist() == [[*s.tokens, *[EOS] * (T - len(s.tokens))] for s in truth]
        scores = [s.score / len(s.tokens) ** penalty for s in truth]
        assert output.scores[image, : len(truth)].tolist() == pytest.approx(scores)
        assert output.scores[image, len(truth) :].isneginf().all()
        for row, sequence in enumerate(truth[:5]):
            expected = model.attention_of(sequence.tokens, image)
            assert output.attention[image, row, : len(sequence.tokens), 0].tolist() == expected


@given(st.integers(0, 1000), SETS, st.integers(1, 6))
def test_every_caption_of_a_narrow_beam_holds_the_words(table_model, seed, sets, beam_size):
    model = table_model(4, 4, seed=seed).with_options(required_tokens=tuple(sets))
    output = beam_search(model, model.regions, beam_size=beam_size)
    for tokens, score in zip(output.tokens[0].tolist(), output.scores[0], strict=True):
        assert score.isneginf() or all(set(group) & set(tokens) for group in sets)


def test_words_that_do_not_fit_are_refused(table_model):
    model = table_model(4, 2).with_options(required_tokens=((1,), (2,), (3,)))
    with pytest.raises(ConfigError, match="2 tokens"):
        beam_search(model, model.regions, beam_size=4)
    with pytest.raises(ConfigError, match="at most 6 sets"):
        beam_search(model.with_options(required_tokens=((1,),) * 7), model.regions)
    with pytest.raises(ConfigError, match="num_beam_groups"):
        beam_search(model, model.regions, beam_size=4, num_beam_groups=2)


@pytest.fixture(scope="module")
def run(make_run):
    return make_run("ngsan", ScenesData(train=40, validation=2))


def test_the_command_line_takes_words_and_alternatives(run, run_command, tmp_path):
    from legenda.data.scenes import draw_scene, make_scene

    draw_scene(make_scene("val", 0)).save(tmp_path / "scene.png")
    command = f"caption {tmp_path / 'scene.png'} --model {run}"
    code, out, err = run_command(f"{command} --must Red|blue circle")
    assert code == 0, err
    words = out.split(": ")[1].split()
    assert "circle" in words
    assert {"red", "blue"} & set(words)
    code, out, err = run_command(f"{command} --must red|bluu --out {tmp_path / 'c.json'}")
    assert code == 2
    assert "'bluu'" in err
    assert not (tmp_path / "c.json").exists()
    assert run_command(f"{command} --do-sample --must red")[0] == 2


def test_the_words_and_the_samples_of_model_caption(build, regions):
    vocabulary = Vocabulary.build([["red", "blue", "dog", "cat"]], min_count=1)
    model = build(vocab_size=len(vocabulary))
    set_vocabulary(model, vocabulary)
    for must in (("blue",), ["Blue", "dog|cat"]):
        for caption in model.caption(regions, must=must, max_length=6):
            assert "blue" in caption
    assert model.caption(regions, forbidden_last_words=["red"])
    samples = [model.caption(regions, do_sample=True, seed=seed, max_length=6) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    with pytest.raises(ConfigError, match="no word 'bluu'"):
        model.caption(regions, must=["bluu"])
