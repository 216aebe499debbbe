"""The run of the SPICE program, its jars and the Java that is used; with the jars, its scores."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from legenda.errors import LegendaError
from legenda.metrics.spice import JARS, download_jars, parse_spice, spice

# Keeps its arguments and input, and answers with what `answer.json` holds.
JAVA = """
import json, pathlib, shutil
here = pathlib.Path(sys.argv[0]).parent
main = sys.argv.index("edu.anu.spice.SpiceScorer")
(here / "arguments.json").write_text(json.dumps(sys.argv[1:]))
shutil.copy(sys.argv[main + 1], here / "captions.json")
shutil.copy(here / "answer.json", sys.argv[sys.argv.index("-out") + 1])
"""


@pytest.fixture
def jars(tmp_path, monkeypatch, programs) -> Path:  # noqa: ARG001 - is looked up
    monkeypatch.delenv("LEGENDA_SPICE_JARS", raising=False)
    folder = tmp_path / "my jars"
    folder.mkdir()
    for name in JARS:
        (folder / Path(name).name).write_bytes(b"")
    return folder


def test_what_is_run_and_what_it_is_given(fake_java, jars, programs, tmp_path, monkeypatch):
    fake_java(JAVA)
    answer = [
        {"image_id": 1, "scores": {"All": {"f": 0.25}, "Color": {"f": None}}},
        {"image_id": 0, "scores": {"All": {"f": 0.75}, "Color": {"f": 1.0}}},
    ]
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    monkeypatch.setenv("LEGENDA_SPICE_JARS", str(jars))
    assert spice(["a red dog", "a cat"], [["a dog", "dogs"], ["the cat"]]) == (0.5, [0.75, 0.25])
    given = json.loads((tmp_path / "captions.json").read_text())
    assert given == [
        {"image_id": 0, "test": "a red dog", "refs": ["a dog", "dogs"]},
        {"image_id": 1, "test": "a cat", "refs": ["the cat"]},
    ]
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    program = programs / "spice/spice-1.0.jar"
    assert arguments[arguments.index("-cp") + 1] == f"{program}:{program.parent}/lib/*:{jars}/*"
    assert not Path(arguments[arguments.index("-out") + 1]).parent.exists()  # its temporary folder


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('at x\\nException in main: NullPointerException')", "NullPointerException"),
        ("time.sleep(60)", "more than 0.5 seconds"),
        ("pass", "SPICE's output"),
    ],
)
def test_failures_are_named(fake_java, jars, monkeypatch, code, reason):
    monkeypatch.setattr("legenda.metrics.spice._LIMIT_S", 0.5 if "sleep" in code else 30)
    fake_java(code)
    with pytest.raises(LegendaError, match=reason):
        spice(["a"], [["a"]], jars)


def test_an_image_without_propositions_does_not_count():
    answer = json.loads(
        '[{"image_id": 0, "scores": {"All": {"f": NaN}, "Size": {"f": null}}},'
        ' {"image_id": 1, "scores": {"All": {"f": 0.5}, "Size": {"f": "NaN"}}},'
        ' {"image_id": 2, "scores": {"All": {"f": 0.0}, "Object": {"f": 0.25}}}]'
    )
    assert parse_spice(answer, 3) == (0.25, [None, 0.5, 0.0])
    assert parse_spice(answer[:1], 1) == (None, [None])


CONTENT = {"edu/parser/1.0/parser.jar": "parser" * 1000, "org/engine/engine.jar": "engine" * 1000}
DIGESTS = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in CONTENT.items()}


def test_download_of_missing_and_damaged_jars(tmp_path):
    repository, folder = tmp_path / "maven", tmp_path / "jars"
    for name, text in CONTENT.items():
        (repository / name).parent.mkdir(parents=True)
        (repository / name).write_text(text)

    def download() -> list[Path]:
        return download_jars(folder, url=repository.as_uri(), jars=DIGESTS)

    parser, engine = download()
    assert [parser.read_text(), engine.read_text()] == list(CONTENT.values())
    (repository / "edu/parser/1.0/parser.jar").unlink()  # is not needed again
    engine.write_text("cut off")
    download()
    assert engine.read_text() == CONTENT["org/engine/engine.jar"]
    engine.unlink()
    (repository / "org/engine/engine.jar").write_text("<html>moved</html>")
    with pytest.raises(LegendaError, match=r"engine\.jar"):
        download()
    assert list(folder.iterdir()) == [parser]


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("LEGENDA_SPICE_JARS"), reason="LEGENDA_SPICE_JARS names no folder of jars")
def test_scores_of_pycocoevalcap(shared):
    """The first 20 captions of coco-caption's example; the expected mean is that of pycocoevalcap 1.2 on Java 17."""
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text())
    names = list(fixture["tok_candidates"])[:20]
    candidates = [fixture["tok_candidates"][name] for name in names]
    references = [fixture["tok_refs"][name] for name in names]
    assert spice(candidates, references)[0] == 0.11658572858272828
