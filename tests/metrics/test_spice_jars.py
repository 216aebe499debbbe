"""The jars of SPICE: their download, their digests, and the checks before a run."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from legenda.errors import ConfigError, LegendaError
from legenda.metrics import download_jars
from legenda.metrics.spice_jars import CORENLP, JARS, find_jars, has_script_engine

CONTENT = {"edu/parser/1.0/parser.jar": "parser" * 1000, "org/engine/engine.jar": "engine" * 1000}
DIGESTS = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in CONTENT.items()}


@pytest.fixture
def repository(tmp_path) -> Path:
    for name, text in CONTENT.items():
        path = tmp_path / "maven" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "maven"


def download(repository, folder, calls=None):
    calls = [] if calls is None else calls
    return download_jars(
        folder, url=repository.as_uri(), jars=DIGESTS, progress=lambda done, total: calls.append((done, total))
    )


def test_download(repository, tmp_path):
    calls = []
    paths = download(repository, tmp_path / "jars", calls)
    assert [path.name for path in paths] == ["parser.jar", "engine.jar"]
    assert [path.read_text() for path in paths] == list(CONTENT.values())
    assert calls == [(6000, 6000)] * 2
    assert len(list((tmp_path / "jars").iterdir())) == 2


def test_only_missing_and_damaged_jars_are_downloaded_again(repository, tmp_path):
    parser, engine = download(repository, tmp_path / "jars")
    (repository / "edu/parser/1.0/parser.jar").unlink()
    engine.write_text("cut off")
    download(repository, tmp_path / "jars")
    assert engine.read_text() == CONTENT["org/engine/engine.jar"]
    assert parser.read_text() == CONTENT["edu/parser/1.0/parser.jar"]


def test_other_content_is_refused(repository, tmp_path):
    (repository / "org/engine/engine.jar").write_text("<html>moved</html>")
    with pytest.raises(LegendaError, match=r"engine\.jar has the SHA-256 digest .*, not .*; check the address"):
        download(repository, tmp_path / "jars")
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["parser.jar"]


def test_no_network(tmp_path):
    with pytest.raises(LegendaError, match=r"cannot be downloaded .*; check the network, or put parser\.jar into"):
        download_jars(tmp_path / "jars", url="http://127.0.0.1:9", jars=DIGESTS, progress=lambda _done, _total: None)
    assert not list((tmp_path / "jars").iterdir())


def test_default_files_are_those_that_spice_needs():
    assert {Path(name).name for name in JARS} >= set(CORENLP)
    assert any("rhino-engine" in name for name in JARS)
    assert all(len(digest) == 64 for digest in JARS.values())


@pytest.mark.parametrize(("manifest", "found"), [("Implementation-Version: 4.5.4\n", "4.5.4"), ("", "unknown")])
def test_another_version_is_refused(tmp_path, manifest, found):
    for name in CORENLP:
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\n{manifest}")
    with pytest.raises(ConfigError, match=rf"is CoreNLP .*{found}.*, but SPICE needs 3\.6\.0; download"):
        find_jars(tmp_path)
    (tmp_path / CORENLP[0]).write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="unknown version, but SPICE needs"):
        find_jars(tmp_path)


def test_script_engine_is_found_in_any_jar(tmp_path):
    (tmp_path / "broken.jar").write_bytes(b"no archive")
    assert not has_script_engine(tmp_path)
    with zipfile.ZipFile(tmp_path / "any.jar", "w") as jar:
        jar.writestr("META-INF/services/javax.script.ScriptEngineFactory", "x")
    assert has_script_engine(tmp_path)
