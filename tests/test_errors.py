"""Errors in one sentence: extras that are missing, and those that are broken."""

import pytest

from legenda.errors import ConfigError, first_line, import_extra
from legenda.registry import reason_of


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere.at_all", "^nowhere is missing; install legenda"),
        (
            "raise ImportError('libx.so: cannot open shared object file\\nmore')",
            "extra_of_test cannot be imported .libx.so",
        ),
        ("raise ImportError", "extra_of_test cannot be imported .ImportError"),
    ],
)
def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch, source, message):
    (tmp_path / "extra_of_test.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=message):
        import_extra("extra_of_test", "hub")


def test_the_first_line_of_a_message_is_one_that_says_something():
    """The library transformers begins such messages with a line end."""
    assert first_line(ValueError("\n  \nThis needs more.\nHere is how.")) == "This needs more."
    assert first_line(ValueError(" \n")) == "ValueError"
    assert reason_of(ValueError("\nThis needs more.")) == "ValueError: This needs more."
