"""The training state: what is put away comes back, and a damaged file is named."""

import json
import zlib

import pytest
import safetensors.torch
import torch
from torch import nn

from legenda.errors import LegendaError
from legenda.run_folder import HISTORY, STATE
from legenda.training.checkpoint import (
    Progress,
    collect_state,
    load_state,
    open_history,
    read_history,
    read_progress,
    save_state,
)

PROGRESS = Progress(epoch=3, step_in_epoch=2, step=17, best=0.1 + 0.2, best_epoch=2, seconds=4.5, sums={"loss": 1 / 3})


def trained(width: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A layer after two steps of Adam, so that the optimiser holds something."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.randn(5, width)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def folder(tmp_path):
    """A folder with a saved state."""
    save_state(tmp_path, PROGRESS, collect_state(*trained()))
    return tmp_path


def test_weights_optimiser_random_numbers_and_progress_come_back_exactly(tmp_path):
    model, optimizer = trained()
    save_state(tmp_path, PROGRESS, collect_state(model, optimizer))
    drawn = torch.rand(3)
    other, other_optimizer = trained()
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    assert load_state(tmp_path, other, other_optimizer) == PROGRESS == read_progress(tmp_path)
    assert torch.equal(torch.rand(3), drawn)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    state, other_state = optimizer.state_dict()["state"], other_optimizer.state_dict()["state"]
    assert state.keys() == other_state.keys()
    for index, values in state.items():
        assert values.keys() == other_state[index].keys()
        assert all(torch.equal(value, other_state[index][name]) for name, value in values.items())


def test_a_state_of_fewer_processes_is_refused_without_advice_to_delete_it(folder):
    with pytest.raises(LegendaError, match="--devices") as caught:
        load_state(folder, *trained(), rank=1)
    assert "delete" not in str(caught.value)


def test_a_state_of_the_optimizer_that_lost_a_part_is_refused(tmp_path):
    tensors = collect_state(*trained())
    tensors["optimizer.1.exp_bvg"] = tensors.pop("optimizer.1.exp_avg")
    save_state(tmp_path, PROGRESS, tensors)
    with pytest.raises(LegendaError, match=STATE):
        load_state(tmp_path, *trained())


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_named(folder, keep):
    path = folder / STATE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(LegendaError, match=STATE):
        load_state(folder, *trained())
    with pytest.raises(LegendaError, match=STATE):
        read_progress(folder)


def test_a_changed_bit_is_found(folder):
    path = folder / STATE
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(LegendaError, match="checksum"):
        load_state(folder, *trained())


@pytest.mark.parametrize(
    "progress", [None, "{", '{"epochs": 3}', '{"epoch": 3, "stage_epoch": 4294967295}', '{"step": 3, "stage_step": 4}']
)
def test_a_file_without_progress_is_no_training_state(tmp_path, progress):
    metadata = None if progress is None else {"progress": progress, "checksum": f"{zlib.crc32(progress.encode()):08x}"}
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / STATE, metadata)
    with pytest.raises(LegendaError, match=STATE):
        read_progress(tmp_path)


def test_a_changed_progress_is_refused(folder):
    path = folder / STATE
    path.write_bytes(path.read_bytes().replace(b'"epoch\\": 3', b'"epoch\\": 2'))
    with pytest.raises(LegendaError, match=STATE):
        read_progress(folder)


def test_a_last_line_that_was_cut_off_is_left_out_and_another_is_named(tmp_path):
    completed_run = json.dumps({"step": 20})
    (tmp_path / HISTORY).write_text(f'{completed_run}\n{{"step": 4')
    assert read_history(tmp_path) == [{"step": 20}]
    open_history(tmp_path, Progress(step=20))
    assert (tmp_path / HISTORY).read_text() == f"{completed_run}\n"
    (tmp_path / HISTORY).write_text(f'{completed_run}\n{{"step": 4\n{completed_run}\n')
    with pytest.raises(LegendaError, match=rf"{HISTORY}.*line 2"):
        read_history(tmp_path)
