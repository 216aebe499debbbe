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

WORDS, FEATURES = 9, 6
MODELS = ("transformer", "ngsan", "mdsan", "meshed", "aoanet", "updown", "xlan", "xtransformer")
SEARCHES = {
    "greedy": lambda model, regions: greedy(model, regions, need_attention=True),
    "sample": lambda model, regions: sample(model, regions, rows=3, generator=torch.Generator().manual_seed(0)),
    "beam": lambda model, regions: beam_search(model, regions, beam_size=3, need_attention=True),
    "groups": lambda model, regions: beam_search(model, regions, beam_size=4, groups=2, temperature=0.7),
    "one word": lambda model, regions: beam_search(model, regions, max_length=1),
}


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
            patch.setattr(steps, "Steps", steps.RecordedSteps)
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
def test_recorded_searches_find_the_same(name, search, recorded, draw_regions):
    model, run = build(name), SEARCHES[search]
    for seed in (0, 1):  # the second one finds the recording of the first
        regions = draw_regions((5, 3), dim=FEATURES, seed=seed)
        with recorded():
            found = run(model, regions)
        assert_same(found, run(model, regions))


@pytest.mark.parametrize("finished", ["compete", "aside"])
def test_rules_are_part_of_what_is_recorded(finished, recorded, draw_regions):
    model, regions = build("aoanet"), draw_regions((5, 3), dim=FEATURES)
    for changes in ({}, {"no_repeat": True}, {"bad_endings": (2, 3, 4)}, {"banned_ids": (5,), "beam_banned_ids": (1,)}):
        rule = replace(model.decoding, finished=finished, **changes)
        for search in (greedy, beam_search):
            with recorded():
                found = search(model, regions, rule=rule)
            assert_same(found, search(model, regions, rule=rule))


def test_an_ensemble_is_recorded_as_a_whole(recorded, draw_regions):
    both, regions = Ensemble([build(seed=1), build("mdsan", seed=2)]), draw_regions((4, 2), dim=FEATURES)
    with recorded():
        found = beam_search(both, regions, max_length=5)
    assert_same(found, beam_search(both, regions, max_length=5))


def test_a_recording_serves_until_weights_move_or_shapes_change(recorded, made, draw_regions):
    model, regions = build(), draw_regions((5, 3), dim=FEATURES)
    with recorded():
        for change in (lambda p: p, lambda p: p.mul_(1.5)):  # an optimiser's step writes where the weights are
            for parameter in model.parameters():
                change(parameter.data)
            beam_search(model, draw_regions((5, 3), dim=FEATURES, seed=1))
            found = beam_search(model, regions)
        assert len(made) == 1
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.data = parameter.data + 0.3 * torch.randn_like(parameter)
        moved = beam_search(model, regions)
        assert len(made) == 2
        beam_search(model, draw_regions((5, 3, 2), dim=FEATURES))
        beam_search(model, regions, beam_size=2)
        beam_search(model, regions, max_length=4)
        assert len(made) == 5
        with torch.inference_mode():
            assert_same(beam_search(model, regions), moved)
        assert len(made) == 6
    assert_same(moved, beam_search(model, regions))
    assert not torch.equal(found.scores, moved.scores)


def test_few_recordings_are_kept_and_none_outlives_its_model(recorded, draw_regions):
    model, regions = build(), draw_regions((5, 3), dim=FEATURES)
    with recorded():
        for width in range(2, 9):
            beam_search(model, regions, beam_size=width)
    assert len(recording._shelf[model.decoder]) == recording._KEPT
    decoder, kept = weakref.ref(model.decoder), weakref.ref(recording._shelf[model.decoder][0][1])
    del model
    gc.collect()
    assert decoder() is None
    assert kept() is None


def test_two_searches_at_once_have_a_recording_each(recorded, made, draw_regions):
    model = build("xtransformer")
    pictures = [draw_regions((5, 3), dim=FEATURES, seed=seed) for seed in range(8)]
    expected, found = [beam_search(model, one) for one in pictures], {}

    def search(mine):
        for number in mine:
            found[number] = beam_search(model, pictures[number])

    with recorded():
        threads = [threading.Thread(target=search, args=(range(first, 8, 2),)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 1 <= len(made) <= 2
    for number, one in enumerate(expected):
        assert_same(found[number], one)


def test_more_words_than_places_are_refused_before_any_is_said(recorded, draw_regions):
    model = build("mdsan")
    with recorded(), pytest.raises(UserError, match="places for 54 words, not 60"):
        greedy(model, draw_regions((5,), dim=FEATURES), max_length=60)


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

    def record(self, follow, state):
        Graph.owner, Graph.follow = self, staticmethod(follow)
        genuine(self, follow, state)

    genuine = recording.Recording._record
    cuda = SimpleNamespace(
        Stream=Stream, current_stream=Stream, stream=lambda _: nullcontext(), CUDAGraph=Graph, graph=capture
    )
    model, regions = build("ngsan"), draw_regions((5, 3), dim=FEATURES)
    expected = beam_search(model, regions)
    monkeypatch.setattr(recording.Recording, "_record", record)
    monkeypatch.setattr(recording, "_is_recorded", lambda _: True)
    monkeypatch.setattr(steps, "Steps", steps.RecordedSteps)
    monkeypatch.setattr(torch, "cuda", cuda)
    assert_same(beam_search(model, regions), expected)
    assert calls[:4] == ["wait", "capture thread_local", "wait", "replay"]
    assert calls.count("capture thread_local") == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("search", ["greedy", "beam", "groups"])
def test_graphs_of_a_gpu_find_the_same(name, search, draw_regions):
    model, run = build(name), SEARCHES[search]
    for seed in (0, 1):
        regions = draw_regions((5, 3), dim=FEATURES, seed=seed)
        expected = run(model.cpu(), regions)
        found = run(model.cuda(), regions.to("cuda"))
        assert found.tokens.cpu().equal(expected.tokens)
        torch.testing.assert_close(found.scores.cpu(), expected.scores, atol=1e-4, rtol=0)
