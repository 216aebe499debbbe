"""A bar where there is a terminal, and silence elsewhere."""

import pytest

from legenda.cli.progress import progress_bar


@pytest.mark.parametrize("total", [4, 0])
def test_a_terminal_shows_how_far_it_is(capsys, monkeypatch, total):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("captioning pictures") as show:
        show(3, total)
    said = capsys.readouterr()
    assert said.out == ""
    assert "captioning pictures" in said.err
    assert ("75%" in said.err) == (total == 4)


def test_elsewhere_nothing_is_said(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress_bar("captioning pictures") as show:
        show(3, 4)
    assert capsys.readouterr() == ("", "")
