"""What people try first: files under names of their own, options in any order, closed streams, a run beside `photo`."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_results import SCENES, SHORT, error_of, everything_in, write_captioned_images
from legenda.cli.caption import CaptionOptions
from legenda.cli.options import separate_positionals
from legenda.cli.score import ScoreCommand
from legenda.cli.serve import ServeOptions
from legenda.data.scenes import draw_scene, make_scene
from legenda.errors import ConfigError
from legenda.recipes import read_recipe
from legenda.report.overlay import draw_words

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = "model.dim=8 model.num_heads=2 model.num_layers=1 model.ff_dim=8"


@pytest.fixture
def album(tmp_path, monkeypatch) -> Path:
    """A folder of two scenes, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("album").mkdir()
    for number in range(2):
        draw_scene(make_scene("fresh", number)).save(f"album/{number}.png")
    return Path("album")


def test_the_suffix_chooses_the_format_and_score_reads_all(scenes_run, run_command, album):
    caption = f"caption {album} --model {scenes_run} --num-captions 2 --beam-size 4"
    Path("r.json").write_text(json.dumps({"0": ["a red ball"], "1": ["a blue box"]}))
    outputs = set()
    for suffix in ("csv", "json", "jsonl", "tsv", "txt"):
        code, _, err = run_command(f"{caption} --out x.{suffix}")
        assert code == 0, err
        code, out, _ = run_command(f"score x.{suffix} r.json --metrics fast")
        assert code == 0
        outputs.add(out.replace(f"x.{suffix}", "x"))
    assert len(outputs) == 1
    assert run_command(f"{caption} --out shards")[0] == 0
    assert run_command("score shards r.json --metrics fast")[1].replace("shards", "x") in outputs
    rows = list(csv.DictReader(Path("x.tsv").read_text().splitlines(), delimiter="\t"))
    assert [row["image"] for row in rows] == ["album/0.png"] * 2 + ["album/1.png"] * 2
    assert [len(json.loads(line)["captions"]) for line in Path("x.jsonl").read_text().splitlines()] == [2, 2]
    assert "--format" in error_of(run_command(f"{caption} --out y.csv --format text"))
    assert not Path("y.csv").exists()


def test_a_link_to_itself_does_not_stop_a_folder(scenes_run, run_command, album):
    (album / "loop.png").symlink_to("loop.png")
    code, out, err = run_command(f"caption {album} --model {scenes_run}")
    assert code == 2
    assert [line.partition(":")[0] for line in out.splitlines()] == ["album/0.png", "album/1.png"]
    assert "album/loop.png" in err


@pytest.mark.parametrize("name", ["f.npy", "f.npz", "f.safetensors", "f.hdf5"])
def test_features_are_no_images(scenes_run, run_command, tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    sentence = error_of(run_command(f"caption {tmp_path / name} --model {scenes_run}"))
    assert "legenda evaluate" in sentence
    assert "Regions" in sentence


@pytest.mark.parametrize(
    ("options", "arguments", "files"),
    [
        (CaptionOptions, "--forbidden-last-words a the a.jpg", ["a.jpg"]),
        (CaptionOptions, "--must dog photos/ --beam-size 5", ["photos/"]),
        (CaptionOptions, "a.jpg --must dog|puppy cat", ["a.jpg"]),
        (CaptionOptions, "--do-sample a.jpg --seed 3 *.png --top-k 3 -", ["a.jpg", "*.png", "-"]),
        (CaptionOptions, "--must=dog a.jpg", ["a.jpg"]),
        (CaptionOptions, "--no-consensus a.jpg", ["a.jpg"]),
        (ScoreCommand, "--metrics BLEU CIDEr p.json r.json", ["p.json", "r.json"]),
        (ServeOptions, "photo --samples a.jpg b.jpg", ["photo"]),
        (ServeOptions, "--allowed-host x photo", ["photo"]),
    ],
)
def test_options_of_several_words_leave_the_files_alone(options, arguments, files):
    separated = separate_positionals(options, arguments.split())
    assert separated[: len(files)] == files
    assert sorted(separated) == sorted(arguments.split())


def test_an_option_that_took_all_words_is_named():
    with pytest.raises(ConfigError, match=r"--must.*dog, cat"):
        separate_positionals(CaptionOptions, ["--must", "dog", "cat"])


def test_a_temperature_of_0_is_beam_search(scenes_run, run_command, album):
    picture = album / "0.png"
    expected = run_command(f"caption {picture} --model {scenes_run}")
    assert run_command(f"caption {picture} --model {scenes_run} --temperature 0") == expected
    assert "temperature" in error_of(run_command(f"caption {picture} --model {scenes_run} --temperature 0 --do-sample"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--help >&-", 0),
        ("recipes >&-", 0),
        ("models >&- 2>&-", 0),
        ("caption - <&-", 2),
        ("nothing >&- 2>&-", 2),
        ("score a.json b.json <&- >&-", 2),
    ],
)
def test_closed_streams_give_no_traceback(tmp_path, line, code):
    command = f"{sys.executable} -m legenda {line}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_deleted_working_folder_is_named(tmp_path):
    command = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -P -m legenda caption . --out x"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("patience", "schedule"),
    [("early_stopping_patience", "constant"), ("last_rate_patience", "step_decay training.schedule.decay_after=[1]")],
)
def test_more_epochs_after_early_stopping(patience, schedule, run_command, tmp_path):
    out = tmp_path / "stopped"
    train = (
        f"train scenes.ngsan {SCENES} {TINY} {SHORT.replace('training.epochs=1', '')} --out {out} "
        f"training.{patience}=1 training.schedule={schedule} training.schedule.learning_rate=1e-12"
    )
    assert run_command(f"{train} training.epochs=6")[0] == 0
    epochs = [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(epochs) == 4
    code, _, err = run_command(f"{train} training.epochs=12")
    assert code == 0
    assert "stopped early after epoch 4" in err
    assert f"training.{patience}=0" in err
    more = train.replace(f"{patience}=1", f"{patience}=0")
    assert run_command(f"{more} training.epochs=4")[0] == 2  # fewer epochs than before
    assert run_command(f"{more} training.epochs=12")[0] == 0
    epochs = [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(epochs) == 12


@pytest.mark.slow  # 20 s: two trainings and four evaluations by `photo`
def test_a_table_of_tabs_is_fine_tuned_on_and_compared_with_photo(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    rows = list(csv.reader(write_captioned_images(Path("mine"), 8).open()))
    splits = ["Train"] * 5 + ["validation"] + ["TEST"] * 2
    lines = ["Bild\tSatz\tsplit", *(f"{file}\t{text}\t{splits[int(file[0])]}" for file, text in rows[1:])]
    Path("mine/table.tsv").write_text("\n".join(lines))
    train = "train photo --init-from photo data.annotations=mine/table.tsv --out tuned training.epochs=1"
    assert "data.caption_column=" in run_command(train)[2]
    code, _, err = run_command(f"{train} data.file_column=Bild data.caption_column=Satz training.steps_per_epoch=1")
    assert code == 0, err
    assert json.loads(Path("tuned/config.json").read_text())["init_from"] == "photo"
    assert str(read_recipe(Path("tuned/config.json")).init_from) == "photo"
    code, out, err = run_command("compare tuned photo --split test")
    assert code == 0, err
    assert "2 examples" in out
    assert Path("tuned/evaluation_photo_test.json").exists()
    assert run_command("compare photo tuned --split test")[0] == 0
    code, out, err = run_command("report tuned photo --split test")
    assert code == 0, err
    Path("report.html").write_text("mine")
    assert "report-2.html" in run_command("report tuned photo --split test")[1]
    assert Path("report.html").read_text() == "mine"
    assert "report.html" in run_command("report tuned --split test --out report.html")[2]


def test_parts_of_features_in_one_folder(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two", "three"):
        Path(folder).mkdir()
    random = np.random.default_rng(0)
    for n in range(3):
        features, boxes = random.random((2, 8), np.float32), np.tile(np.array([[0.1, 0.1, 0.5, 0.5]]), (2, 1))
        np.savez(f"one/{n}_att.npz", feat=features)
        np.save(f"one/{n}_fc.npy", features.mean(axis=0))
        np.save(f"one/{n}_box.npy", boxes)
        np.save(f"two/{n}.npy", features)
        np.save(f"two/{n}_box.npy", boxes)
        np.save(f"two/{n}_fc.npy", features.mean(axis=0))
        np.save(f"three/{n}_att.npy", features)
        np.save(f"three/{n}_box.npy", boxes * 200)
    sizes = {"images": [{"id": n, "file_name": f"{n}.jpg", "width": 200, "height": 200} for n in range(3)]}
    Path("sizes.json").write_text(json.dumps(sizes))
    checksums = set()
    for folder, options in (("one", ""), ("two", ""), ("three", "--sizes sizes.json")):
        code, out, err = run_command(f"convert {folder} {folder}.safetensors {options}")
        assert code == 0, err
        assert "3 images, 6 regions of width 8 in float32, with boxes" in out
        checksums.add(out.partition("checksum ")[2].split(";")[0])
    assert len(checksums) == 1


def test_a_panorama_has_tiles_that_one_can_see():
    boxes, weights = np.array([[0.1, 0.2, 0.3, 0.8]]), np.ones((3, 1))
    image = draw_words(Image.new("RGB", (1200, 900)), boxes, ["a", "b", "c"], weights)
    for size in ((12_000, 400), (400, 12_000), (900, 250)):
        sheet = draw_words(Image.new("RGB", size, "white"), boxes, ["a", "b", "c"], weights)
        tiles = np.asarray(sheet.convert("L")) == 255
        shown = tiles.any(axis=0).sum(), tiles.any(axis=1).sum()
        assert min(shown) >= 50, size
        assert max(sheet.size) <= 1_700
    assert max(image.size) < 1_100


def test_a_report_is_not_written_where_nothing_is_to_be_reported(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = everything_in(tmp_path)
    assert "nothing" in error_of(run_command("report nothing"))
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("line", "unneeded"),
    [
        ("--help", {"torch", "numpy", "pydantic", "tyro", "PIL", "http.client"}),
        ("models", {"torch", "numpy", "PIL", "http.client"}),
        ("recipes", {"torch", "numpy", "PIL", "http.client"}),
        ("train --help", {"torch", "numpy", "PIL", "http.client"}),
        ("score p.json r.json --metrics fast", {"torch", "onnxruntime", "PIL", "http.client", "legenda.runtime"}),
        ("caption p.png", {"torch", "urllib.request", "rich"}),
    ],
)
def test_a_command_imports_what_it_needs(tmp_path, line, unneeded):
    (tmp_path / "p.json").write_text('{"1": "a dog"}')
    (tmp_path / "r.json").write_text('{"1": ["a dog runs"]}')
    Image.new("RGB", (64, 64), "green").save(tmp_path / "p.png")
    code = "import sys; from legenda.cli.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code, *line.split()], cwd=tmp_path, capture_output=True, text=True)
    assert not unneeded & {*ended.stdout.splitlines()[-1].split()}, ended.stderr


def test_what_a_killed_command_left_is_cleared_by_the_next(scenes_run, run_command, album):
    Path("sheets").mkdir()
    left = [Path("sheets") / ".0.png.png.0a1b2c3d.partial", Path(".x.csv.0a1b2c3d.partial")]
    other = Path("sheets") / ".1.png.png.0a1b2c3d.partial"  # of an image that is not drawn again
    for path in (*left, other):
        path.write_bytes(b"half")
    picture = album / "0.png"
    assert run_command(f"caption {picture} --model {scenes_run} --save-attention sheets --out x.csv")[0] == 0
    assert [path.exists() for path in (*left, other)] == [False, False, True]
    assert Path("sheets/0.png.png").is_file()
