"""`legenda evaluate --submission-dir`: the files of COCO's server, and what it needs."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_results import error_of
from legenda.data.captions import KarpathyData
from legenda.evaluation.evaluate import IMAGE_COUNTS
from legenda.features import write_store

pytestmark = pytest.mark.usefixtures("one_thread")

VAL = {391895: "train", 522418: "val", 7: "test"}
OTHER = {9: "train", 11: "train"}
TEST = ("COCO_test2014_000000000001", "42")


def store(path: Path, ids: tuple[str, ...], extractor: str = "mine-1") -> Path:
    generator = np.random.default_rng(0)
    write_store(path, [(name, generator.random((2, 4), np.float32), None) for name in ids], extractor=extractor)
    return path


@pytest.fixture(scope="module")
def coco(tmp_path_factory, make_run) -> Path:
    """A run on five images, three of them in val2014, and the features of two images of test2014."""
    folder = tmp_path_factory.mktemp("coco")
    images = [
        {
            "filepath": part,
            "filename": f"COCO_{part}_{number:012d}.jpg",
            "cocoid": number,
            "split": split,
            "sentences": [{"raw": "A dog."}, {"raw": "Dogs run."}],
        }
        for part, numbers in (("val2014", VAL), ("train2014", OTHER))
        for number, split in numbers.items()
    ]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images}))
    store(folder / "features.safetensors", tuple(map(str, (*VAL, *OTHER))))
    store(folder / "test.safetensors", TEST)
    data = KarpathyData(annotations=folder / "dataset_coco.json", features=folder / "features.safetensors", min_count=1)
    make_run("transformer", data, folder=folder / "my_run.2")
    return folder


@pytest.fixture
def submit(coco, run_command, monkeypatch, tmp_path):
    """Call `legenda evaluate --submission-dir` with parts of COCO as small as here; return code, stdout, stderr."""
    monkeypatch.setitem(IMAGE_COUNTS, "val2014", 3)
    monkeypatch.setitem(IMAGE_COUNTS, "test2014", 2)

    return lambda line: run_command(f"evaluate {coco}/my_run.2 --submission-dir {tmp_path}/server {line}")


def test_both_files_have_the_format_of_the_server(submit, coco, tmp_path):
    code, out, err = submit(f"--test-features {coco}/test.safetensors --beam-size 2")
    assert (code, err) == (0, "")
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "server").iterdir()}
    assert len(files.pop("weights.json")) == 1
    assert sorted(files) == ["captions_test2014_my-run-2_results.json", "captions_val2014_my-run-2_results.json"]
    numbers = {name.split("_")[1]: [entry["image_id"] for entry in entries] for name, entries in files.items()}
    assert numbers == {"val2014": list(VAL), "test2014": [1, 42]}
    assert all(isinstance(entry["caption"], str) and len(entry) == 2 for part in files.values() for entry in part)
    assert out.splitlines() == [
        f"{tmp_path}/server/captions_val2014_my-run-2_results.json: 3 images",
        f"{tmp_path}/server/captions_test2014_my-run-2_results.json: 2 images",
    ]


@pytest.mark.parametrize(
    ("ids", "extractor", "message"),
    [
        (None, "", "--submission-dir also captions test2014; name its features with --test-features"),
        (("1",), "mine-1", "names 1 image of test2014, but COCO's server takes captions of all 2 or none"),
        (("1", "dog"), "mine-1", "holds dog, which is not an image of test2014"),
        (TEST, "yours-1", "was made by the extractor yours-1, but"),
    ],
)
def test_what_is_missing_is_named(submit, tmp_path, ids, extractor, message):
    option = "" if ids is None else f"--test-features {store(tmp_path / 't.safetensors', ids, extractor)}"
    assert message in error_of(submit(option))
    assert not (tmp_path / "server").exists()
