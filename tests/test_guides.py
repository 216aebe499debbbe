"""The commands of the pages for people with photographs, captions, a table or an attention, on small files.

Those of "COCO from zero" run in test_docs_coco.py. The other guides' commands are parsed in test_docs_commands.py, as
they need models of the hub, a GPU, a server or data of COCO's size; .ci/release_check.py runs README's in an empty
environment.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from legenda.data.captions import ScenesData
from legenda.run_folder import ASSETS
from test_docs import FILES, PAGES

REFERENCES = {
    "astronaut": ["a woman in an orange suit", "an astronaut smiles"],
    "cat": ["a cat lies on a blanket", "a ginger cat on a bed"],
    "coffee": ["a cup of coffee on a plate", "coffee in a red cup"],
    "rocket": ["a rocket starts at night", "a rocket in the sky"],
}
MINE = {"astronaut": "a woman smiles", "cat": "a cat on a bed", "coffee": "a cup of coffee", "rocket": "a night sky"}
OTHER = {"astronaut": "a man", "cat": "a dog on a bed", "coffee": "a red cup", "rocket": "a tower"}
SHORT = "training.epochs=1 data.train=20 data.validation=4 data.test=4 model.dim=16 model.num_heads=2 model.ff_dim=16"


def commands(page: str) -> list[str]:
    """Return the commands of the bash blocks of a page, those without a name in capitals that stands for another."""
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("legenda ") and not re.search(r"\bRUN\b", line)]


@pytest.fixture
def folder(tmp_path, monkeypatch, make_run) -> Path:
    """The files that the pages name: photographs, captions, references, a table, and runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "more"):
        shutil.copytree(ASSETS / "photographs", name)
    shutil.copy("photos/cat.jpg", "photo.jpg")
    for name, content in (("mine", MINE), ("other", OTHER), ("references", REFERENCES)):
        Path(f"{name}.json").write_text(json.dumps(content))
        with Path(f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["file", "caption"])
            for image, texts in content.items():
                rows.writerows([f"{image}.jpg", text] for text in ([texts] if isinstance(texts, str) else texts))
    for name in ("captions.csv", "photos/captions.csv"):
        shutil.copy("references.csv", name)
    for image in Path("photos").glob("*.jpg"):
        shutil.copy(image, image.name)
    entries = [
        {
            "filename": f"{name}.jpg",
            "cocoid": number,
            "split": "test",
            "sentences": [{"raw": text, "tokens": text.split()} for text in texts],
        }
        for number, (name, texts) in enumerate(REFERENCES.items(), 1)
    ]
    Path("dataset_coco.json").write_text(json.dumps({"images": entries}))
    images = [{"id": number, "file_name": f"{name}.jpg"} for number, name in enumerate([*REFERENCES, "extra"], 1)]
    annotations = [
        {"image_id": number, "id": 10 * number, "caption": (*REFERENCES.values(), ["a street"])[number - 1][0]}
        for number in range(1, 6)
    ]
    Path("captions_val2014.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    predictions = [{"image_id": number, "caption": text} for number, text in enumerate(MINE.values(), 1)]
    Path("predictions.json").write_text(json.dumps(predictions))
    data = ScenesData(train=20, validation=4, test=4)
    for name, model in (("mine", "ngsan"), ("demo/ngsan", "ngsan"), ("demo/transformer", "transformer")):
        shutil.copytree(make_run(model, data), Path("runs") / name)
    Path("cosine.py").write_text(FILES["cosine.py"])
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("folder", "forget_plugins")
@pytest.mark.parametrize("page", ["guides/caption-images", "guides/evaluation", "extending/attention"])
def test_the_commands_of_the_page_run(page, run_command, forget_plugins):
    lines = commands(f"docs/{page}.md")
    assert len(lines) >= 3
    for line in lines:
        forget_plugins()
        words = [word.strip("\"'") for word in shlex.split(line, comments=True)][1:]
        code, out, err = run_command(" ".join(words), SHORT if words[0] == "train" else "")
        assert code == 0, f"{line}: {err}"
        assert out + err, line


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_packaged_model_is_fine_tuned_as_the_page_says(run_command):
    shutil.rmtree("runs/mine")
    lines = commands("docs/guides/train-on-your-data.md")
    start = next(number for number, line in enumerate(lines) if "--init-from photo" in line)
    assert len(lines[start:]) == 4
    for line in lines[start:]:
        short = "training.epochs=1 training.batch_size=2" if "train photo" in line else ""
        code, _, err = run_command(line.removeprefix("legenda "), short)
        assert code == 0, f"{line}: {err}"
