"""Self-critical objectives give the numbers of the released codes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_self_critical import NOTHING, batch_of
from torch.nn import functional as F

import legenda
from legenda import Regions
from legenda.models.xtransformer import positions
from legenda.tasks.base import SelfCriticalConfig
from legenda.tasks.objectives import cross_entropy, policy_gradient, policy_gradient_normalizer, token_mask
from legenda.tasks.self_critical import Rewards, SelfCriticalObjective, token_log_probs
from legenda.training import TrainingConfig

RELEASED = Path(__file__).parents[1] / "importers" / "data"


def load_released(name: str) -> tuple[dict[str, torch.Tensor], legenda.models.Captioner, Regions]:
    """The numbers of a release, its model and its regions."""
    with np.load(RELEASED / f"{name}.npz", allow_pickle=False) as arrays:
        given = {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}
    weights = {key.removeprefix("sd/"): value for key, value in given.items() if key.startswith("sd/")}
    if name == "xtransformer":
        weights["decoder.embed_positions.pe"] = positions(0, 5000, 32, 10000.0, torch.device("cpu")).unsqueeze(0)
    model = legenda.importers.load(name.partition("_")[0], weights, num_heads=4)
    mask = given.get("in/att_mask", given.get("in/att_masks")) > 0
    return given, model, Regions(given["in/att_feats"], None, mask, given.get("in/fc_feats"))


@pytest.mark.parametrize(
    ("name", "longest", "expected"),
    [("xlan", 17, -0.16806668043136597), ("xtransformer", 17, -0.1063413918018341), ("aoanet_full", 20, None)],
)
def test_xlan_xtransformer_and_aoanet_as_released(name, longest, expected):
    given, model, regions = load_released(name)
    if expected is None:
        tokens, advantage = given["out/greedy_seq"].unsqueeze(1), given["in/reward"][:, :1]
        expected = given["loss/reward_on_greedy"].item()
    else:
        tokens = given["out/sample_ids"].unflatten(0, (len(regions), -1))
        advantage = given["in/sample_rewards"].view(tokens.shape[:2])
    counted = token_mask(tokens, 0)
    log_probs = token_log_probs(model(regions, F.pad(tokens[..., :-1], (1, 0))), tokens)
    loss = policy_gradient(log_probs, advantage, counted) / policy_gradient_normalizer("token", counted, longest)
    assert loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["mdsan_grid_padded", "mdsan_region_injected", "m2_nomemory"])
def test_mdsan_as_released(name):
    """Drawn by beam search, compared with the mean of the beams, divided by 5 beams times 20 places."""
    tensors = load_file(RELEASED / f"{name}.safetensors")
    weights = {key.removeprefix("weights/"): value for key, value in tensors.items() if key.startswith("weights/")}
    given = {key.removeprefix("io/"): value for key, value in tensors.items() if key.startswith("io/")}
    model = legenda.importers.load("mdsan", weights, num_heads=4)
    regions = Regions.from_grid(given["features"], 7, 7) if "boxes" not in given else _injected(given)
    rewards = given["scst_rewards"].double().numpy()
    settings = SelfCriticalConfig(
        num_samples=5,
        sample_method="beam",
        dropout=False,
        baseline="mean",
        loss_reduction="max_length",
        rewards={"given": 1.0},
    )
    fixed = Rewards([(1.0, lambda *_: rewards)])
    task = SelfCriticalObjective(model, TrainingConfig(self_critical=settings), NOTHING, fixed)
    nothing = torch.zeros(len(regions), 1, 2, dtype=torch.long)
    batch = batch_of(regions, nothing)
    prepared = task.prepare(np.arange(len(regions)), batch, 1)
    model.eval()
    loss = prepared.finish(task(batch, *prepared.inputs))
    found = loss.sums[0].item() / prepared.normalizers[0]
    assert found == pytest.approx(given["scst_loss"].item(), rel=1e-3, abs=1e-6)


def _injected(given: dict[str, torch.Tensor]) -> Regions:
    return Regions(given["features"], given["boxes"] / given["image_wh"].repeat(1, 2).unsqueeze(1))


def test_smoothing_as_released():
    """AoANet shares 0.2 out, X-LAN's code 0.1, among all words but the target, and both tell a divergence."""
    given, model, regions = load_released("aoanet_full")
    labels, real = given["in/labels"][:, None], given["in/label_masks"][:, None, 1:] > 0
    logits, targets = model(regions, labels[..., :-1]), labels[..., 1:].masked_fill(~real, -1)
    assert cross_entropy(logits, targets).item() == pytest.approx(given["loss/xe"].item(), rel=1e-5)
    smoothed = cross_entropy(logits, targets, 0.2, "non_target")
    assert smoothed.item() == pytest.approx(given["loss/ls02"].item(), rel=1e-5)
    summed = cross_entropy(logits, targets, 0.2, "non_target", reduction="sum")
    assert summed.item() == pytest.approx(smoothed.item() * int(real.sum()), rel=1e-5)

    for name, plain, expected in (
        ("xlan", 8.471811294555664, 7.8800368309021),
        ("xtransformer", 13.071385383605957, 12.509586334228516),
    ):
        given, model, regions = load_released(name)
        inputs, targets = (given[key].unflatten(0, (len(regions), -1)) for key in ("in/seq", "in/target"))
        logits = model(regions, inputs)
        assert cross_entropy(logits, targets).item() == pytest.approx(plain, rel=1e-5)
        assert cross_entropy(logits, targets, 0.1, "non_target").item() == pytest.approx(expected, rel=1e-5)
