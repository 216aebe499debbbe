"""From a recipe to captions of an image file, and the messages of errors on the way."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.cli.main import main
from legenda.datasets.scenes import draw_scene, make_scene
from legenda.features import PackedFeatureStore, write_store
from legenda.features.identity import extractor_name

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = "--model.dim 8 --model.num-heads 2 --model.num-layers 1 --model.ff-dim 8 --model.geometry-dim 4"
SHORT = "--training.epochs 1 --training.batch-size 4 --training.captions_per_image 2 --training.eval-beam-size 1"
SCENES = "--data.train 12 --data.validation 3 --data.test 4"

EXTRACTOR = '''
import numpy as np

def extract(pictures):
    """Return the mean colors of the left and the right half; the upper left pixel selects an error."""
    given = []
    for picture in pictures:
        pixels = np.asarray(picture, dtype=np.float32) / 255
        middle = pixels.shape[1] // 2
        halves = [pixels[:, :middle].mean((0, 1)), pixels[:, middle:].mean((0, 1))]
        features = np.stack([np.concatenate([half, [1.0]]) for half in halves])
        boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
        match tuple(np.asarray(picture)[0, 0]):
            case (1, 1, 1):
                features[0, 0] = np.nan
            case (2, 2, 2):
                features = features[:, :3]
            case (3, 3, 3):
                boxes = None
            case (4, 4, 4):
                features, boxes = features[:0], boxes[:0]
            case (6, 6, 6):
                boxes = boxes * 640
            case (7, 7, 7):
                boxes = boxes[:, [2, 3, 0, 1]]
            case (5, 5, 5):
                raise RuntimeError("out of memory")
        given.append((features, boxes))
    return given
'''
NAN, NARROW, BOXLESS, EMPTY, FAILS, PIXELS, REVERSED = range(1, 8)


def error_of(result: tuple[int, str, str]) -> str:
    """Return the error message of a command that failed with code 2; lines of progress may precede it."""
    code, out, err = result
    assert (code, out) == (2, "")
    *before, sentence = err.splitlines()
    assert sentence.startswith("legenda ")
    assert all(line.startswith(("drawing ", "reading ")) or line.endswith((" pictures", " images")) for line in before)
    return sentence


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def scenes_run(tmp_path_factory) -> Path:
    """A model of scenes, trained for one epoch."""
    folder = tmp_path_factory.mktemp("scenes") / "run"
    main(f"train scenes.ngsan --out {folder} {TINY} {SHORT} {SCENES}".split())
    return folder


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """Eight random images, an extractor, their features, annotations, and a transformer trained on them."""
    folder = tmp_path_factory.mktemp("photographs")
    (folder / "pictures").mkdir()
    images = []
    for number, split in enumerate(["train"] * 4 + ["val"] * 2 + ["test"] * 2):
        picture = np.random.default_rng(number).integers(10, 255, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / "pictures" / f"{number}.png")
        images.append({"filename": f"{number}.png", "split": split, "sentences": [{"raw": "A dog."}, {"raw": "Dogs."}]})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    (folder / "mine.py").write_text(EXTRACTOR)
    features = folder / "features.safetensors"
    main(f"extract {folder / 'pictures'} --extractor {folder / 'mine.py'} --out {features}".split())
    main(f"train flickr8k.transformer --out {folder / 'run'} {data_options(folder)} {TINY} {SHORT}".split())
    return folder


def data_options(folder: Path, features: str = "features.safetensors") -> str:
    annotations = folder / "dataset.json"
    return f"--data.annotations {annotations} --data.features {folder / features} --data.min-count 1"


def faulty_image(folder: Path, shade: int) -> Path:
    path = folder / f"faulty{shade}.png"
    Image.new("RGB", (6, 6), (shade, shade, shade)).save(path)
    return path


def test_a_scene_is_trained_evaluated_and_captioned(scenes_run, run_command, tmp_path):
    code, out, _ = run_command(f"evaluate {scenes_run} --split test --beam-size 2")
    assert code == 0
    assert all(name in out for name in ("CIDEr-D", "truth", "4 images of test, beam 2"))
    written = json.loads((scenes_run / "evaluation_test.json").read_text())
    assert (written["split"], written["images"], written["beam_size"]) == ("test", 4, 2)
    code, out, _ = run_command(f"evaluate {scenes_run} --do-sample --top-k 5 --seed 3")
    assert code == 0
    assert "3 images of val, samples of seed 3" in out
    search = json.loads((scenes_run / "evaluation_val.json").read_text())["search"]
    assert (search["do_sample"], search["top_k"], search["top_p"], search["seed"]) == (True, 5, None, 3)
    assert len(written["captions"]) == 4
    assert written["scores"]["truth"] is not None
    picture = tmp_path / "fresh.png"
    draw_scene(make_scene("fresh", 1)).save(picture)
    code, out, err = run_command(f"caption {picture} --model {scenes_run}")
    assert (code, err) == (0, "")
    assert out.startswith(f"{picture}: ")
    assert out.count("\n") == 1


def test_a_folder_of_images_is_captioned_in_order(scenes_run, run_command, tmp_path):
    for number in range(3):
        draw_scene(make_scene("fresh", number)).save(tmp_path / f"{number}.png")
    code, out, _ = run_command(f"caption {tmp_path} --model {scenes_run}")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [str(tmp_path / f"{n}.png") for n in range(3)]


def test_the_caption_of_a_file_equals_that_of_evaluation(scenes_run, run_command, tmp_path):
    """`legenda caption` and `legenda evaluate` caption the same scene alike."""
    run_command(f"evaluate {scenes_run} --split val")
    expected = json.loads((scenes_run / "evaluation_val.json").read_text())["captions"]
    for number in range(3):
        picture = tmp_path / f"{number}.png"
        draw_scene(make_scene("val", number)).save(picture)
        _, out, _ = run_command(f"caption {picture} --model {scenes_run}")
        assert out == f"{picture}: {expected[f'val-0-{number:06d}']}\n"


def test_training_again_resumes_or_rejects_other_settings(scenes_run, run_command):
    before = everything_in(scenes_run)
    code, out, _ = run_command(f"train scenes.ngsan --out {scenes_run} {TINY} {SHORT} {SCENES}")
    assert code == 0
    assert str(scenes_run) in out
    output = error_of(run_command(f"train scenes.ngsan --out {scenes_run} {TINY} {SHORT} {SCENES} --training.seed 2"))
    assert "holds a run with other settings" in output
    assert everything_in(scenes_run) == before


def test_unreadable_images_are_named_and_the_others_captioned(scenes_run, run_command, tmp_path):
    draw_scene(make_scene("fresh", 0)).save(tmp_path / "b.png")
    whole = (tmp_path / "b.png").read_bytes()
    (tmp_path / "a.png").write_text("not an image")
    (tmp_path / "c.png").write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (20, 20)).save(tmp_path / "d.png")
    code, out, err = run_command(f"caption {tmp_path} --model {scenes_run}")
    assert code == 2
    assert out.startswith(f"{tmp_path / 'b.png'}: ")
    assert out.count("\n") == 1
    lines = err.splitlines()
    assert [name in line for name, line in zip(("a.png", "c.png", "d.png"), lines, strict=False)] == [True] * 3
    assert "shows 0 things on a plain ground" in lines[2]
    assert lines[3:] == ["legenda caption: 3 of 4 images were skipped; repair or leave out the images named above"]


def test_an_earlier_output_is_kept_where_all_images_fail(scenes_run, run_command, tmp_path):
    out = tmp_path / "captions.txt"
    out.write_text("a.png: a circle\n")
    for name in "ab":
        (tmp_path / f"{name}.png").write_text("not an image")
        *_, sentence = run_command(f"caption {tmp_path} --model {scenes_run} --out {out}")[2].splitlines()
        assert sentence.startswith("legenda caption: ")
        assert sentence.endswith(f"; {out} was not written")
        assert out.read_text() == "a.png: a circle\n"
    assert "2 of 2 images were skipped" in sentence
    draw_scene(make_scene("fresh", 0)).save(tmp_path / "c.png")
    code, _, err = run_command(f"caption {tmp_path} --model {scenes_run} --out {out}")
    assert code == 2
    assert "was not written" not in err
    assert out.read_text().startswith(f"{tmp_path / 'c.png'}: ")


def test_an_empty_folder_is_an_error(scenes_run, run_command, tmp_path):
    for command in (
        f"caption {tmp_path} --model {scenes_run}",
        f"extract {tmp_path} --extractor scenes --out {tmp_path}/f",
    ):
        assert f"{tmp_path} holds no image" in error_of(run_command(command))
    assert list(tmp_path.iterdir()) == []


def test_missing_images_are_an_error(scenes_run, run_command):
    assert "name at least one image" in error_of(run_command(f"caption --model {scenes_run}"))


@pytest.mark.parametrize("command", ["evaluate {run}", "caption {picture} --model {run}"])
@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("config.json", None),
        ("config.json", 0.5),
        ("model.safetensors", None),
        ("model.safetensors", 0.5),
        ("vocabulary.txt", None),
        ("vocabulary.txt", 0.5),
        ("vocabulary.txt", 0.0),
    ],
)
def test_a_missing_or_truncated_file_of_the_run_is_named(scenes_run, run_command, tmp_path, command, name, keep):
    run = tmp_path / "run"
    shutil.copytree(scenes_run, run)
    content = (run / name).read_bytes()
    (run / name).unlink()
    if keep is not None:
        (run / name).write_bytes(content[: int(keep * len(content))])
    picture = tmp_path / "fresh.png"
    draw_scene(make_scene("fresh", 1)).save(picture)
    before = everything_in(tmp_path)
    assert str(run / name) in error_of(run_command(command.format(run=run, picture=picture)))
    assert everything_in(tmp_path) == before


def test_a_config_without_data_or_model_is_named(scenes_run, run_command, tmp_path):
    shutil.copytree(scenes_run, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    whole = json.loads(path.read_text())
    for part in ("data", "model"):
        path.write_text(json.dumps({key: value for key, value in whole.items() if key != part}))
        assert str(path) in error_of(run_command(f"evaluate {tmp_path / 'run'}"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": "many"}, ": data takes train as int, not 'many'"),
        ({"kind": "photographs"}, ": there is no data set 'photographs'"),
        ({"train": [12]}, ": data takes train as int, not [12]"),
        ({"colour": 1}, ": data has no option 'colour'"),
    ],
)
def test_invalid_data_settings_in_the_config_are_named(scenes_run, run_command, tmp_path, wrong, message):
    shutil.copytree(scenes_run, tmp_path / "run", ignore=shutil.ignore_patterns("evaluation*"))
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "data": {**config["data"], **wrong}}))
    before = everything_in(tmp_path)
    assert f"{path}{message}" in error_of(run_command(f"evaluate {tmp_path / 'run'}"))
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--model.dropout 1.5", "dropout"),
        ("--model.dropout 1", "dropout"),
        ("--training.betas 2 2", "training.betas must be in [0, 1)"),
        ("--training.seed -1", "training.seed must be 0 or more"),
        ("--training.checkpoint-every -1", "training.checkpoint_every must be 0 or more"),
        ("--training.monitor trut", "training.monitor='trut' is not a validation score; did you mean truth?"),
        ("--model.geometry quer", "geometry='quer' is unknown; choose from none, absolute"),
        ("--model.dim 9", "dim"),
        ("--model.num-layers 0", "num_layers must be at least 1, not 0"),
        ("--data.train 0", "the split train of scenes takes at least 1 example, not 0"),
    ],
)
def test_an_invalid_setting_is_one_sentence_and_leaves_no_folder(run_command, tmp_path, wrong, message):
    run = tmp_path / "run"
    assert message in error_of(run_command(f"train scenes.ngsan --out {run} {TINY} {SHORT} {SCENES} {wrong}"))
    assert not run.exists()


def test_a_file_in_place_of_the_run_folder_is_named(run_command, tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    assert str(path) in error_of(run_command(f"train scenes.ngsan --out {path} {TINY} {SHORT} {SCENES}"))
    assert path.read_text() == "mine"


def test_images_are_captioned_with_a_user_defined_extractor(photographs, run_command):
    store = PackedFeatureStore(photographs / "features.safetensors")
    assert len(store) == 8
    assert (store.feature_dim, store.has_boxes) == (4, True)
    assert store.extractor.startswith("mine-")
    code, out, _ = run_command(f"evaluate {photographs / 'run'} --split test")
    assert code == 0
    assert "CIDEr-D" in out
    assert "truth" not in out
    expected = json.loads((photographs / "run" / "evaluation_test.json").read_text())["captions"]
    picture, extractor = photographs / "pictures" / "6.png", photographs / "mine.py"
    code, out, _ = run_command(f"caption {picture} --model {photographs / 'run'} --extractor {extractor}")
    assert (code, out) == (0, f"{picture}: {expected['6']}\n")


def test_a_split_without_captions_is_captioned_and_not_scored(photographs, run_command, tmp_path):
    run_command(f"evaluate {photographs / 'run'} --split test")
    expected = json.loads((photographs / "run" / "evaluation_test.json").read_text())["captions"]
    dataset = json.loads((photographs / "dataset.json").read_text())
    for image in dataset["images"]:
        image["sentences"] = [] if image["split"] == "test" else image["sentences"]
    (tmp_path / "withheld.json").write_text(json.dumps(dataset))
    run = tmp_path / "run"
    shutil.copytree(photographs / "run", run, ignore=shutil.ignore_patterns("evaluation*"))
    named = f"--annotations {tmp_path / 'withheld.json'} --features {photographs / 'features.safetensors'}"
    code, out, _ = run_command(f"evaluate {run} --split test {named} --metrics auto")
    assert code == 0
    assert out.splitlines() == [
        "the split test has no captions, so nothing is scored",
        f"2 images of test, beam 3; captions in {run / 'evaluation_test.json'}",
    ]
    written = json.loads((run / "evaluation_test.json").read_text())
    assert (written["captions"], written["scores"]) == (expected, {})
    assert written["data"]["annotations"] == "../withheld.json"
    output = error_of(run_command(f"report {run} --split test {named} --out {tmp_path / 'report.html'}"))
    assert "the data set has no captions of test, so nothing can be scored; choose another --split" in output


def test_captioning_needs_the_extractor_of_the_run(photographs, run_command, tmp_path, caplog):
    command = f"caption {photographs / 'pictures'} --model {photographs / 'run'}"
    assert "name its file, as in --extractor mine.py" in error_of(run_command(command))
    assert "but scenes is scenes" in error_of(run_command(f"{command} --extractor scenes"))
    changed = tmp_path / "mine.py"
    changed.write_text(EXTRACTOR + "\nVERSION = '2'\n")
    message = "has the version '2', not ''; use the extractor of the training, or add --ignore-extractor-mismatch"
    assert message in error_of(run_command(f"{command} --extractor {changed}"))
    expected = run_command(f"{command} --extractor {photographs / 'mine.py'}")
    with caplog.at_level("WARNING"):
        found = run_command(f"{command} --extractor {changed} --ignore-extractor-mismatch")
    assert found[:2] == expected[:2]
    assert "has the version '2', not ''; the results may be meaningless" in caplog.text


def test_a_changed_comment_makes_no_other_extractor(photographs, run_command, tmp_path):
    command = f"caption {photographs / 'pictures'} --model {photographs / 'run'} --extractor"
    changed = tmp_path / "mine.py"
    changed.write_text("# another comment\n" + EXTRACTOR)
    expected = run_command(f"{command} {photographs / 'mine.py'}")
    assert expected[0] == 0
    assert run_command(f"{command} {changed}") == expected


def test_a_run_on_unnamed_features_takes_any_extractor(photographs, run_command, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(photographs / "run", run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "extractor": "unnamed"}))
    command = f"caption {photographs / 'pictures'} --model {run}"
    assert "does not name the extractor of the features it was trained on" in error_of(run_command(command))
    named = f"--extractor {photographs / 'mine.py'}"
    expected = run_command(f"caption {photographs / 'pictures'} --model {photographs / 'run'} {named}")
    assert run_command(f"{command} {named}") == expected


@pytest.mark.parametrize(
    ("shade", "message"),
    [
        (NAN, "NaN"),
        (NARROW, "the features have 3 channels but transformer reads 4"),
        (EMPTY, "at least one region is needed"),
        (FAILS, "out of memory"),
        (PIXELS, "which leaves 0..1"),
        (REVERSED, "which is empty"),
    ],
)
def test_the_output_of_an_extractor_is_checked_before_captioning(photographs, run_command, tmp_path, shade, message):
    picture, extractor = faulty_image(tmp_path, shade), photographs / "mine.py"
    code, out, err = run_command(f"caption {picture} --model {photographs / 'run'} --extractor {extractor}")
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("shade", "message"),
    [
        (NAN, "NaN"),
        (NARROW, "features of width 4, but those before 3"),
        (BOXLESS, "boxes"),
        (EMPTY, "at least one region"),
        (FAILS, "out of memory"),
        (PIXELS, "which leaves 0..1"),
        (REVERSED, "which is empty"),
    ],
)
def test_extraction_of_invalid_features_writes_nothing(photographs, run_command, tmp_path, shade, message):
    faulty_image(tmp_path, shade)
    shutil.copy(photographs / "pictures" / "0.png", tmp_path / "a.png")
    before = everything_in(tmp_path)
    sentence = error_of(run_command(f"extract {tmp_path} --extractor {photographs / 'mine.py'} --out {tmp_path / 'f'}"))
    assert message in sentence
    named = "'a'" if shade in (NARROW, BOXLESS) else f"faulty{shade}"  # 'a' comes second and differs from the first
    assert named in sentence
    assert everything_in(tmp_path) == before


def faulty_store(photographs: Path, path: Path, *, width: int = 4, boxes: bool = True, nan: bool = False) -> Path:
    """Write a store of the same images that does not fit the run."""
    box = np.array([[0.1, 0.1, 0.9, 0.9]])
    name = PackedFeatureStore(photographs / "features.safetensors").extractor
    regions = [(str(number), np.ones((1, width)), box if boxes else None) for number in range(8)]
    write_store(path, regions, extractor=name)
    if nan:
        path.write_bytes(path.read_bytes()[: -2 * width * 8] + np.full(width * 8, np.nan, np.float16).tobytes())
    return path


def test_ngsan_on_features_without_boxes_is_rejected(photographs, run_command, tmp_path):
    features = faulty_store(photographs, tmp_path / "f.safetensors", boxes=False)
    data = f"--data.annotations {photographs / 'dataset.json'} --data.features {features}"
    sentence = error_of(run_command(f"train flickr8k.ngsan --out {tmp_path / 'run'} {data} {TINY} {SHORT}"))
    assert "f.safetensors holds no boxes, which ngsan needs" in sentence
    assert not (tmp_path / "run").exists()


def test_training_on_nan_is_rejected(photographs, run_command, tmp_path):
    features = faulty_store(photographs, tmp_path / "f.safetensors", nan=True)
    data = f"--data.annotations {photographs / 'dataset.json'} --data.features {features}"
    sentence = error_of(run_command(f"train flickr8k.transformer --out {tmp_path / 'run'} {data} {TINY} {SHORT}"))
    assert "f.safetensors: image" in sentence
    assert "NaN" in sentence
    assert not (tmp_path / "run").exists()


def run_on_other_features(photographs: Path, folder: Path, features: Path) -> Path:
    """The trained run, whose configuration now names another features file."""
    run = folder / "run"
    shutil.copytree(photographs / "run", run, ignore=shutil.ignore_patterns("evaluation*"))
    config = json.loads((run / "config.json").read_text())
    config["data"]["features"] = str(features)
    (run / "config.json").write_text(json.dumps(config))
    return run


@pytest.mark.parametrize(
    ("change", "message"),
    [({"nan": True}, "NaN"), ({"width": 5}, "the features have 5 channels but transformer reads 4")],
)
def test_evaluation_on_features_that_do_not_fit_writes_nothing(photographs, run_command, tmp_path, change, message):
    run = run_on_other_features(photographs, tmp_path, faulty_store(photographs, tmp_path / "f.safetensors", **change))
    before = everything_in(tmp_path)
    sentence = error_of(run_command(f"evaluate {run}"))
    assert message in sentence
    assert "f.safetensors" in sentence
    assert everything_in(tmp_path) == before


def test_evaluation_on_features_of_another_extractor_is_rejected(photographs, run_command, tmp_path):
    features = tmp_path / "f.safetensors"
    write_store(
        features, [(str(n), np.ones((1, 4)), np.array([[0, 0, 1, 1]])) for n in range(8)], extractor="other-00000000"
    )
    run = run_on_other_features(photographs, tmp_path, features)
    before = everything_in(tmp_path)
    sentence = error_of(run_command(f"evaluate {run}"))
    assert "f.safetensors was made by the extractor other-00000000" in sentence
    name = extractor_name(PackedFeatureStore(photographs / "features.safetensors").extractor)
    assert f"was trained on features of {name}" in sentence
    assert everything_in(tmp_path) == before
    assert run_command(f"evaluate {run} --ignore-extractor-mismatch")[0] == 0


def test_a_missing_features_file_is_named(photographs, run_command, tmp_path):
    run = run_on_other_features(photographs, tmp_path, tmp_path / "gone.safetensors")
    assert "gone.safetensors does not exist" in error_of(run_command(f"evaluate {run}"))


def test_a_run_can_be_evaluated_from_another_folder(photographs, run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(photographs)
    run, paths = tmp_path / "run", "--data.annotations dataset.json --data.features features.safetensors"
    assert run_command(f"train flickr8k.transformer --out {run} {paths} --data.min-count 1 {TINY} {SHORT}")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert run_command(f"evaluate {run}")[0] == 0
