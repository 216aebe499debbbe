"""Errors in one sentence: extras that are missing, and those that are broken."""

import pytest

from legenda.errors import ConfigError, import_extra


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
