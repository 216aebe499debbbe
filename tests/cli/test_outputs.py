"""No command writes its output over what it reads."""

import json
from pathlib import Path

import pytest

from command_results import error_of
from legenda.run_folder import evaluation_path


@pytest.fixture
def files(make_run, noisy_photographs, tmp_path, monkeypatch) -> dict[str, Path]:
    """Files of captions in the current folder, a run whose evaluation they are, and its data."""
    monkeypatch.chdir(tmp_path)
    for name in ("first.json", "second.json", "references.json"):
        Path(name).write_text(json.dumps({"1": ["a dog runs"], "2": ["a cat"]}))
    run = make_run("transformer", noisy_photographs.data)
    evaluation_path(run, "val").write_text(Path("first.json").read_text())
    return {"run": run, "data": noisy_photographs.folder.parent}


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("compare first.json second.json --references references.json", "second.json"),
        ("compare {run} {run}", "{run}/config.json"),
        ("score first.json references.json --compare-with second.json", "second.json"),
        ("report {run}", "{run}/model.safetensors"),
        ("score first.json references.json", "{run}/config.json"),
        ("report {run} --images {data}/images", "{data}/images/p1.jpg"),
        ("evaluate {run}", "{data}/dataset.json"),
        ("caption {data}/images --model {run}", "{data}/images/p1.jpg"),
        ("extract {data}/images --extractor second.json", "second.json"),
    ],
)
def test_an_output_that_is_read_is_refused(files, run_command, command, out):
    path = Path(out.format(**files))
    before = path.read_bytes()
    Path("link.json").symlink_to(path)
    for named in (path, "link.json"):
        error = error_of(run_command(f"{command.format(**files)} --out {named}"))
        assert str(named) in error
        assert path.read_bytes() == before


def test_outputs_that_are_not_read_may_be_written_again(files, run_command):
    compared = "compare first.json second.json --references references.json --metrics fast --out {run}/both.json"
    for command in (compared, "evaluate {run} --out {run}/evaluation_val.json", "report {run} --out {run}/r.html"):
        for _ in range(2):
            code, _, err = run_command(command.format(**files))
            assert code == 0, err
