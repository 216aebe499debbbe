"""From a recipe to captions of an image file, and the messages of errors on the way."""

import json
import shutil

import pytest
from PIL import Image

from command_results import error_of, everything_in
from legenda.data.scenes import draw_scene, make_scene

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_scene_is_trained_and_evaluated(scenes_run, run_command, tmp_path):
    code, out, _ = run_command(f"evaluate {scenes_run} --split test --beam-size 2")
    assert code == 0
    assert all(name in out for name in ("CIDEr-D", "truth", "4 images of test, beam 2"))
    written = json.loads((scenes_run / "evaluation_test.json").read_text())
    assert (written["split"], written["images"], written["beam_size"]) == ("test", 4, 2)
    code, out, _ = run_command(f"evaluate {scenes_run} --do-sample --top-k 5 --seed 3")
    assert code == 0
    assert "3 images of val, samples of seed 3" in out
    search = json.loads((scenes_run / "evaluation_val.json").read_text())["search"]
    assert (search["do_sample"], search["top_k"], search.get("top_p"), search["seed"]) == (True, 5, None, 3)
    assert len(written["captions"]) == 4
    assert written["scores"]["truth"] is not None
    config = json.loads((scenes_run / "config.json").read_text())
    config["generation_config"]["beam_size"] = 4
    own = tmp_path / "own"
    shutil.copytree(scenes_run, own)
    (own / "config.json").write_text(json.dumps(config))
    assert "3 images of val, beam 4" in run_command(f"evaluate {own}")[1]
    report = tmp_path / "report.html"
    assert run_command(f"report {own} --length-penalty 0.7 --out {report}")[0] == 0
    assert "captions by beam 4." in report.read_text()
    assert run_command(f"report {own}/evaluation_val.json --length-penalty 0.7 --out {report}")[0] == 2


def test_the_caption_of_a_file_equals_that_of_evaluation(scenes_run, run_command, tmp_path):
    """`legenda caption` and `legenda evaluate` caption the same scene alike."""
    run_command(f"evaluate {scenes_run} --split val")
    captions = json.loads((scenes_run / "evaluation_val.json").read_text())["captions"]
    for number in range(3):
        picture = tmp_path / f"{number}.png"
        draw_scene(make_scene("val", number)).save(picture)
        expected = f"{picture}: {captions[f'val-0-{number:06d}']}\n"
        assert run_command(f"caption {picture} --model {scenes_run}") == (0, expected, "")


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
    assert lines[3:] == ["legenda caption: 3 of 4 images were skipped; repair or leave out those named above"]


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


def test_shards_with_images_that_failed_are_scored(scenes_run, run_command, tmp_path):
    for number in range(2):
        draw_scene(make_scene("fresh", number)).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_text("not an image")
    assert run_command(f"caption {tmp_path} --model {scenes_run} --out {tmp_path}/shards")[0] == 2
    references = tmp_path / "references.json"
    references.write_text('{"0": ["a red circle"], "1": ["a blue square"]}')
    code, out, err = run_command(f"score {tmp_path}/shards {references} --metrics fast")
    assert (code, "scores: 2 images" in out) == (0, True), err
    references.write_text('{"0": ["a red circle"], "1": ["a blue square"], "2": ["a cross"]}')
    assert "lacks 1 of the 3 images" in error_of(run_command(f"score {tmp_path}/shards {references}"))


@pytest.mark.parametrize("command", ["evaluate {run}", "caption {picture} --model {run}"])
@pytest.mark.parametrize(("name", "keep"), [("config.json", 0.5), ("model.safetensors", None), ("vocabulary.txt", 0.5)])
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


def test_sentences_are_written_beside_images_and_boxes_are_drawn(scenes_run, run_command, tmp_path):
    for number in range(2):
        draw_scene(make_scene("fresh", number)).save(tmp_path / f"{number}.png")
    plain = run_command(f"caption {tmp_path} --model {scenes_run}")[1].splitlines()
    boxes = tmp_path / "boxes"
    code, out, _ = run_command(f"caption {tmp_path} --model {scenes_run} --sentence --sidecar --save-boxes {boxes}")
    assert code == 0
    for number, (line, before) in enumerate(zip(out.splitlines(), plain, strict=True)):
        caption = line.partition(": ")[2]
        words = before.partition(": ")[2]
        assert caption == (f"{words.capitalize()}." if words else "")
        assert (tmp_path / f"{number}.txt").read_text() == f"{caption}\n"
        with Image.open(boxes / f"{number}.png.png") as drawn, Image.open(tmp_path / f"{number}.png") as image:
            assert drawn.size == image.size
            assert drawn.convert("RGB").tobytes() != image.convert("RGB").tobytes()
    assert "0.txt exists" in error_of(run_command(f"caption {tmp_path}/0.png --model {scenes_run} --sidecar"))
    error = error_of(run_command(f"caption {tmp_path}/0.png --model {scenes_run} --sidecar --out {tmp_path}/shards"))
    assert "--sidecar" in error


@pytest.mark.parametrize("suffix", ["xlsx", "pdf", "html"])
def test_captions_of_no_known_format_are_not_written(run_command, tmp_path, suffix):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    out = tmp_path / f"captions.{suffix}"
    assert str(out) in error_of(run_command(f"caption {tmp_path / 'a.png'} --out {out}"))
    assert not out.exists()
    assert run_command(f"caption {tmp_path / 'a.png'} --out {out} --format text")[0] == 0
