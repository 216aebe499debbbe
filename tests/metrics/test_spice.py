"""The wrapper of the SPICE program: its command line, input, output and failures; with the jars, its scores."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from legenda.errors import LegendaError
from legenda.metrics import Spice, SpiceScores
from legenda.metrics.spice import parse_spice
from legenda.metrics.spice_jars import CORENLP

# Prints its version; else keeps its arguments and input, and answers with what `answer.json` holds.
JAVA = """
if sys.argv[1:] == ["-version"]:
    print('openjdk version "VERSION"', file=sys.stderr)
    sys.exit()
import json, pathlib, shutil
here = pathlib.Path(sys.argv[0]).parent
main = sys.argv.index("edu.anu.spice.SpiceScorer")
(here / "arguments.json").write_text(json.dumps(sys.argv[1:]))
shutil.copy(sys.argv[main + 1], here / "captions.json")
shutil.copy(here / "answer.json", sys.argv[sys.argv.index("-out") + 1])
"""


@pytest.fixture
def jars(tmp_path, monkeypatch) -> Path:
    """A folder as the user makes it, with a script engine; its jars hold nothing else."""
    monkeypatch.delenv("LEGENDA_SPICE_JARS", raising=False)
    monkeypatch.setattr("legenda.metrics.spice.find_program", lambda _, file: tmp_path / "package" / file)
    folder = tmp_path / "my jars"
    folder.mkdir()
    for name in CORENLP:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nImplementation-Version: 3.6.0\n")
    with zipfile.ZipFile(folder / "rhino-engine.jar", "w") as jar:
        jar.writestr("META-INF/services/javax.script.ScriptEngineFactory", "x")
    return folder


def scored(f: float | str | None) -> dict[str, float | str | None]:
    return {"pr": 0.5, "re": 0.5, "f": f, "fn": 1.0, "numImages": 1.0, "fp": 1.0, "tp": 1.0}


def test_what_is_run_and_what_it_is_given(fake_java, jars, tmp_path):
    java = fake_java(JAVA.replace("VERSION", "17.0.1"))
    answer = [
        {"image_id": 1, "scores": {"All": scored(0.25), "Color": scored(None)}},
        {"image_id": 0, "scores": {"All": scored(0.75), "Color": scored(1.0)}},
    ]
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    found = Spice(jars, cache=tmp_path / "cache").score(["a red dog", "a cat"], [["a dog", "dogs"], ["the cat"]])
    assert found == SpiceScores(0.5, [0.75, 0.25], {"Color": [1.0, None]})
    given = json.loads((tmp_path / "captions.json").read_text())
    assert given == [
        {"image_id": 0, "test": "a red dog", "refs": ["a dog", "dogs"]},
        {"image_id": 1, "test": "a cat", "refs": ["the cat"]},
    ]
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    program = tmp_path / "package/spice/spice-1.0.jar"
    assert arguments[arguments.index("-cp") + 1] == f"{program}:{program.parent}/lib/*:{jars}/*"
    assert [argument for argument in arguments if argument.startswith("--add-opens")] == [
        f"--add-opens=java.base/java.{name}=ALL-UNNAMED"
        for name in ("lang", "math", "util", "util.concurrent", "net", "text")
    ]
    assert arguments[-6:-3] == ["-cache", str(tmp_path / "cache"), "-out"]
    assert arguments[-2:] == ["-subset", "-silent"]
    assert "-jar" not in arguments
    assert not Path(arguments[-3]).parent.exists()  # its temporary folder
    assert java.exists()


def test_java_8_knows_no_modules_and_has_an_engine_of_its_own(fake_java, jars, tmp_path):
    fake_java(JAVA.replace("VERSION", "1.8.0_401"))
    (jars / "rhino-engine.jar").unlink()
    command = Spice(jars).command(tmp_path / "in.json", tmp_path / "out.json")
    assert not any("add-opens" in part for part in command)
    assert "-cache" not in command


def test_modern_java_needs_an_engine(fake_java, jars):
    fake_java(JAVA.replace("VERSION", "25"))
    (jars / "rhino-engine.jar").unlink()
    with pytest.raises(
        LegendaError, match="SPICE needs a JavaScript engine, which Java 25 lacks; download Rhino with: legenda score"
    ):
        Spice(jars)


def test_the_folder_may_be_named_by_the_environment(fake_java, jars, monkeypatch):
    fake_java(JAVA.replace("VERSION", "17"))
    with pytest.raises(LegendaError, match=r"SPICE needs .*--download-spice FOLDER, then set LEGENDA_SPICE_JARS"):
        Spice()
    monkeypatch.setenv("LEGENDA_SPICE_JARS", str(jars))
    assert Spice().jars == jars
    (jars / CORENLP[1]).unlink()
    with pytest.raises(LegendaError, match=r"my jars lacks stanford-corenlp-3\.6\.0-models\.jar, which SPICE needs"):
        Spice()


def test_failure_is_reported_with_its_reason(fake_java, jars):
    fake_java(
        JAVA.replace("import json, pathlib", "print('x.InaccessibleObjectException: y'); sys.exit(1)\nimport json")
    )
    with pytest.raises(LegendaError, match="does not print a version"):
        Spice(jars)
    fake_java(
        "if sys.argv[1] == '-version': print('version \"17\"')\n"
        "else: sys.exit('at x\\nException in main: NullPointerException')"
    )
    with pytest.raises(LegendaError, match=r"code 1 \(Exception in main: NullPointerException\)"):
        Spice(jars).score(["a"], [["a"]])


def test_a_run_that_takes_too_long_is_ended(fake_java, jars):
    fake_java("if sys.argv[1] == '-version': print('version \"17\"')\nelse: time.sleep(60)")
    with pytest.raises(LegendaError, match=r"SPICE took more than 0\.5 seconds"):
        Spice(jars, timeout=0.5).score(["a"], [["a"]])


def test_an_image_without_propositions_does_not_count():
    answer = json.loads(
        '[{"image_id": 0, "scores": {"All": {"f": NaN}, "Size": {"f": null}}},'
        ' {"image_id": 1, "scores": {"All": {"f": 0.5}, "Size": {"f": "NaN"}}},'
        ' {"image_id": 2, "scores": {"All": {"f": 0.0}, "Object": {"f": 0.25}}}]'
    )
    found = parse_spice(answer, 3)
    assert found == SpiceScores(0.25, [None, 0.5, 0.0], {"Object": [None, None, 0.25], "Size": [None, None, None]})
    assert parse_spice(answer[:1], 1).corpus is None


@pytest.mark.parametrize(
    "answer",
    [[], {}, [{"image_id": 0}], [{"image_id": 0, "scores": {}}], [{"image_id": 1, "scores": {"All": {"f": 1}}}], [3]],
)
def test_output_without_an_image_is_reported(answer):
    with pytest.raises(LegendaError, match="SPICE's output lacks a score"):
        parse_spice(answer, 1)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("LEGENDA_SPICE_JARS"), reason="LEGENDA_SPICE_JARS names no folder of jars")
def test_scores_of_pycocoevalcap(shared, tmp_path):
    """The first 20 captions of coco-caption's example; the expected mean is that of pycocoevalcap 1.2 on Java 17."""
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text())
    names = list(fixture["tok_candidates"])[:20]
    candidates = [fixture["tok_candidates"][name] for name in names]
    references = [fixture["tok_refs"][name] for name in names]
    parsed, cached = (Spice(cache=tmp_path / "cache").score(candidates, references) for _ in range(2))
    assert parsed.corpus == 0.11658572858272828
    assert cached == parsed
