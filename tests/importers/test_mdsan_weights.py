"""MD-SAN, its ablations and the Meshed Transformer against what the released codes compute with the same weights.

The data hold the tensors of the released state dict, inputs, outputs, and the norm of each parameter's gradient of the
cross-entropy loss.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from legenda import LegendaError, Regions
from legenda.decoding import beam_search
from legenda.importers.loading import StateDictMapper
from legenda.importers.releases import END, PAD, load_mdsan

DATA = Path(__file__).parent / "data"
NAMES = (
    "mdsan_grid_padded",
    "mdsan_region_injected",
    "msa_only_grid_padded",
    "plain_transformer_grid_padded",
    "m2_nomemory",
)


@dataclass(frozen=True, eq=False)
class Case:
    """One file of the data."""

    weights: dict[str, torch.Tensor]
    io: dict[str, torch.Tensor]
    norms: dict[str, torch.Tensor]

    @property
    def meshed(self) -> bool:
        return "decoder.layers.0.fc_alpha1.weight" in self.weights

    def regions(self, dtype: torch.dtype) -> Regions:
        features = self.io["features"].to(dtype)
        if "boxes" not in self.io:
            return Regions.from_grid(features, 7, 7)
        return Regions(features, (self.io["boxes"] / self.io["image_wh"].repeat(1, 2).unsqueeze(1)).to(dtype))

    def model(self, dtype: torch.dtype = torch.float32):
        tensors = {key: value.to(dtype) if value.is_floating_point() else value for key, value in self.weights.items()}
        return load(tensors)


def load(tensors, **options):
    return load_mdsan(StateDictMapper(tensors, "the file"), num_heads=4, **options)


def read(tensors: dict[str, torch.Tensor]) -> Case:
    whole: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "io": {}, "norms": {}}
    for name, value in tensors.items():
        part, key = name.split("/", 1)
        whole[part][key] = value
    return Case(**whole)


@pytest.fixture(scope="module", params=NAMES)
def case(request) -> Case:
    return read(load_file(DATA / f"{request.param}.safetensors"))


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return read(load_file(DATA / "mdsan_grid_padded.safetensors")).weights


def log_probs_of(model, case, dtype):
    return model(case.regions(dtype), case.io["captions"].unsqueeze(1)).squeeze(1).log_softmax(dim=-1)


def check(case, dtype, tolerance):
    with torch.no_grad():
        model = case.model(dtype)
        found = log_probs_of(model, case, dtype)
        assert found.dtype == dtype
        torch.testing.assert_close(found, case.io["logprobs"].to(dtype), atol=tolerance, rtol=0)
        memory, real = model.encode(case.regions(dtype)), ~case.io["enc_mask"].flatten(1)
        assert torch.equal(memory.mask, real)
        for level, expected in zip(
            memory.levels if case.meshed else [memory.states],
            case.io["enc_output"].unbind(dim=1) if case.meshed else [case.io["enc_output"]],
            strict=True,
        ):
            torch.testing.assert_close(level[real], expected[real].to(dtype), atol=tolerance, rtol=0)


# In double the stored numbers' own error in float32 is all that is left.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 5e-6)])
def test_log_probabilities_and_encoded_regions(case, dtype, tolerance):
    check(case, dtype, tolerance)


def test_a_grid_without_padding(shared):
    folder = shared / "fixtures"
    io = load_file(folder / "mdsan_grid.io.safetensors")
    check(Case(load_file(folder / "mdsan_grid.weights.safetensors"), io, {}), torch.float64, 5e-6)


def test_loss_and_gradients(case):
    weights = {key: value.double() if value.is_floating_point() else value for key, value in case.weights.items()}
    mapper = StateDictMapper(weights, "the file")
    model = load_mdsan(mapper, num_heads=4)
    log_probs, captions = log_probs_of(model, case, torch.float64), case.io["captions"]
    loss = F.nll_loss(log_probs[:, :-1].flatten(0, 1), captions[:, 1:].flatten(), ignore_index=PAD)
    assert loss.item() == pytest.approx(case.io["xe_loss"].item(), rel=1e-5)
    loss.backward()
    found = {mapper.source_keys[name]: parameter.grad.norm().item() for name, parameter in model.named_parameters()}
    assert found.keys() == case.norms.keys()
    for name, norm in case.norms.items():
        assert found[name] == pytest.approx(norm.item(), rel=1e-4, abs=1e-6), name  # those of keys' biases are 0


@pytest.mark.parametrize("beam_size", [1, 3, 5])
def test_beam_search(case, beam_size):
    model = case.model()
    found = beam_search(model, case.regions(torch.float32), beam_size=beam_size)
    ids, log_probs = case.io[f"beam{beam_size}_ids"], case.io[f"beam{beam_size}_logprobs"]
    assert found.tokens.shape[1] == beam_size
    torch.testing.assert_close(found.scores, log_probs.sum(dim=-1), atol=2e-5, rtol=0)
    for image in range(len(ids)):
        for beam in range(beam_size):
            caption = ids[image, beam].tolist()
            length = caption.index(END) + 1 if END in caption else len(caption)
            assert found.tokens[image, beam, :length].tolist() == caption[:length]
            generated = found.log_probs[image, beam]
            torch.testing.assert_close(generated[:length], log_probs[image, beam, :length], atol=1e-5, rtol=0)
            assert (generated[length:] == 0).all()


def test_branches_in_some_layers_only(weights):
    single = {name: value for name, value in weights.items() if not re.match(r"encoder\.layers\.0\.mhatts\.[12]", name)}
    model = load(single)
    assert (model.config.branches, model.config.branch_layers) == (3, (2,))
    assert len(model.encoder.layers[0].attention.branches) == 1
    assert model.encoder.layers[0].attention.drop == 0
    assert len(model.encoder.layers[1].attention.branches) == 3
    two = {name: value for name, value in weights.items() if not re.match(r"encoder\.layers\.0\.mhatts\.2", name)}
    with pytest.raises(LegendaError, match=r"\[2, 3\] branches"):
        load(two)


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layers.0.mhatts.0.attention.W",
        "encoder.layer_norm.weight",
        "decoder.pos_emb.weight",
        "decoder.fc.weight",
    ],
)
def test_the_tensor_that_is_wrong_is_named(weights, name):
    lacking = {key: value for key, value in weights.items() if key != name}
    with pytest.raises(LegendaError, match=f"lacks {name}"):
        load(lacking)
    with pytest.raises(LegendaError, match=name):
        load(weights | {name: torch.zeros(3, 7)})
    with pytest.raises(LegendaError, match=rf"holds {name}\.more"):
        load(weights | {f"{name}.more": torch.zeros(2)})
