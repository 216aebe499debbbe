"""`legenda compare`: runs and files of captions, with differences, p, and where they disagree."""

import json
from pathlib import Path

import pytest

from command_results import error_of
from legenda.config import to_json
from legenda.data.captions import ScenesData
from legenda.extras.vqa.data import SceneQuestionsData
from legenda.io import write_json
from legenda.metrics import compare, evaluate
from legenda.run_folder import CONFIG, evaluation_path

QUESTIONS = SceneQuestionsData(train=6, validation=3, test=4)
DATA = ScenesData(train=1, validation=9, test=2)
REFERENCES = {"1": ["a goat climbs a wall"], "2": ["two boats at sea"], "3": ["a kite high up"], "4": ["a dog runs"]}
FIRST = {"1": "a goat climbs a wall", "2": "two boats", "3": "a kite", "4": "a dog runs"}
SECOND = {"1": "a cat", "2": "two boats", "3": "a kite high up", "4": "a dog runs"}


@pytest.fixture
def files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("references", REFERENCES), ("first", FIRST), ("second", SECOND)):
        write_json(f"{name}.json", content)


@pytest.mark.usefixtures("files")
def test_files_are_compared_image_by_image(run_command):
    code, out, err = run_command("compare first.json second.json --references references.json --out all.json")
    assert (code, err) == (0, "")
    found = json.loads(Path("all.json").read_text())
    scores = [evaluate(captions, REFERENCES, metrics="fast") for captions in (FIRST, SECOND)]
    expected = compare(*scores)
    assert found["differences"]["CIDEr-D"] == vars(expected["CIDEr-D"])
    assert [found[name]["corpus"]["BLEU-4"] for name in ("first", "second")] == [one["BLEU-4"] for one in scores]
    assert found["differing"] == 2
    per_image = {image: scores[0].per_image[image]["CIDEr-D"] - scores[1].per_image[image]["CIDEr-D"] for image in "13"}
    disagreements = [(entry["id"], entry["difference"]) for entry in found["disagreements"]]
    assert disagreements == sorted(per_image.items(), key=lambda item: -abs(item[1]))
    assert found["disagreements"][0]["second"] == "a cat"
    assert "2 of 4 predictions differ" in out
    (line,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["CIDEr-D"] and len(line.split()) > 5)
    assert line[3] == f"{expected['CIDEr-D'].difference:+.4f}"
    assert line[-1] == f"{expected['CIDEr-D'].p:.4f}"


@pytest.mark.usefixtures("files")
def test_a_table_of_captions_is_compared(run_command):
    lines = [f"{image},{caption}" for image, caption in SECOND.items()]
    Path("second.csv").write_text("\n".join(["image,caption", *lines]))
    assert run_command("compare first.json second.json --references references.json --out all.json")[0] == 0
    code, _, err = run_command("compare first.json second.csv --references references.json --out table.json")
    assert (code, err) == (0, "")
    found, expected = (json.loads(Path(name).read_text()) for name in ("table.json", "all.json"))
    assert found["differences"] == expected["differences"]
    code, _, err = run_command("compare first.json second.csv")
    assert code == 2
    assert "--references" in err


def test_answers_are_compared_on_the_data_of_their_run(run_command, tmp_path):
    split = QUESTIONS.split("test")
    right = {question.id: split.annotations[question.id].answers[0] for question in split.examples}
    runs = []
    for name, answers in (("a", right), ("b", dict.fromkeys(right, "no such answer"))):
        write_json(tmp_path / name / CONFIG, {"data": to_json(QUESTIONS, tmp_path / name)})
        evaluation = {"task": "vqa", "split": "test", "predictions": answers}
        write_json(evaluation_path(tmp_path / name, "test"), evaluation)
        runs.append(str(tmp_path / name))
    code, out, err = run_command(
        f"compare {' '.join(runs)} --split test --num-examples 2 --out {tmp_path / 'all.json'}"
    )
    assert (code, err) == (0, "")
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["differences"]["accuracy"]["difference"] == pytest.approx(1)
    assert found["differences"]["accuracy"]["p"] < 0.01
    assert [entry["second"] for entry in found["disagreements"]] == ["no such answer"] * 2
    assert f"{len(right)} of {len(right)} predictions differ" in out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("first.json second.json", "name the references with --references"),
        ("first.json second.json --references fewer.json", "there are no references of image 4"),
        ("first.json answers.json --references references.json", "are of different tasks; compare runs of one task"),
        ("answers.json answers.json", 'config.json has no usable "data" part'),
        ("damaged.json damaged.json", "damaged.json is not the file of an evaluation"),
        ("first.json several.json --references references.json", "has 2 captions for image 1"),
        ("first.json run", "run has no evaluation_val.json; write it with legenda evaluate run --split val"),
        ("first.json missing", "missing is not a folder with a model"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(run_command, line, message):
    write_json("fewer.json", {key: REFERENCES[key] for key in "123"})
    write_json("answers.json", {"task": "vqa", "split": "val", "predictions": {"1": "yes"}})
    write_json("damaged.json", {"task": "vqa", "predictions": {"1": "yes"}})
    write_json("several.json", {key: [caption, caption] for key, caption in SECOND.items()})
    write_json("run/config.json", {"data": to_json(DATA, Path("run"))})
    assert message in error_of(run_command(f"compare {line}"))


def test_folders_of_seeds_are_compared_by_pairs_of_runs(run_command, tmp_path):
    values = {"a": (0.50, 0.52, 0.56, 0.61), "b": (0.48, 0.51, 0.53, 0.57, 0.9)}
    for name, scores in values.items():
        for seed, score in enumerate(scores):
            run = tmp_path / name / f"seed{seed}"
            write_json(run / CONFIG, {})
            write_json(evaluation_path(run, "test"), {"scores": {"CIDEr-D": score, "SPICE": None}})
    out = tmp_path / "all.json"
    code, _, err = run_command(f"compare {tmp_path / 'a'} {tmp_path / 'b'} --split test --out {out}")
    assert (code, err) == (0, "")
    content = json.loads(out.read_text())
    assert content.keys() == {"seeds", "CIDEr-D"}
    found = content["CIDEr-D"]
    # differences .02 .01 .03 .04: mean .025, standard error .0129099 / 2, t(3) = 3.18245; 2 of 16 signs are as large
    assert found["difference"] == pytest.approx(0.025)
    assert (found["low"], found["high"]) == pytest.approx((0.025 - 0.020543, 0.025 + 0.020543), abs=1e-5)
    assert found["p"] == pytest.approx(0.125)
    assert run_command(f"compare {tmp_path / 'a'} {tmp_path / 'a' / 'seed0'} --split test")[0] == 2
    for option in ("--metrics auto", "--resamples 20", "--num-examples 3", "--seed 1", f"--references {out}"):
        error = error_of(run_command(f"compare {tmp_path / 'a'} {tmp_path / 'b'} --split test {option}"))
        assert f"{option.split()[0]} is for single runs and files" in error
    (tmp_path / "a" / "seed1" / CONFIG).unlink()
    (tmp_path / "a" / "seed2" / CONFIG).unlink()
    (tmp_path / "a" / "seed3" / CONFIG).unlink()
    assert "1 seed in common" in run_command(f"compare {tmp_path / 'a'} {tmp_path / 'b'} --split test")[2]
