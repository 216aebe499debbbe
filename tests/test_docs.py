"""The documentation: its Python runs, its links lead somewhere, its guides stay short."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

import legenda
from legenda import models
from legenda.papers import RECIPES
from legenda.registry import run_source
from legenda.tasks.self_critical import REWARDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {"README.md": README} | {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))
}
BLOCKS = {
    f"{page}:{number}": block
    for page, text in PAGES.items()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
}
FILES = {block.split("\n")[0][2:]: block for block in BLOCKS.values() if re.match(r"# \w+\.py\n", block)}
"""Blocks that are files, by the name in their first line."""

NEEDS_RUN = ("# with a trained run", "# truthful.py")
SMALL = {"dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 32}


@pytest.mark.parametrize("name", [name for name, block in BLOCKS.items() if not block.startswith(NEEDS_RUN)])
@pytest.mark.usefixtures("forget_plugins")
def test_python_blocks_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = "\n".join(line for line in BLOCKS[name].splitlines() if "runs/demo" not in line)
    with torch.device("meta" if "9488" in block and "Regions" not in block else "cpu"):  # nothing is computed there
        run_source(Path(name), f"import legenda\n{block}".encode(), "docs_block")


@pytest.mark.usefixtures("forget_plugins")
def test_blocks_print_what_their_comments_state(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, end in {
        "docs/guides/evaluation.md:0": " 3 the references scored\n",
        "docs/guides/visualization.md:0": "(320, 240) (760, 278)\n",
        "docs/extending/metric.md:0": "0.6\n",
    }.items():
        run_source(Path(name), BLOCKS[name].encode(), "docs_block")
        assert capsys.readouterr().out.endswith(end)


@pytest.fixture
def load(tmp_path, forget_plugins) -> Callable[[str], ModuleType]:  # noqa: ARG001
    """Load a file of the pages on extending as a plugin."""

    def call(name: str) -> ModuleType:
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
        return legenda.load_plugin(tmp_path / name)

    return call


def test_the_attention_of_the_page_on_extending(load):
    load("cosine.py")
    model = legenda.create_model("transformer", vocab_size=9, feature_dim=5, attention="cosine", **SMALL).eval()
    features, mask = torch.randn(2, 4, 5), torch.tensor([[True] * 4, [True, True, False, False]])
    tokens = torch.zeros(2, 1, 3, dtype=torch.long)
    padded = model(legenda.Regions(features, mask=mask), tokens)[1]
    alone = model(legenda.Regions(features[1:, :2]), tokens[1:])[0]
    torch.testing.assert_close(padded, alone)
    for name, options in (("gsan", {}), ("aoanet", {"geometry": "query+key", "multi_head_scale": 2})):
        model = legenda.create_model(name, vocab_size=9, feature_dim=5, attention="cosine", **SMALL, **options).eval()
        boxes = torch.rand(2, 2, 4, 4).sort(dim=-1).values
        here, there = (model(legenda.Regions(features, part, mask), tokens) for part in boxes)
        assert not torch.equal(here, there)
    with pytest.raises(legenda.ConfigError, match="norm='in'"):
        legenda.create_model("ngsan", vocab_size=9, feature_dim=5, attention="cosine", **SMALL)


def test_the_decoder_of_the_page_on_extending(load):
    load("gru.py")
    model = legenda.create_model("nsan", vocab_size=9, feature_dim=5, decoder="gru", **SMALL).eval()
    assert type(model.decoder).__name__ == "GRUDecoder"
    regions = legenda.Regions(torch.randn(2, 4, 5))
    output = legenda.decoding.beam_search(model, regions, beam_size=2, max_length=4, need_attention=True)
    rows = torch.cat([torch.full((2, 2, 1), model.generation_config.bos_token_id), output.tokens[..., :-1]], dim=-1)
    chosen = model(regions, rows).log_softmax(-1).gather(-1, output.tokens.unsqueeze(-1)).squeeze(-1)
    ended = output.tokens.eq(model.generation_config.eos_token_id).cumsum(-1)
    counted = ended.cumsum(-1) <= 1  # up to the end token
    torch.testing.assert_close(chosen * counted, output.log_probs)


def test_the_loss_of_the_page_on_extending(load):
    module = load("focal.py")
    logits = torch.tensor([0.25, 0.75]).log().expand(1, 1, 2, 2)
    loss = module.FocalLoss.sum_cross_entropy(None, logits, torch.tensor([[[1, -1]]]))
    assert loss.item() == pytest.approx(-(0.25**2) * math.log(0.75))
    assert module.FocalCaptioning.name == RECIPES.get("focal").task


def test_the_extractor_with_a_name_of_the_page_on_extending(load):
    load("blocks.py")
    extractor = legenda.extractors.load_extractor("blocks:3")
    ((features, boxes),) = extractor.extract([Image.new("RGB", (9, 6), (255, 0, 0))])
    assert (extractor.name, features.shape, boxes) == ("blocks:3", (9, 3), None)


def test_the_other_parts_of_the_page_on_extending(load, tmp_path):
    load("parts.py")
    overrides = {**RECIPES.get("scenes.rms").model_overrides, **SMALL}
    model = legenda.create_model("ngsan", vocab_size=9, feature_dim=5, **overrides).eval()
    assert type(model.encoder.layers[0].attention.query_norm).__name__ == "MaskedRMSNorm"
    boxes = torch.rand(2, 4, 4).sort(dim=-1).values[..., [0, 1, 2, 3]]
    assert model(legenda.Regions(torch.randn(2, 4, 5), boxes), torch.zeros(2, 1, 3, dtype=torch.long)).isfinite().all()
    (tmp_path / "features.mine").mkdir()
    with pytest.raises(legenda.DataError, match=r"features\.mine"):
        legenda.features.open_features(tmp_path / "features.mine")


@pytest.mark.usefixtures("forget_plugins")
def test_the_model_of_the_page_on_extending():
    model = run_source(Path("mean_model.py"), FILES["mean_model.py"].encode(), "mean_model").model.eval()
    assert "mean_regions" in models.list_models()
    output = legenda.decoding.beam_search(model, legenda.Regions(torch.randn(2, 4, 8)), max_length=4)
    assert output.tokens.shape[:2] == (2, 3)


@pytest.mark.usefixtures("forget_plugins")
def test_the_data_set_of_the_page_on_extending_trains(run_command, tmp_path):
    (tmp_path / "shades.py").write_text(FILES["shades.py"], encoding="utf-8")
    file = f"--plugin {tmp_path / 'shades.py'}"
    code, out, err = run_command(f"train shades {file} --out {tmp_path / 'run'}")
    assert code == 0, err
    assert f"legenda evaluate {tmp_path / 'run'} --plugin {tmp_path / 'shades.py'}" in out
    code, out, err = run_command(f"evaluate {tmp_path / 'run'} {file} --split test")
    assert code == 0, err
    assert "CIDEr-D" in out


def test_the_reward_of_the_page_on_extending(load):
    load("unique.py")
    tokens = torch.tensor([[[4, 4, 0], [4, 5, 0]]]).numpy()
    values = REWARDS.get("unique")(torch.arange(1).numpy(), tokens)
    assert values.shape == (1, 2)
    assert values[0, 1] > values[0, 0]
    assert "unique" in RECIPES.get("unique").stages[0].self_critical.rewards


def test_examples_of_the_page_on_extending_have_at_most_40_lines():
    for name, block in BLOCKS.items():
        assert "extending" not in name or block.count("\n") <= 40, name


def test_links_lead_to_files():
    for page, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", prose):
            path = "".join(target)
            if not path.startswith(("http", "#")):
                assert (ROOT / page).parent.joinpath(path).exists(), f"{page}: {path}"


def test_the_navigation_has_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    assert {f"docs/{page}" for page in re.findall(r": ([\w/-]+\.md)", navigation)} == set(PAGES) - {"README.md"}


def test_guides_have_at_most_900_words_and_the_readme_600():
    for page, text in PAGES.items():
        if page == "README.md" or "/guides/" in page:
            words = len(re.findall(r"[^\W_][\w.,'-]*", re.sub(r"\]\([^)]*\)", "]", text)))
            assert words <= (600 if page == "README.md" else 900), page


def test_messages_of_the_page_on_troubleshooting_are_those_of_the_code():
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    code = "\n".join(re.sub(r'"\s*\n\s*f?"', "", source) for source in sources)
    table = PAGES["docs/troubleshooting.md"].split("## Messages")[1].split("\n## ")[0]
    for message in re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE):
        assert message in code, message
