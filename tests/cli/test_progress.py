"""A progress bar on terminals, and no output elsewhere."""

import pytest

from legenda.cli.progress import progress_bar


@pytest.mark.parametrize("total", [4, 0])
def test_a_terminal_shows_the_progress(capsys, monkeypatch, total):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("captioning images") as show:
        show(3, total)
    output = capsys.readouterr()
    assert output.out == ""
    assert "captioning images" in output.err
    assert ("75%" in output.err) == (total == 4)


def test_elsewhere_nothing_is_printed(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress_bar("captioning images") as show:
        show(3, 4)
    assert capsys.readouterr() == ("", "")
