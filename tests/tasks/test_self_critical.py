"""Self-critical training: its gradient is that of the expected reward, and its losses are the releases'."""

import itertools

import numpy as np
import pytest
import torch

import legenda
from legenda import Regions
from legenda.data.captions import CaptionDataset
from legenda.decoding import GenerationOutput, beam_search
from legenda.tasks.base import Batch, SelfCriticalConfig
from legenda.tasks.objectives import CrossEntropy
from legenda.tasks.self_critical import Rewards, SelfCriticalObjective
from legenda.training import TrainingConfig

END, BANNED, V, LONGEST = 0, 3, 4, 2
NOTHING = CaptionDataset((), (), lambda _: Regions(torch.zeros(1, 1, 3)), "nothing", "nothing")
"""A split that these tests read nothing of."""

CAPTIONS = [
    list(caption)
    for length in range(1, LONGEST + 1)
    for caption in itertools.product(range(V), repeat=length)
    if BANNED not in caption and END not in caption[:-1] and (caption[-1] == END or length == LONGEST)
]
"""Every caption of up to two of the words 1 and 2: 1 + 2 that end, and 4 that are cut off."""


def captioner(*, dropout: float = 0.0) -> legenda.models.Captioner:
    torch.manual_seed(0)
    model = legenda.create_model(
        "transformer", vocab_size=V, feature_dim=3, dim=4, num_heads=2, num_layers=1, ff_dim=4, dropout=dropout
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    model.generation_config = model.generation_config.replace(
        bos_token_id=END, eos_token_id=END, suppress_tokens=(BANNED,)
    )
    return model


def image() -> Regions:
    return Regions(torch.randn(1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))


def reward_of(caption: list[int]) -> float:
    """Any function of a caption will do."""
    return float(np.sin(1 + sum(word * 5**place for place, word in enumerate(caption)))) + len(caption)


def rewards_of(images: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    assert images.tolist() == [7]
    return np.array([[reward_of(_cut(row)) for row in rows] for rows in tokens.tolist()])


def _cut(row: list[int]) -> list[int]:
    return row[: row.index(END) + 1] if END in row else row


def padded(captions: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, captions))
    return torch.tensor([[caption + [END] * (longest - len(caption)) for caption in captions]])


def probability(model, regions: Regions, caption: list[int]) -> torch.Tensor:
    """Return the probability of a caption, word by word, among the words that are not banned."""
    inputs = torch.tensor([[[END, *caption[:-1]]]])
    probabilities = model(regions, inputs)[0, 0].softmax(dim=-1)
    allowed = probabilities[:, [word for word in range(V) if word != BANNED]].sum(dim=-1)
    return torch.stack([probabilities[t, word] / allowed[t] for t, word in enumerate(caption)]).prod()


def gradient(model) -> torch.Tensor:
    found = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )
    model.zero_grad()
    return found


def task_with(model, **settings) -> SelfCriticalObjective:
    settings = {"loss_reduction": "sequence", "max_length": LONGEST, "rewards": {"mine": 1.0}} | settings
    training = TrainingConfig(self_critical=SelfCriticalConfig(**settings))
    return SelfCriticalObjective(model, training, NOTHING, Rewards([(1.0, rewards_of)]))


def batch_of(regions: Regions, captions: torch.Tensor) -> Batch:
    boxes = {} if regions.boxes is None else {"boxes": regions.boxes}
    return {"features": regions.features, "mask": regions.mask_or_ones, "captions": captions, **boxes}


def loss_of(task: SelfCriticalObjective, regions: Regions, captions: torch.Tensor | None = None) -> torch.Tensor:
    captions = torch.tensor([[[END, 1, END]]]) if captions is None else captions
    batch = batch_of(regions, captions)
    prepared = task.prepare(np.array([7]), batch, 1)
    loss = prepared.finish(task(batch, *prepared.inputs))
    shares = zip(task.loss_weights, loss.sums, prepared.normalizers, strict=True)
    return sum((share * total / count for share, total, count in shares), torch.zeros(()))


@pytest.mark.parametrize(
    ("baseline", "drawn", "share"), [("greedy", 1, 1.0), ("mean_of_others", 2, 1.0), ("mean", 2, 0.5)]
)
def test_the_expected_gradient_is_that_of_the_expected_reward(monkeypatch, baseline, drawn, share):
    """All that can be drawn is drawn, each weighed by its probability; the sum must be the exact gradient."""
    model, regions = captioner(), image()
    chances = [probability(model, regions, caption) for caption in CAPTIONS]
    assert sum(chance.item() for chance in chances) == pytest.approx(1.0)
    sum(-chance * reward_of(caption) for chance, caption in zip(chances, CAPTIONS, strict=True)).backward()
    exact = gradient(model)
    assert exact.norm() > 0.1
    task = task_with(model, baseline=baseline, num_samples=drawn)
    estimated = torch.zeros_like(exact)
    for chosen in itertools.product(range(len(CAPTIONS)), repeat=drawn):
        tokens = padded([CAPTIONS[number] for number in chosen])
        decoded = GenerationOutput(tokens, torch.zeros(tokens.shape), torch.zeros(tokens.shape[:2]))
        monkeypatch.setattr("legenda.tasks.self_critical.sample", lambda *_, decoded=decoded, **__: decoded)
        loss_of(task, regions).backward()
        weight = float(np.prod([chances[number].item() for number in chosen]))
        estimated += weight * gradient(model)
    torch.testing.assert_close(estimated, share * exact, atol=1e-10, rtol=1e-8)


def test_drawing_follows_the_probabilities_that_the_gradient_assumes():
    model, regions = captioner(), image()
    task = task_with(model, num_samples=1000)
    torch.manual_seed(3)
    batch = batch_of(regions, torch.tensor([[[0, 1, 0]]]))
    sampled = [
        tuple(_cut(row)) for _ in range(5) for row in task.prepare(np.array([7]), batch, 1).inputs[1][0].tolist()
    ]
    for caption in CAPTIONS:
        chance = probability(model, regions, caption).item()
        spread = (chance * (1 - chance) / len(sampled)) ** 0.5
        assert sampled.count(tuple(caption)) / len(sampled) == pytest.approx(chance, abs=5 * spread + 1e-9)


def test_beams_are_all_kept_and_each_once():
    model, regions = captioner(), image()
    task = task_with(model, sample_method="beam", baseline="mean", num_samples=4)
    inputs, sampled, *_ = task.prepare(np.array([7]), batch_of(regions, torch.tensor([[[0, 1, 0]]])), 1).inputs
    found = beam_search(model, regions, beam_size=4, generation_config=task.generation_config)
    assert torch.equal(sampled, found.tokens)
    assert len({tuple(row) for row in sampled[0].tolist()}) == 4
    assert (inputs[..., 0] == END).all()
    assert torch.equal(inputs[..., 1:], sampled[..., :-1])


def test_rows_that_fill_up_a_beam_count_nothing(monkeypatch):
    model, regions = captioner(), image()
    task = task_with(model, sample_method="beam", baseline="mean", num_samples=3)
    tokens, scores = padded([[1, END], [2, 1, END], [END]]), torch.tensor([[-1.0, -2.0, -torch.inf]])
    decoded = GenerationOutput(tokens, torch.zeros(tokens.shape), scores)
    monkeypatch.setattr("legenda.tasks.self_critical.beam_search", lambda *_, **__: decoded)
    loss = loss_of(task, regions)
    log_one, log_other = (probability(model, regions, c).log() for c in ([1, END], [2, 1, END]))
    half = (reward_of([1, END]) - reward_of([2, 1, END])) / 2
    assert loss.item() == pytest.approx((-(log_one - log_other) * half / 2).item())


def test_the_greedy_baseline_has_no_dropout_and_the_samples_have_it(monkeypatch):
    model, regions = captioner(dropout=0.5), image()
    modes = {}
    for name in ("greedy", "sample"):
        original = getattr(legenda.decoding, name)

        def noted(of, *args, name=name, original=original, **options):
            modes.setdefault(name, []).append(of.training)
            return original(of, *args, **options)

        monkeypatch.setattr(f"legenda.tasks.self_critical.{name}", noted)
    for training in (True, False):
        model.train(training)
        loss_of(task_with(model, baseline="greedy"), regions)
        loss_of(task_with(model, baseline="greedy", dropout=False), regions)
        assert modes == {"greedy": [False, False], "sample": [True, False]}
        assert model.training == training
        modes.clear()


def test_a_share_of_cross_entropy_is_mixed_in(monkeypatch):
    model, regions = captioner(), image()
    tokens = padded([[1, END], [2, 1, END]])
    decoded = GenerationOutput(tokens, torch.zeros(tokens.shape), torch.zeros(tokens.shape[:2]))
    monkeypatch.setattr("legenda.tasks.self_critical.sample", lambda *_, **__: decoded)
    captions = torch.tensor([[[END, 1, 2, END], [END, 2, END, -1]]])
    alone = loss_of(task_with(model, num_samples=2), regions, captions)
    mixed = loss_of(task_with(model, num_samples=2, xe_weight=0.25), regions, captions)
    plain, batch = CrossEntropy(model, TrainingConfig(), NOTHING), batch_of(regions, captions)
    prepared = plain.prepare(np.array([7]), batch, 1)
    (total,) = plain(batch, *prepared.inputs)
    assert prepared.normalizers == (5.0,)
    assert mixed.item() == pytest.approx((0.75 * alone + 0.25 * total / 5).item())


def test_autocast_leaves_the_gradient_where_it_belongs():
    """Weights that were cast while nothing had a gradient must not be taken for those of the pass that has one."""
    model, regions = captioner().float(), image()
    regions = Regions(regions.features.float())
    task = task_with(model, num_samples=64)  # so many that not all are rewarded alike
    with torch.autocast("cpu", dtype=torch.bfloat16):
        batch = batch_of(regions, torch.tensor([[[0, 1, 0]]]))
        prepared = task.prepare(np.array([7]), batch, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = task(batch, *prepared.inputs)
    prepared.finish(output).sums[0].backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []
    assert model.decoder.output.weight.grad.abs().sum() > 0
