"""Translation as a task."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from legenda.extras.translation.data import NumberWordsData, ParallelDataModule, ParallelDataset
from legenda.extras.translation.subwords import BPETokenizer, build_subword_vocabulary
from legenda.extras.translation.task import Translation, TranslationObjective, translate
from legenda.models.checkpoint import load_any
from legenda.training import TrainingConfig, train
from legenda.training.schedules import InverseSqrt

pytest.importorskip("sacrebleu", reason="needs sacrebleu")
pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = {
    "a man rides a horse": "ein Mann reitet auf einem Pferd .",
    "two dogs run on the grass": "zwei Hunde rennen über das Gras .",
    "a woman in a red coat": "eine Frau in einem roten Mantel .",
    "children play": "Kinder spielen .",
    "the red coat of a man": "der rote Mantel von einem Mann .",
    "a horse runs over the grass": "ein Pferd rennt über das Gras .",
    "two children ride a horse": "zwei Kinder reiten auf einem Pferd .",
    "a man and a woman play": "ein Mann und eine Frau spielen .",
}
TINY = {"dim": 32, "num_heads": 4, "num_layers": 1, "ff_dim": 48, "dropout": 0.0}


def split_of(pairs):
    names = tuple(f"s{number}" for number in range(len(pairs)))
    references = tuple((text,) for text in pairs.values())
    return ParallelDataset(names, tuple(pairs), references, "pairs of the test", tokenized=True)


def opened(pairs=PAIRS):
    words = BPETokenizer()
    vocabulary = build_subword_vocabulary(words, [*pairs, *pairs.values()])
    return ParallelDataModule(split_of(pairs), split_of(pairs), words, vocabulary, max_length=12)


@pytest.fixture(scope="module")
def task():
    return Translation(opened())


@pytest.fixture
def model(task):
    torch.manual_seed(0)
    return task.create("translator", TINY).eval()


def objective_of(task, model, **settings):
    return task.objective(model, TrainingConfig(**settings))


def loss_of(objective, positions):
    """The mean over the words."""
    batch = objective.read(np.array(positions))
    prepared = objective.prepare(np.array(positions), batch, 1)
    loss = prepared.finish(objective(batch, *prepared.inputs))
    return loss.sums[0] / prepared.normalizers[0]


def test_a_new_model_has_the_sizes_and_words_of_the_data(task, model):
    assert model.config.vocab_size == len(task.data.vocabulary) == len(model.vocabulary)
    assert model.generation_config.max_length == 13
    assert (
        model.generation_config.bos_token_id,
        model.generation_config.eos_token_id,
        model.generation_config.suppress_tokens,
    ) == (0, 0, (1,))
    assert model.name == "translator"


def test_the_decoder_reads_each_word_where_it_is_to_say_the_next(task, model):
    objective = objective_of(task, model)
    positions = np.array([3, 0])
    batch = objective.read(positions)
    prepared = objective.prepare(positions, batch, 1)
    (inputs,) = prepared.inputs
    assert inputs is not None
    assert inputs[:, 0].tolist() == [0, 0]
    assert inputs[1, 1:].tolist() == batch["target"][1, :-1].tolist()
    assert inputs[0].tolist() == [0, *batch["target"][0, :3].tolist(), 0, 0, 0, 0][: inputs.shape[1]]
    assert prepared.normalizers == (float(len(model.encode_text(PAIRS["children play"])) + inputs.shape[1]),)


@pytest.mark.parametrize("count", [3, 40, 80])
def test_a_batch_in_parts_has_the_loss_of_its_pairs_one_by_one(task, model, count):
    objective = objective_of(task, model, label_smoothing=0.1, label_smoothing_target="non_target")
    positions = np.random.default_rng(0).integers(0, len(PAIRS), count)
    words = [len(model.encode_text(task.train.references[place][0])) for place in positions]
    alone = [loss_of(objective, [place]) for place in positions]
    expected = sum(loss * size for loss, size in zip(alone, words, strict=True)) / sum(words)
    torch.testing.assert_close(loss_of(objective, positions), expected)


def test_smoothing_over_the_others_is_fairseqs_less_a_constant(task, model):
    """fairseq: (1 - eps - eps_i) * nll + eps_i * (the sum of -log p over all words), eps_i = eps / (V - 1)."""
    epsilon = 0.1
    source, target = (torch.tensor([model.encode_text(text)]) for text in next(iter(PAIRS.items())))
    inputs = torch.cat([torch.zeros(1, 1, dtype=torch.long), target[:, :-1]], dim=1)
    log_probs = model(source, inputs.unsqueeze(1))[0, 0].log_softmax(-1)
    V = log_probs.shape[-1]
    share = epsilon / (V - 1)
    nll = -log_probs.gather(1, target[0].unsqueeze(1)).mean()
    fairseq = (1 - epsilon - share) * nll + share * -log_probs.sum(dim=1).mean()
    constant = (1 - epsilon) * math.log(1 - epsilon) + epsilon * math.log(share)
    ours = loss_of(objective_of(task, model, label_smoothing=epsilon, label_smoothing_target="non_target"), [0])
    torch.testing.assert_close(ours, fairseq + constant)


@pytest.mark.parametrize("options", [{}, {"norm": "in"}], ids=["plain", "nsa"])
def test_eight_pairs_are_learned_to_the_letter(task, options):
    torch.manual_seed(0)
    model = task.create("translator", TINY | options)
    objective = TranslationObjective(model, TrainingConfig(), task.train)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(80):
        optimizer.zero_grad()
        loss_of(objective, range(8)).backward()
        optimizer.step()
    predictions = task.predict(model.eval(), task.train, np.arange(8), {"beam_size": 4})
    assert predictions["s0"] == "ein Mann reitet auf einem Pferd."  # detokenized
    assert task.score(predictions, task.train) == pytest.approx(
        dict.fromkeys(("BLEU", "tokenized BLEU", "chrF", "exact"), 100.0)
    )


def test_translations_depend_on_no_other_sentence_and_keep_the_mode(model):
    sentences = [*PAIRS, ""]
    model.train()
    together = translate(model, sentences, beam_size=3, batch_size=4)
    assert model.training
    assert together == [translate(model, [sentence], beam_size=3)[0] for sentence in sentences]
    assert together[-1] == ""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on few number words, and its data."""
    folder = tmp_path_factory.mktemp("runs") / "numbers"
    data = NumberWordsData(train=256, validation=8)
    training = TrainingConfig(
        epochs=2,
        batch_size=32,
        schedule=InverseSqrt(learning_rate=3e-3, warmup_steps=4),
        monitor="exact",
        eval_beam_size=1,
    )
    task = Translation(data.open(lambda _: None))
    train("translator", {**TINY, "norm": "in"}, task, (training,), folder, sections={"name": "a test"})
    return folder, data


def test_a_run_can_begin_with_the_words_of_another(run):
    folder, data = run
    task = Translation(data.replace(seed=1, train=32).open(lambda _: None))
    model = task.create("translator", TINY, folder)
    assert model.vocabulary == load_any(folder).vocabulary
    assert model.vocabulary != task.data.vocabulary


def test_the_example_of_the_documentation_runs(run, tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "guides" / "translation.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "multi30k.nsa").symlink_to(run[0])
    for name in ("news.en", "news.de"):
        (tmp_path / name).write_text("lam tus\nlam hun\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "translation.md", "exec"), {})
    _, scores = capsys.readouterr().out.splitlines()
    assert all(f"'{name}'" in scores for name in ("BLEU", "chrF", "exact"))
