"""Tasks other than captioning: trained, resumed and evaluated by the same commands."""

import json

import pytest
from PIL import Image

from command_results import error_of
from legenda.training.checkpoint import read_history, read_progress

SHORT = "training.epochs=1 training.batch_size=8 training.eval_beam_size=1 training.eval_every=1"
SCENES = "data.train=12 data.validation=6 data.test=6"
SMALL = "model.dim=16 model.num_heads=2 model.num_layers=1 model.ff_dim=16"
RECIPES = {
    "vqa.scenes_gsa": ("vqa", f"{SCENES} {SMALL} model.geometry_dim=8"),
    "grounding.scenes": ("grounding", f"{SCENES} {SMALL}"),
    "number_words.transformer": ("translation", f"data.train=40 data.validation=6 data.test=6 {SMALL}"),
    "video.aoanet": ("captioning", f"{SCENES} model.dim=16 model.num_heads=2 model.additive_dim=8"),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_task_is_trained_and_evaluated_by_the_same_commands(recipe, tmp_path, run_command):
    task, options = RECIPES[recipe]
    folder = tmp_path / "run"
    for _ in range(2):  # the second call finds it finished
        code, out, err = run_command(f"train {recipe} --out {folder}", SHORT, options)
        assert code == 0, err
        assert out.rstrip().endswith(f"next: legenda evaluate {folder}")
    assert [record["step"] for record in read_history(folder) if "validation" in record] == [read_progress(folder).step]
    config = (folder / "config.json").read_text()
    assert json.loads(config)["task"] == task

    code, out, err = run_command(f"evaluate {folder} --split test --beam-size 2")
    assert code == 0, err
    written = json.loads((folder / "evaluation_test.json").read_text())
    assert written["captions" if task == "captioning" else "predictions"]
    for name, value in written["scores"].items():
        assert f"{name:<8} {'none' if value is None else f'{value:.4f}'}" in out
    if task == "captioning":
        return

    code, out, err = run_command(f"evaluate {folder} --split test --submission-dir {tmp_path} --algorithm My_model")
    if task == "vqa":
        assert code == 0, err
        answers = json.loads((tmp_path / "v2_OpenEnded_mscoco_test2015_My-model_results.json").read_text())
        expected = [{"question_id": name, "answer": answer} for name, answer in written["predictions"].items()]
        assert answers == expected
    else:
        assert (code, out) == (2, "")
        assert "--submission-dir" in err
        assert f"{task}, as of {folder}" in err
    assert f"--repeats is for captioners, but {folder} was trained for {task}; leave it out" in error_of(
        run_command(f"evaluate {folder} --repeats keep")
    )
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    assert str(folder) in error_of(run_command(f"caption {tmp_path / 'a.png'} --model {folder}"))
    (folder / "config.json").write_text(config.replace(f'"task": "{task}"', '"task": "juggling"'))
    code, _, err = run_command(f"evaluate {folder}")
    assert code == 2
    assert "'juggling'" in err
