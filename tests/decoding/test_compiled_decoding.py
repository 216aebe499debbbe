"""Generation with a compiled decoding step and a static cache finds the same as without."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from legenda.compute import RunOptions
from legenda.decoding import beam_search
from legenda.errors import ConfigError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "names"),
    [("eager", ["ngsan", "aoanet", "xlan", "xtransformer", "mdsan", "meshed"]), ("inductor", ["transformer"])],
)
def test_searches_find_the_same(backend, names):
    subprocess.run([sys.executable, Path(__file__).with_name("compiled_search.py"), backend, *names], check=True)


def test_the_compiled_step_is_called_with_a_static_cache(build, regions):
    model, calls = build(), []

    def step(tokens, state, memory):
        calls.append((tuple(tokens.shape), state.kv_cache[0][0].shape[3]))
        return model.decoder.step(tokens, state, memory)

    model.decoder.compiled_step = step
    beam_search(model, regions, beam_size=3, max_length=4)
    assert calls[:2] == [((2, 1), 4), ((2, 3), 4)]


def test_the_option_compiles_models_that_generate_text(build):
    model = build()
    RunOptions(device="cpu").apply(model)
    assert model.decoder.compiled_step is None
    RunOptions(device="cpu", compile=True).apply(model)
    assert model.decoder.compiled_step is not None
    mcan = torch.nn.Module()
    mcan.name = "mcan"
    with pytest.raises(ConfigError, match="mcan"):
        RunOptions(device="cpu", compile=True).apply(mcan)
    with pytest.raises(ConfigError, match="bf16"):
        RunOptions(device="cpu", precision="bf16", compile=True).apply(model)
