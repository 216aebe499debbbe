"""Captions in every format and from every source; conversion and extraction on the command line."""

import csv
import io
import json
import shutil
import threading
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from command_results import error_of
from legenda.cli.caption import format_captions
from legenda.cli.main import main
from legenda.data.scenes import draw_scene, make_scene
from legenda.features import write_store
from legenda.features.readers import open_features
from legenda.images.files import read_batches
from legenda.pipeline import GeneratedCaption, ImageCaptions

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(scenes_run) -> Path:
    return scenes_run


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Five scenes with names of COCO images."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(5):
        draw_scene(make_scene("fresh", number)).save(folder / f"COCO_val2014_{number:012d}.png")
    return folder


def test_the_batch_size_does_not_change_captions(run, images, run_command):
    output = {run_command(f"caption {images} --model {run} --batch-size {size}")[:2] for size in (1, 2, 16)}
    assert len(output) == 1
    ((code, out),) = output
    assert code == 0
    assert out.count("\n") == 5


def test_several_captions_are_sorted_by_score(run, images, run_command):
    _, out, _ = run_command(f"caption {images} --model {run} --num-captions 3 --format json")
    entries = json.loads(out)
    assert [Path(entry["image"]).name for entry in entries] == sorted(path.name for path in images.iterdir())
    _, best, _ = run_command(f"caption {images} --model {run}")
    for entry, line in zip(entries, best.splitlines(), strict=True):
        scores = [output["score"] for output in entry["captions"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert line == f"{entry['image']}: {entry['captions'][0]['caption']}"
    _, out, _ = run_command(f"caption {images} --model {run} --num-captions 3")
    first = entries[0]["captions"][0]
    assert out.splitlines()[0] == f"{entries[0]['image']}: {first['score']:.3f} {first['caption']}"
    assert out.count("\n") == 15


def test_names_of_any_characters_are_fields_of_csv():
    name = 'new\nline\r,"b".png'
    caption = GeneratedCaption(("a", "dog"), (1, 2), -1.0, -1.0, np.zeros((2, 0, 1)), np.zeros((0, 4)))
    lines = format_captions([ImageCaptions(name, (caption,))], "csv")
    assert list(csv.reader(io.StringIO("\n".join(lines), newline="")))[1:] == [[name, "1", "-1.000000", "a dog"]]


def test_csv_and_coco_formats(run, images, run_command, tmp_path):
    _, out, _ = run_command(f"caption {images} --model {run} --format csv --num-captions 2")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["rank"] for row in rows] == ["1", "2"] * 5
    assert all(float(row["score"]) < 0 for row in rows)
    path = tmp_path / "results.json"
    assert run_command(f"caption {images} --model {run} --format coco --out {path}")[:2] == (0, "")
    results = json.loads(path.read_text())
    assert [entry["image_id"] for entry in results] == [0, 1, 2, 3, 4]
    assert [entry["caption"] for entry in results] == [row["caption"] for row in rows[::2]]
    assert [set(entry) for entry in results] == [{"image_id", "caption"}] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--top-p 0.9", "--top-p is for sampling; add --do-sample or leave it out"),
        ("--forbidden-last-words zebra", "the vocabulary has no word 'zebra' to forbid"),
        ("--num-captions 4", "num_captions must lie between 1 and beam_size=3, not 4"),
        ("--num-captions 2 --format coco", "--format coco has one caption for each image"),
    ],
)
def test_invalid_options_are_one_sentence(run, images, run_command, options, message):
    assert message in error_of(run_command(f"caption {images} --model {run} {options}"))


def test_the_standard_input_lists_images(run, images, run_command, monkeypatch):
    first, second, *_ = sorted(images.iterdir())
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{second}\n\n{first}\n"))
    _, out, _ = run_command(f"caption - --model {run}")
    assert [line.split(":")[0] for line in out.splitlines()] == [str(second), str(first)]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "the standard input names no " in run_command(f"caption - --model {run}")[2]


@pytest.fixture
def server(images, serve_folder):
    return serve_folder(images)


def test_urls_are_fetched_only_when_allowed(run, images, run_command, server):
    url = f"{server}/COCO_val2014_000000000003.png"
    assert "--allow-urls" in error_of(run_command(f"caption {url} --model {run}"))
    code, out, _ = run_command(f"caption {url} {server}/gone.png --model {run} --allow-urls")
    assert code == 2
    _, expected, _ = run_command(f"caption {images / Path(url).name} --model {run}")
    assert out == f"{url}: {expected.partition(': ')[2]}"
    assert "gone.png cannot be fetched" in run_command(f"caption {server}/gone.png --model {run} --allow-urls")[2]


def test_a_url_with_a_space_is_fetched_and_a_broken_one_loses_no_other(run, images, server, capsys):
    path = next(images.iterdir())
    (images / "my photo.png").write_bytes(path.read_bytes())
    names = [f"{server}/my photo.png", "http://[/a.png", f"{server}/{path.name}"]
    with pytest.raises(SystemExit) as stop:
        main(["caption", *names, "--model", str(run), "--allow-urls"])
    (images / "my photo.png").unlink()
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert [line.rpartition(": ")[0] for line in out.splitlines()] == [names[0], names[2]]
    assert len({line.rpartition(": ")[2] for line in out.splitlines()}) == 1
    assert "http://[/a.png" in err


def test_urls_are_fetched_at_the_same_time(serve_folder, images):
    together = threading.Barrier(3, timeout=20)

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            together.wait()
            super().do_GET()

    server = serve_folder(images, Handler)
    (batch,) = read_batches([f"{server}/{path.name}" for path in sorted(images.iterdir())[:3]], 3)
    assert [file.error for file in batch] == [None] * 3


def test_a_line_break_in_a_name_is_escaped_in_text(run, images, run_command, tmp_path):
    path = tmp_path / "a\nb: c.png"
    path.write_bytes(next(images.iterdir()).read_bytes())
    code, out, _ = run_command(f"caption {tmp_path} --model {run}")
    assert code == 0
    assert out.startswith(f"{tmp_path}/a\\nb: c.png: ")
    assert out.count("\n") == 1


def test_two_images_of_one_coco_id_are_refused(run, images, run_command, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.png").write_bytes(next(images.iterdir()).read_bytes())
    assert f"{tmp_path}/a/1.png and {tmp_path}/b/1.png have the COCO id 1" in error_of(
        run_command(f"caption {tmp_path}/a {tmp_path}/b --model {run} --format coco")
    )
    assert "1.png" in error_of(
        run_command(f"caption http://h/{'1' * 5000}.png --allow-urls --model {run} --format coco")
    )


def test_features_are_converted_and_described(run_command, tmp_path):
    box = np.array([[0.1, 0.1, 0.9, 0.9]])
    write_store(tmp_path / "a.safetensors", [("1", np.ones((1, 4)), box), ("2", np.ones((1, 4)), box)], extractor="x-1")
    code, out, _ = run_command(f"convert {tmp_path / 'a.safetensors'} {tmp_path / 'b.hdf5'} --float16")
    assert code == 0
    assert out.startswith(f"{tmp_path / 'b.hdf5'}: 2 images, 2 regions of width 4 in float16, with boxes, by x-1; ")
    _, again, _ = run_command(f"convert {tmp_path / 'b.hdf5'} {tmp_path / 'c'} --float16")
    assert again.split("checksum ")[1].split(";")[0] == out.split("checksum ")[1].split(";")[0]
    assert open_features(tmp_path / "c").extractor.name == "x-1"
    assert "name the feature stores to read and, last, the one to write" in error_of(
        run_command(f"convert {tmp_path / 'a.safetensors'}")
    )


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        ({"name": "bottom-up", "digest": "12345678"}, "name its file, as in --extractor bottom-up:FILE"),
        (
            {"name": "hf", "model": "x", "frames": {"num_frames": 28}},
            "captions videos, by features of their frames, and takes no images",
        ),
        ("hf:nobody/no-model", "hf:nobody/no-model is not complete on this machine; add --allow-download"),
    ],
)
def test_a_missing_extractor_is_named(run, images, run_command, tmp_path, extractor, message):
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "extractor": extractor}))
    assert message in error_of(run_command(f"caption {images} --model {tmp_path / 'run'}"))
