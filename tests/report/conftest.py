"""A deterministic report of drawn shapes, without model and training."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from legenda.data.scenes import draw_scene, make_scene
from legenda.metrics.results import Prediction
from legenda.report import ExampleCard, ModelRun, Report, ScoreColumn, write_report

if TYPE_CHECKING:
    from playwright import sync_api

KINDS = ("near", "size", "bind")
RELATION = ("next", "to")


def _attention(random: np.random.Generator, targets: list[int | None], regions: int) -> np.ndarray:
    """Return rows that sum to 1 with most weight on the target region, if there is one."""
    scores = random.normal(0, 0.4, (len(targets), regions))
    for row, target in zip(scores, targets, strict=True):
        if target is not None:
            row[target] += 3.5
    return np.exp(scores) / np.exp(scores).sum(1, keepdims=True)


def _example(number: int) -> ExampleCard:
    random, scene = np.random.default_rng(number), make_scene("card", number)
    things, image = scene.things, io.BytesIO()
    draw_scene(scene).save(image, "PNG")

    def caption(first: int, second: int, truth: bool) -> Prediction:
        words = ["a", *things[first].kind, *RELATION, "a", *things[second].kind]
        targets = [first, first, first, None, second, second, second, second]
        note = "" if truth else "the pair is wrong: these two are far apart"
        return Prediction(words, truth, note=note, attention=_attention(random, targets, len(things)))

    true = caption(0, 1, True)
    return ExampleCard(
        id=f"test-{number:04d}",
        kind=KINDS[number % 3],
        image=f"data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}",
        boxes=[list(thing.box) for thing in things],
        references=[" ".join(true.words), "the two are next to each other"],
        captions={"transformer": caption(2, 3, False) if number % 4 else true, "ngsan": true},
    )


def _run(name: str, description: str, truths: tuple[float, float, float, float | None], cider: float) -> ModelRun:
    return ModelRun(
        name=name,
        description=description,
        parameters=412_345 if name == "transformer" else 420_771,
        seconds=64.2 if name == "transformer" else 78.9,
        scores={**dict(zip(("pair", "axis", "size", "bind"), truths, strict=True)), "cider_d": cider},
    )


@pytest.fixture(scope="session")
def report() -> Report:
    """Two models, five columns, twelve images of three kinds."""
    return Report(
        title="Why geometry matters",
        lead=(
            "Two captioning models of the same size and budget, trained on drawn scenes. The second one also reads "
            "the position of each region; every word shows its attention over the regions."
        ),
        columns=[
            ScoreColumn("pair", "pair", "captions that name the two objects which almost touch", percent=True),
            ScoreColumn("axis", "axis", "captions with the right relation of the pair", percent=True),
            ScoreColumn("size", "size", "captions that name the larger of two equal shapes", percent=True),
            ScoreColumn("bind", "bind", "captions with the right relation of two objects of one color", percent=True),
            ScoreColumn("cider_d", "CIDEr-D", "agreement with five reference captions, from 0 to 10"),
        ],
        runs=[
            _run(
                "transformer",
                "plain self-attention: it reads the features of the regions",
                (0.131, 0.502, 0.524, 0.51),
                1.6234,
            ),
            _run(
                "ngsan",
                "normalized and geometry-aware self-attention: it also reads their boxes",
                (0.974, 0.93, 0.99, None),
                2.8712,
            ),
        ],
        examples=[_example(number) for number in range(12)],
        footnotes=["Scores are shares of 600 unseen scenes.", "Both models saw the same scenes in the same order."],
    )


@pytest.fixture(scope="session")
def hostile_text() -> str:
    """Text that closes scripts, opens elements, starts comments, and contains a template placeholder."""
    return '</script><img src=x onerror="window.hacked=1"><!--<script>&amp;\u2028$title'


@pytest.fixture(scope="session")
def hostile_report(report, hostile_text) -> Report:
    """One model and one image, with the hostile text in every text field."""
    text, example = hostile_text, report.examples[0]
    run = ModelRun(text, text, 1, 1.0, {text: 0.5})
    caption = Prediction([text, "b"], False, note=text, attention=np.full((2, len(example.boxes)), 0.25))
    hostile = ExampleCard(text, text, example.image, example.boxes, [text], {text: caption})
    return Report(text, text, [ScoreColumn(text, text, text)], [run], [hostile], [text])


@pytest.fixture
def opened(browser, tmp_path) -> Iterator[Callable[..., sync_api.Page]]:
    """Open a report; at teardown check that no error was logged and only the file itself was requested."""
    errors: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_report(report: Report, width: int = 1280, **settings) -> sync_api.Page:
        path = write_report(report, tmp_path / "report.html")
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert errors == []
    assert {url.split(":")[0] for url in requests} <= {"file", "data"}
    assert len([url for url in requests if url.startswith("file:")]) == len(contexts)
