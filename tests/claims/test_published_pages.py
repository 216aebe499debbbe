"""The published pages of claims are those that `legenda claim --page` writes from the numbers next to them."""

import shutil

import pytest

from legenda.claims import list_claims, write_page
from run_fixtures import ROOT

PAGES = ROOT / "docs" / "results" / "claims"


@pytest.mark.parametrize("name", list_claims())
def test_a_published_page_follows_from_its_numbers(tmp_path, name):
    shutil.copy(PAGES / f"{name}.json", tmp_path)
    write_page(tmp_path / f"{name}.json")
    for kind in ("md", "svg"):
        written = (tmp_path / f"{name}.{kind}").read_text(encoding="utf-8")
        assert (PAGES / f"{name}.{kind}").read_text(encoding="utf-8") == written
