"""Steps recorded for GPUs: the same searches, on CPUs run at the same fixed places as a graph would."""

import gc
import threading
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import legenda
from legenda import UserError
from legenda.decoding import Ensemble, beam_search, greedy, recording, sample, steps
from legenda.decoding.decoder import with_word

WORDS, FEATURES = 9, 6
MODELS = ("transformer", "ngsan", "mdsan", "meshed", "aoanet", "updown", "xlan", "xtransformer")
SEARCHES = {
    "greedy": lambda model, regions: greedy(model, regions, rule=endless(model), need_attention=True),
    "sample": lambda model, regions: sample(model, regions, rows=3, generator=torch.Generator().manual_seed(0)),
    "beam": lambda model, regions: beam_search(model, regions, beam_size=3, need_attention=True),
    "groups": lambda model, regions: beam_search(model, regions, beam_size=4, groups=2, temperature=0.7),
    "one word": lambda model, regions: beam_search(model, regions, max_length=1),
}


def endless(model):
    return replace(model.decoding, banned_ids=(model.decoding.end_id,))


def build(name="transformer", seed=0):
    fields = {"dim": 16, "num_heads": 2, "num_layers": 1, "decoder_layers": 1, "ff_dim": 16, "mid_dim": 4}
    known = legenda.models.describe_model(name).config.__dataclass_fields__
    torch.manual_seed(seed)
    model = legenda.create_model(
        name, vocab_size=WORDS, feature_dim=FEATURES, **{key: fields[key] for key in fields if key in known}
    )
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    model.decoding = replace(model.decoding, max_length=6)
    return model.eval()


@pytest.fixture
def recorded(monkeypatch):
    """All searches are recorded, whatever their device."""

    @contextmanager
    def switched():
        with monkeypatch.context() as patch:
            patch.setattr(steps, "replays", lambda _: True)
            yield

    return switched


@pytest.fixture
def made(monkeypatch):
    """Counts the recordings."""
    counted = []

    class Counted(recording.Recording):
        def __init__(self, *args, **kwargs):
            counted.append(self)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(steps, "Recording", Counted)
    return counted


def assert_same(found, expected):
    assert torch.equal(found.tokens, expected.tokens)
    for name in ("log_probs", "scores", "attention"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("search", SEARCHES)
def test_recorded_searches_find_the_same(name, search, recorded, made, draw_regions):
    model, run = build(name), SEARCHES[search]
    for seed in (0, 1, 2):  # the second one is recorded, the third finds the recording
        regions = draw_regions((5, 3), dim=FEATURES, seed=seed)
        with recorded():
            found = run(model, regions)
        assert_same(found, run(model, regions))
        for _, one in recording._shelves[model.decoder].recordings if model.decoder in recording._shelves else []:
            if one.parents is not None:
                one.parents.copy_(one.own.flip(-1))  # what a search has left there is nothing to the next
    assert len(made) == (0 if search == "one word" else 1)


def test_all_that_changes_a_step_is_part_of_its_key(recorded, made, draw_regions):
    model, regions = build("aoanet"), draw_regions((5, 3), dim=FEATURES)
    rule = model.decoding
    kinds = [
        {"rule": rule},
        {"rule": replace(rule, no_repeat=True)},
        {"rule": replace(rule, bad_endings=(2, 3, 4))},
        {"rule": replace(rule, banned_ids=(5,))},
        {"rule": replace(rule, beam_banned_ids=(1,))},
        {"rule": rule, "temperature": 0.5},
        {"rule": rule, "beam_size": 2},
    ]
    for number, options in enumerate(kinds, start=1):
        for _ in range(3):
            with recorded():
                found = beam_search(model, regions, **options)
            assert_same(found, beam_search(model, regions, **options))
        assert len(made) == number
    with recorded():
        for finished in ("compete", "aside"):  # what is no part of a step is none of the key
            beam_search(model, regions, rule=replace(rule, finished=finished, length_penalty=0.5), beam_size=2)
        assert len(made) == len(kinds)
        for module in (model.decoder, model.decoder.lstm):  # dropout is where some module trains
            module.train()
            beam_search(model, regions)
            beam_search(model, regions)
            model.eval()
        with torch.inference_mode():
            beam_search(model, regions)
            beam_search(model, regions)
    assert len(made) == len(kinds) + 3


def test_an_ensemble_is_recorded_as_a_whole(recorded, draw_regions):
    both, regions = Ensemble([build(seed=1), build("mdsan", seed=2)]), draw_regions((4, 2), dim=FEATURES)
    with recorded():
        found = beam_search(both, regions, max_length=5)
    assert_same(found, beam_search(both, regions, max_length=5))


def test_a_recording_serves_until_weights_lie_elsewhere(recorded, made, draw_regions):
    model, regions = build(), draw_regions((5, 3), dim=FEATURES)
    with recorded():
        for factor in (1.0, 1.5):  # an optimiser's step writes where the weights are
            for parameter in model.parameters():
                parameter.data.mul_(factor)
            beam_search(model, draw_regions((5, 3), dim=FEATURES, seed=1))
            found = beam_search(model, regions)
        assert len(made) == 1
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.data = parameter.data + 0.3 * torch.randn_like(parameter)
        beam_search(model, regions)
        assert not recording._shelves[model.decoder].recordings
        moved = beam_search(model, regions)
        assert len(made) == 2
    assert_same(moved, beam_search(model, regions))
    assert not torch.equal(found.scores, moved.scores)


def test_shapes_that_come_once_are_not_recorded(recorded, made, draw_regions):
    model = build()
    with recorded():
        for count in range(1, 6):
            beam_search(model, draw_regions((count, 1), dim=FEATURES))
    assert not made


def test_few_recordings_are_kept_and_none_outlives_its_model(recorded, draw_regions):
    model, regions = build(), draw_regions((5, 3), dim=FEATURES)
    with recorded():
        for width in (2, 3, 4, 5, 6, 7, 8):
            beam_search(model, regions, beam_size=width)
            beam_search(model, regions, beam_size=width)
    recordings = recording._shelves[model.decoder].recordings
    assert len(recordings) == recording._KEPT
    decoder, kept = weakref.ref(model.decoder), weakref.ref(recordings[0][1])
    del model, recordings
    gc.collect()
    assert decoder() is None
    assert kept() is None


def test_more_beams_than_words_are_recorded_once_all_are_there(recorded, draw_regions):
    model, regions = build("aoanet"), draw_regions((5, 3), dim=FEATURES)
    for _ in range(3):
        with recorded():
            found = beam_search(model, regions, beam_size=WORDS + 3)
        assert_same(found, beam_search(model, regions, beam_size=WORDS + 3))


def test_a_decoder_without_room_is_not_recorded(recorded, made, table_model):
    model = table_model(4, 3, images=2)
    for _ in range(3):
        with recorded():
            found = beam_search(model, model.regions)
        assert_same(found, beam_search(model, model.regions))
    assert not made


def test_a_state_that_cannot_be_recorded_is_refused():
    with pytest.raises(TypeError, match="holds tensors in tuples and dataclasses"):
        list(recording._tensors((torch.zeros(1), [torch.zeros(1)])))
    with pytest.raises(TypeError, match="int"):
        recording._copied((torch.zeros(1), 3))


def test_room_is_of_the_type_of_what_it_takes(draw_regions):
    """On GPUs, autocast leaves normalised states in single precision, and keys and values in half."""
    for name in ("transformer", "mdsan", "xtransformer"):
        model = build(name)
        memory = model.encode(draw_regions((5, 3), dim=FEATURES))
        half = replace(memory, keys_values=tuple((k.bfloat16(), v.bfloat16()) for k, v in memory.keys_values))
        state = model.decoder.start_with_room(half, 2, 4)
        assert {part.dtype for pair in state.keys_values for part in pair} == {torch.bfloat16}
    said = with_word(torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bfloat16), 1, torch.tensor(1))
    assert said.tolist() == [[0, 1, 0]] * 2


def test_two_searches_at_once_have_a_recording_each(recorded, made, draw_regions):
    model = build("xtransformer")
    pictures = [draw_regions((5, 3), dim=FEATURES, seed=seed) for seed in range(8)]
    expected, found = [beam_search(model, one) for one in pictures], {}

    def search(mine):
        for number in mine:
            found[number] = beam_search(model, pictures[number])

    with recorded():
        search(range(1))
        threads = [threading.Thread(target=search, args=(range(first, 8, 2),)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 1 <= len(made) <= 2
    for number, one in enumerate(expected):
        assert_same(found[number], one)


def test_more_words_than_places_are_refused_as_ever(recorded, draw_regions):
    model, regions = build("mdsan"), draw_regions((5,), dim=FEATURES)
    with recorded():
        greedy(model, regions, max_length=60, rule=replace(model.decoding, banned_ids=tuple(range(1, WORDS))))
        with pytest.raises(UserError, match="places for 54 words, not 55"):
            greedy(model, regions, max_length=60, rule=replace(model.decoding, banned_ids=(0,)))


def test_what_is_recorded_begins_where_it_was_told(monkeypatch, draw_regions):
    """The order of calls that a GPU sees, with a graph that runs its step anew."""
    calls = []

    class Stream:
        def __init__(self, device=None):
            self.device = device

        def wait_stream(self, _):
            calls.append("wait")

    @contextmanager
    def capture(graph, stream, capture_error_mode):
        assert isinstance(stream, Stream)
        calls.append(f"capture {capture_error_mode}")
        before = [tensor.clone() for tensor in recording._tensors(graph.owner.state)]
        yield  # a capture computes nothing; here it does, and is undone
        for tensor, old in zip(recording._tensors(graph.owner.state), before, strict=True):
            tensor.copy_(old)

    class Graph:
        owner = follow = None

        def replay(self):
            calls.append("replay")
            self.owner._once(self.follow)

    def record(self, follow):
        Graph.owner, Graph.follow = self, staticmethod(follow)
        genuine(self, follow)

    genuine = recording.Recording._record
    cuda = SimpleNamespace(
        Stream=Stream, current_stream=Stream, stream=lambda _: nullcontext(), CUDAGraph=Graph, graph=capture
    )
    model, regions = build("ngsan"), draw_regions((5, 3), dim=FEATURES)
    expected = beam_search(model, regions)
    monkeypatch.setattr(recording.Recording, "_record", record)
    for module in (recording, steps):
        monkeypatch.setattr(module, "replays", lambda _: True)
    monkeypatch.setattr(torch, "cuda", cuda)
    recording._stream.cache_clear()
    beam_search(model, regions)
    assert not calls
    before = torch.get_rng_state()
    assert_same(beam_search(model, regions), expected)
    assert calls[:4] == ["wait", "capture thread_local", "wait", "replay"]
    assert calls.count("capture thread_local") == 1
    assert torch.get_rng_state().equal(before)
    recording._stream.cache_clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("search", ["greedy", "beam", "groups"])
def test_graphs_of_a_gpu_find_the_same(name, search, made, draw_regions):
    model, run = build(name), SEARCHES[search]
    pictures = [draw_regions((5, 3), dim=FEATURES, seed=seed) for seed in range(4)]
    expected = [run(model, regions) for regions in pictures]
    model.cuda()
    for regions, one in zip(pictures, expected, strict=True):
        found = run(model, regions.to("cuda"))
        assert found.tokens.cpu().equal(one.tokens)
        torch.testing.assert_close(found.scores.cpu(), one.scores, atol=1e-4, rtol=0)
        if one.attention is not None:
            torch.testing.assert_close(found.attention.cpu(), one.attention, atol=1e-4, rtol=0)
    assert len(made) == 1
    assert made[0].graph is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", MODELS)
def test_graphs_of_a_gpu_in_half_precision_and_in_training(name, made, draw_regions):
    model, regions = build(name).cuda(), draw_regions((5, 3), dim=FEATURES).to("cuda")
    for mode in (False, True):
        model.train(mode)
        for _ in range(3):
            with torch.autocast("cuda", torch.bfloat16):
                found = sample(model, regions, rows=3)
            assert found.log_probs.isfinite().all()
    assert len(made) == 2
