"""The demo's page on two tiny runs, and the command; `make demo` runs the full demo."""

from pathlib import Path

import pytest

from legenda.cli import demo
from legenda.cli.demo import caption_photographs, write_demo_report
from legenda.cli.main import main
from legenda.errors import LegendaError
from legenda.report.images import packaged_photographs

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8 model.geometry_dim=4"
SHORT = "training.epochs=2 training.batch_size=3 training.captions_per_image=1 training.eval_beam_size=1"
SCENES = "data.train=30 data.validation=3 data.test=18"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two trained runs in the folders of the demo."""
    folder = tmp_path_factory.mktemp("runs")
    for name in demo.MODELS:
        main(f"train scenes.{name} --out {folder / name} {TINY} {SHORT} {SCENES}".split())
    return folder


@pytest.fixture(autouse=True)
def photograph_model(runs, monkeypatch):
    """A model of scenes stands for the packaged one, which is tested elsewhere."""
    monkeypatch.setattr(demo, "PHOTOGRAPH_MODEL", str(runs / "ngsan"))


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory) -> tuple[str, str]:
    """The table that was printed, and the page."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    photographs = caption_photographs(str(runs / "ngsan"))
    table = write_demo_report({name: runs / name for name in demo.MODELS}, path, photographs)
    return table, path.read_text(encoding="utf-8")


def test_photographs_come_first_and_before_the_training(page, runs, tmp_path, monkeypatch, capsys):
    _, html = page
    names = [path.stem for path in packaged_photographs()]
    positions = [html.index(f'"id":"{name}"') for name in names]
    assert positions == sorted(positions)
    assert positions[-1] < html.index('"id":"test-0-')
    report = tmp_path / "report.html"

    def stop(_):
        raise LegendaError("before the training")

    monkeypatch.setattr(demo, "_train", stop)
    with pytest.raises(LegendaError, match="before the training"):
        demo.run(demo.DemoOptions(runs=runs, report=report))
    output = capsys.readouterr().out
    assert str(report) in output
    first = report.read_text(encoding="utf-8")
    for name in names:
        assert f"\n{name}: " in f"\n{output}"
        assert f'"id":"{name}"' in first
    assert '"attention":[[' in first
    assert '"id":"test-0-' not in first


def test_the_demo_uses_trained_runs_and_ends_with_the_command_for_photographs(runs, tmp_path, capsys):
    report = tmp_path / "report.html"
    demo.run(demo.DemoOptions(runs=runs, report=report))
    output = capsys.readouterr().out
    assert "ngsan is already trained" in output
    assert "transformer is already trained" in output
    assert str(report) in output
    assert report.stat().st_size > 10_000
    assert output.endswith(" caption photo.jpg\n")


def test_failed_training_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "MODELS", ("absent",))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LegendaError, match=r"absent.*scenes\.absent"):
        demo.run(demo.DemoOptions(runs=tmp_path, report=tmp_path / "report.html"))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
