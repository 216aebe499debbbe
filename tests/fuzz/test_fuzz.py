"""A share of the fuzz suite: damaged files of some formats end with the output of valid ones, or with one sentence."""

import contextlib
import io
import traceback
from typing import Any

import pytest
from campaign import BUILDERS, Campaign, Case

from legenda.cli.main import main


class InProcess:
    """Runs commands in this process, as `campaign.Child` does in another."""

    def __init__(self) -> None:
        self.warm: set[str] = set()

    def run(self, arguments: list[str], limit: float = 0) -> dict[str, Any]:
        """Return how a command ended."""
        out, err, trace, code = io.StringIO(), io.StringIO(), "", 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:  # a finding, whatever it is
                trace = traceback.format_exc()
        return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "trace": trace, "peak": 0.0, "cpu": limit}

    def renew(self) -> None:
        """Nothing: it never ends."""

    close = renew


@pytest.mark.parametrize(("builder", "cases"), [("features", 5), ("score", 10), ("import", 5)])
def test_damaged_files_are_read_as_valid_ones_or_refused(builder, cases, tmp_path):
    campaign = Campaign(tmp_path, tmp_path / "saved", builder, InProcess())
    for subject in campaign.subjects:
        for number in range(cases):
            found = campaign.run(Case(subject, 0, number))
            assert found is None, found
        assert campaign.tallies[subject.name].counts["refused"], subject.name


@pytest.mark.slow
@pytest.mark.parametrize("builder", BUILDERS)
def test_damaged_files_end_no_process(builder, tmp_path):
    campaign = Campaign(tmp_path, tmp_path / "saved", builder)
    try:
        found = [campaign.run(Case(subject, 1, number)) for subject in campaign.subjects for number in range(20)]
    finally:
        campaign.child.close()
    assert [text for text in found if text is not None] == []
