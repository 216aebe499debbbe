"""Runs of two stages, and what a stage may have besides: means of weights, parts of a step, an early end."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from small_runs import DATA, SECOND, TRAINING, assert_same, observed, outcome, run, scored, stop_and_resume

import legenda
from legenda.data.captions import EncodedCaptions
from legenda.decoding.generation import GenerationConfig
from legenda.errors import LegendaError
from legenda.models.weights import load_weights
from legenda.tasks import Captioning
from legenda.tasks.base import ScheduledSamplingConfig, SelfCriticalConfig
from legenda.tasks.self_critical import CURVES, SelfCriticalObjective
from legenda.training import Constant, is_finished
from legenda.training import loop as loop_module
from legenda.training.checkpoint import read_history, read_progress

pytestmark = pytest.mark.usefixtures("one_thread")


# 12 steps of cross-entropy, then 12 of self-critical training: states after the steps
# 4, 6, 6, 8, 12, 12, 12, 16, 18, 18, 20, 24, 24.
FIRST = TRAINING.replace(
    epochs=2,
    scheduled_sampling=ScheduledSamplingConfig(increment=0.3, interval=1),
    weight_averaging="ema",
    optimizer="radam",
    gradient_accumulation_steps=2,
)


@pytest.fixture(scope="module")
def completed_run(tmp_path_factory) -> Path:
    """The folder of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("stages") / "run"
    run(folder, FIRST, fine_tuning=SECOND)
    return folder


def test_both_stages_are_in_the_history(completed_run):
    history = read_history(completed_run)
    assert [record["step"] for record in history if "validation" in record] == [6, 12, 18, 24]
    (logged,) = (record for record in history if "loss" in record)
    assert logged["step"] == 20
    assert logged["reward"] >= 0
    assert CURVES.keys() <= logged.keys()
    assert logged["seconds_waiting_for_rewards"] < logged["seconds"]
    progress = read_progress(completed_run)
    assert (progress.stage, progress.stage_epoch, progress.stage_step, progress.step) == (1, 2, 12, 24)
    assert len(progress.scores) == 2
    assert is_finished(completed_run, "a test")


def test_a_collapse_of_the_samples_is_warned_of_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(loop_module, "_LOG_EVERY_N_STEPS", 2)
    monkeypatch.setattr(loop_module, "describe_collapse", lambda means: f"entropy {means['entropy']:.0f}")
    run(tmp_path / "run", SECOND.replace(epochs=1))
    (warning,) = (record.getMessage() for record in caplog.records if "entropy" in record.getMessage())
    assert warning.startswith("step 2: entropy ")


@torch.no_grad()
def test_the_best_model_of_the_first_stage_and_the_validation_loss_are_kept(completed_run):
    first, second = [record["validation"] for record in read_history(completed_run) if "validation" in record][:2]
    best = max(first, second, key=lambda scores: scores["CIDEr-D"])
    model = legenda.load(completed_run)
    load_weights(model, completed_run / "model_stage1.safetensors")
    captions = Captioning.predict(model, DATA.validation, np.arange(6), {"beam_size": TRAINING.eval_beam_size})
    assert Captioning.score(captions, DATA.validation)["CIDEr-D"] == best["CIDEr-D"]

    encoded = EncodedCaptions.of(DATA.validation, DATA.vocabulary, FIRST.max_caption_length)
    tokens = encoded.rows(np.arange(6), 2, torch.Generator().manual_seed(0)).long()
    logits, targets = model(DATA.validation.read(np.arange(6)), tokens[..., :-1].clamp(min=0)), tokens[..., 1:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten(), ignore_index=-1)
    assert best["loss"] == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "call", "done"),
    [
        # between the two parts of a step of the first stage
        pytest.param("cross_entropy", 5, True, marks=pytest.mark.slow),
        # the second stage has started, with no step
        pytest.param("save_state", 7, True, marks=pytest.mark.slow),
        ("sample", 6, True),  # after a state within the second stage
        pytest.param("save_state", 13, False, marks=pytest.mark.slow),  # all done, the end not saved
    ],
)
def test_a_stopped_run_ends_as_one_that_was_never_stopped(completed_run, tmp_path, monkeypatch, name, call, done):
    folder = tmp_path / "run"
    stop_and_resume(monkeypatch, name, call, lambda: run(folder, FIRST, fine_tuning=SECOND), done=done)
    assert_same(outcome(completed_run), outcome(folder))


def test_the_second_stage_begins_with_the_best_model_of_the_first(tmp_path):
    folder, began = tmp_path / "run", []

    def note(objective, _):
        began.append({name: tensor.clone() for name, tensor in objective.model.state_dict().items()})

    def attach(objective):
        if isinstance(objective, SelfCriticalObjective):
            objective.register_forward_pre_hook(note)

    task = scored(0.1, 0.3, 0.2, 0.25, attach=attach)
    trained = run(folder, TRAINING.replace(epochs=3), fine_tuning=SECOND.replace(epochs=1), task=task)
    assert (trained.best, trained.best_epoch) == (0.3, 2)  # the second stage was worse, so the first one's is kept
    for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items():
        assert torch.equal(tensor, began[0][name]), name


def test_scores_of_another_search_are_not_compared(tmp_path):
    second = SECOND.replace(epochs=1, eval_beam_size=TRAINING.eval_beam_size + 1)
    trained = run(tmp_path / "run", TRAINING.replace(epochs=1), fine_tuning=second, task=scored(0.3, 0.2))
    assert (trained.best, trained.best_epoch) == (0.2, 2)


def test_a_stage_can_change_rates_of_dropout(completed_run, tmp_path):
    """What differs is the rate alone: the words, the weights it begins with and the kept model are the run's."""
    rates, searches = [], []

    def note(objective, _):
        if torch.is_grad_enabled():
            rates.append((objective.model.config.dropout, objective.model.encoder.dropout.p))
            searches.append(objective.model.generation_config)

    def attach(objective):
        if isinstance(objective, SelfCriticalObjective):
            objective.register_forward_pre_hook(note)

    changed = SECOND.replace(dropout={"dropout": 0.0})
    run(tmp_path / "run", FIRST, fine_tuning=changed, task=observed(attach))
    assert set(rates) == {(0.0, 0.0)}
    assert len(rates) == 12
    saved = legenda.load(tmp_path / "run").generation_config
    assert saved.suppress_tokens
    assert all(search == saved for search in searches)
    before, after = outcome(completed_run), outcome(tmp_path / "run")
    assert before["vocabulary"] == after["vocabulary"]
    assert before["history"][:2] == after["history"][:2]
    assert before["weights"] != after["weights"]
    assert legenda.load(tmp_path / "run").config.dropout == 0.2


@pytest.mark.parametrize("name", ["ngsan", "aoanet", "xlan", "xtransformer", "mdsan", "updown"])
def test_set_dropout_gives_the_model_that_its_rates_would_have_made(name, sized):
    sizes = sized(name, vocab_size=20, feature_dim=8, dim=16, num_heads=2, num_layers=1, decoder_layers=1, ff_dim=16)
    model = legenda.create_model(name, **sizes)
    tensors = {key: tensor.data_ptr() for key, tensor in model.state_dict().items()}
    rates = {field: 0.4 for field in vars(model.config) if field.endswith("dropout")}
    rates = {field: rate for field, rate in rates.items() if isinstance(getattr(model.config, field), float)}
    state = torch.get_rng_state()
    loop_module.set_dropout(model, {**vars(model.config), **rates})
    assert torch.equal(torch.get_rng_state(), state)
    assert {key: tensor.data_ptr() for key, tensor in model.state_dict().items()} == tensors
    other = legenda.create_model(name, **sizes, **rates)
    other.load_state_dict(model.state_dict())
    regions = legenda.Regions.from_grid(torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)), 2, 2)
    outputs = []
    for module in (model, other):
        torch.manual_seed(3)
        outputs.append(module.train()(regions, torch.full((2, 1, 5), 7)))
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["ngsan", "aoanet", "xlan", "xtransformer", "mdsan", "updown"])
def test_set_dropout_changes_rates_and_nothing_else(name, sized):
    """Not what a user has set on the model: its search, nor numbers of its modules that are no rates."""
    sizes = sized(name, vocab_size=20, feature_dim=8, dim=16, num_heads=2, num_layers=1, decoder_layers=1, ff_dim=16)
    model = legenda.create_model(name, **sizes)
    search = GenerationConfig(bos_token_id=2, eos_token_id=3, suppress_tokens=(1,), max_length=9)
    model.generation_config, options = search, dict(vars(model.config))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    for norm in norms:
        norm.eps = 0.5
    before = [dict(vars(module)) for module in model.modules()]
    rates = {field: 0.4 for field, rate in options.items() if field.endswith("dropout") and isinstance(rate, float)}
    for changed in ({**options, **rates}, options):
        loop_module.set_dropout(model, changed)
        assert dict(vars(model.config)) == changed
        assert model.generation_config is search
        assert {norm.eps for norm in norms} <= {0.5}
    assert [dict(vars(module)) for module in model.modules()] == before


def test_a_run_can_start_from_another_run_and_keeps_its_words(completed_run, tmp_path):
    """With other pictures that know fewer words."""
    fewer = legenda.data.captions.ScenesData(train=3, validation=2, test=1).open(lambda _: None)
    folder = tmp_path / "run"
    fewer = replace(fewer, max_length=9)
    run(folder, SECOND.replace(epochs=1, schedule=Constant(learning_rate=1e-9)), fewer, init_from=completed_run)
    model, before = legenda.load(folder), legenda.load(completed_run)
    assert (model.generation_config.max_length, before.generation_config.max_length) == (9, 20)
    assert len(fewer.vocabulary) < len(model.vocabulary)
    assert (folder / "vocabulary.txt").read_text() == (completed_run / "vocabulary.txt").read_text()
    for name, tensor in before.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("forget_plugins")
def test_self_critical_training_raises_the_reward(tmp_path):
    """A reward that anyone can earn: short captions."""

    @legenda.register_reward("short")
    def short(_: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return -(tokens != 0).sum(axis=-1).astype(float)

    settings = SelfCriticalConfig(num_samples=4, rewards={"short": 1.0}, loss_reduction="sequence", max_length=10)
    training = SECOND.replace(
        self_critical=settings, epochs=10, schedule=Constant(learning_rate=5e-3), max_grad_value=0.0
    )
    run(tmp_path / "run", training.replace(optimizer="adam", weight_averaging="none", eval_every=10), dropout=0.0)
    rewards = [record["reward"] for record in read_history(tmp_path / "run") if "reward" in record]
    assert rewards[0] < -4
    assert rewards[-1] > -2


@pytest.mark.usefixtures("forget_plugins")
def test_a_reward_of_the_wrong_shape_or_no_number_is_named(tmp_path):
    wrong = SECOND.replace(self_critical=SelfCriticalConfig(num_samples=2, rewards={"mine": 1.0}))
    for reward in (lambda *_: np.zeros(3), lambda _, tokens: np.full(tokens.shape[:2], np.nan)):
        legenda.register_reward("mine")(reward)
        with pytest.raises(LegendaError, match=r"reward.*\(4, 2\)"):
            run(tmp_path / "run", wrong)
