"""write_report: a self-contained, escaped file; invalid content raises an error."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from legenda.errors import DataError
from legenda.models import create_model
from legenda.models.registry import summarize
from legenda.report import Report, write_report
from legenda.report.report import _describe_runs

SVG_NAMESPACE = "http://www.w3.org/2000/svg"


class _Elements(HTMLParser):
    """Every start tag with its attributes, and the text inside each script and style."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.embedded: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.embedded.append((self.tags[-1][0], data))


def _write(report: Report, folder: Path) -> str:
    return write_report(report, folder / "report.html").read_text(encoding="utf-8")


def _data(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def _with_caption(report: Report, **changes) -> Report:
    first = report.examples[0]
    captions = {**first.captions, "ngsan": replace(first.captions["ngsan"], **changes)}
    return replace(report, examples=[replace(first, captions=captions)])


class DescribedRun:
    """What the legend of a report reads of a run."""

    imported = False

    def __init__(self, recipe="scenes.transformer", seed=0, learning_rate=0.001, **options):
        sizes = {"vocab_size": 9, "dim": 8, "num_heads": 2, "num_layers": 1, "ff_dim": 8}
        self.model = create_model("transformer", **sizes, **options)
        self.summary = summarize("transformer", self.model.config)
        stage = {"seed": seed, "epochs": 3, "schedule": {"kind": "constant", "learning_rate": learning_rate}}
        self.config = {**self.model.describe(), "name": recipe, "data": {"kind": "scenes"}, "training": stage}


@pytest.mark.parametrize("others", [{}, {"other": {}}, {"other": {"recipe": "mine"}}, {"other": {"norm": "in"}}])
def test_the_legend_hides_no_option_of_a_model(others):
    """Neither of a run alone, nor beside others of its recipe or of another one."""
    runs = {"run": DescribedRun(attention="x_linear"), **{name: DescribedRun(**how) for name, how in others.items()}}
    described = _describe_runs(runs)
    assert "attention=x_linear" in described["run"]
    assert "norm=in" in described.get("other", "norm=in") or "norm" not in others.get("other", {})


def test_the_legend_tells_runs_of_one_recipe_apart_by_nested_settings_too():
    described = _describe_runs({"a": DescribedRun(), "b": DescribedRun(learning_rate=0.1, seed=1)})
    assert "training.schedule.learning_rate=0.001" in described["a"]
    assert "training.seed=1" in described["b"]
    assert "epochs" not in described["b"]


def test_page_loads_no_external_resources(report, tmp_path):
    page = _write(report, tmp_path)
    assert set(re.findall(r"\w+://[^\s\"'`]*", page)) == {SVG_NAMESPACE}
    elements = _Elements(page)
    references = [
        value
        for _, attributes in elements.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset")
    ]
    assert references == ["data:,", "#examples"]
    assert [dict(attributes) for tag, attributes in elements.tags if tag == "link"] == [
        {"rel": "icon", "href": "data:,"}
    ]
    assert not {"iframe", "object", "base"} & {tag for tag, _ in elements.tags}
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|\beval\(", page)


def test_policy_allows_only_the_inlined_styles_and_scripts(report, tmp_path):
    elements = _Elements(_write(report, tmp_path))
    policies = [a["content"] for tag, a in elements.tags if tag == "meta" and a.get("http-equiv")]
    directives = dict(part.split(" ", 1) for part in policies[0].split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["img-src"] == "data:"
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        texts = [text for name, text in elements.embedded if name == tag and not text.startswith("{")]
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        assert directives[directive] == " ".join(f"'sha256-{digest}'" for digest in digests)


def test_hostile_text_is_escaped(report, hostile_text, hostile_report, tmp_path):
    page = _write(hostile_report, tmp_path)
    harmless = _Elements(_write(report, tmp_path))
    assert [tag for tag, _ in _Elements(page).tags] == [tag for tag, _ in harmless.tags]
    data = _data(page)
    example = data["examples"][0]
    assert example["captions"][hostile_text]["words"] == [hostile_text, "b"]
    assert (example["id"], example["kind"], example["references"]) == (hostile_text, hostile_text, [hostile_text])


def test_examples_hold_image_boxes_and_weights(report, tmp_path):
    example = report.examples[3]
    written = _data(_write(report, tmp_path))["examples"][3]
    assert written["image"] == example.image
    np.testing.assert_allclose(written["boxes"], example.boxes, atol=5e-5)
    for name in ("transformer", "ngsan"):
        np.testing.assert_allclose(written["captions"][name]["attention"], example.captions[name].attention, atol=5e-5)
        assert written["captions"][name]["verdict"] is example.captions[name].verdict


@pytest.mark.parametrize("shape", [(8,), (7, 4), (8, 5), (4, 8), (1, 8, 4)])
def test_attention_of_the_wrong_shape_names_example_and_model(report, tmp_path, shape):
    with pytest.raises(DataError, match=r"'test-0000'.*'ngsan'.*\(8, 4\)"):
        write_report(_with_caption(report, attention=np.zeros(shape)), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "boxes", [[[0, 0, 1]] * 4, [[0, 0, 1.1, 1]] * 4, [[0.5, 0, 0.2, 1]] * 4, [[0, math.nan, 1, 1]] * 4]
)
def test_invalid_boxes_name_the_example(report, tmp_path, boxes):
    example = replace(report.examples[0], boxes=boxes)
    with pytest.raises(DataError, match="'test-0000'"):
        write_report(replace(report, examples=[example]), tmp_path / "report.html")
