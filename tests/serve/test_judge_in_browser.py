"""The page of `legenda judge` in a real browser: name, buttons, keys, undo, resuming."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("playwright", reason="needs the playwright package")

import uvicorn
from playwright import sync_api

from legenda.evaluation.judgments import JudgmentFile, Pair, read_judgments
from legenda.serve.judge_app import create_judge_app
from legenda.serve.limits import Limits

pytestmark = pytest.mark.slow
PAIRS = [Pair(str(number), f"a dog <b>{number}</b>", f"a cat {number}") for number in range(4)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "judgments.jsonl"


@pytest.fixture
def page(browser, path, tmp_path) -> Iterator["sync_api.Page"]:
    """The page; at teardown check that no script failed and only the server was requested."""
    images = [tmp_path / f"{pair.image}.png" for pair in PAIRS]
    for image in images:
        Image.new("RGB", (300, 200), "teal").save(image)
    app = create_judge_app(JudgmentFile(path, "a", "b", PAIRS), images, Limits(max_bytes=10_000))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    requested: list[str] = []
    failed: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not server.started and time.monotonic() < until:
            time.sleep(0.02)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        context = browser.new_context(viewport={"width": 390, "height": 780})
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on("console", lambda message: failed.append(message.text))
        page.goto(address)
        yield page
        context.close()
        server.should_exit = True
        thread.join(20)
    assert failed == []
    assert all(url.startswith((address, "data:")) for url in requested)


def start(page, name: str) -> None:
    page.get_by_label("Your name").fill(name)
    page.keyboard.press("Enter")


def expect_done(page, done: int) -> None:
    sync_api.expect(page.get_by_role("status")).to_have_text(f"{done} of 4")


def test_a_judge_answers_by_keys_and_buttons_undoes_and_continues(page, path):
    start(page, "Ann")
    expect_done(page, 0)
    choices = page.locator(".choices:enabled")
    choices.wait_for()
    shown = page.locator(".caption").all_text_contents()
    assert any("<b>" in text for text in shown)  # captions are text, never markup
    page.keyboard.press("1")
    expect_done(page, 1)
    choices.wait_for()
    page.get_by_role("button", name="Second caption is better").click()
    expect_done(page, 2)
    page.keyboard.press("u")
    expect_done(page, 1)
    page.reload()
    expect_done(page, 1)  # the tab knows the name
    for done in (2, 3, 4):
        choices.wait_for()
        page.keyboard.press("0")
        expect_done(page, done)
    sync_api.expect(page.get_by_text("That was the last pair")).to_be_visible()
    verdicts = list(read_judgments(path).verdicts["Ann"].values())
    assert verdicts[0] in ("first", "second")
    assert verdicts[1:] == ["equal"] * 3
    page.get_by_role("button", name="Change the name").click()
    start(page, "Bob")
    expect_done(page, 0)
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
