"""The served page in a real browser: a picture in, a caption out, and what a pointer, a wrong file and a click do."""

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.datasets.scenes import draw_scene, make_scene

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("playwright", reason="needs the playwright package")

import uvicorn
from playwright import sync_api

from legenda.serving.app import Limits, create_app
from legenda.serving.samples import sample_pictures


@pytest.fixture(scope="module")
def address(served, tmp_path_factory) -> Iterator[str]:
    """A server on a free port of this machine."""
    samples = sample_pictures(tmp_path_factory.mktemp("samples"), [], scenes=True)
    app = create_app(served, samples, Limits(most_bytes=500_000, hosts=("127.0.0.1",)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not server.started and time.monotonic() < until:
            time.sleep(0.02)
        assert server.started
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def page(browser, address) -> Iterator["sync_api.Page"]:
    """The page; at the end, nothing may have been asked of anyone but the server, and no script may have failed."""
    asked: list[str] = []
    failed: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert failed == []
    assert asked
    assert all(url.startswith((address, "data:", f"blob:{address}")) for url in asked)


@pytest.fixture
def scene_file(tmp_path) -> Path:
    path = tmp_path / "mine.png"
    draw_scene(make_scene("asked", 1)).save(path)
    return path


def _upload(page, path: Path) -> None:
    page.locator("input[type=file]").set_input_files(str(path))


def test_an_upload_is_captioned_by_two_models_and_a_pointer_changes_the_overlay(page, scene_file):
    _upload(page, scene_file)
    answers = page.locator(".answer")
    sync_api.expect(answers).to_have_count(2)
    assert answers.locator("h2").all_text_contents()[0].startswith("ngsan")
    overlay = answers.nth(0).locator(".attention-overlay")
    words = answers.nth(0).locator("button.attention-word")
    assert words.count() > 0
    assert "is-lit" not in (overlay.get_attribute("class") or "")
    words.nth(0).hover()
    assert "is-lit" in (overlay.get_attribute("class") or "")
    assert page.locator(".attention-overlay.is-lit").count() == 1
    widths = "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    assert answers.locator("img").evaluate_all(widths) == [320, 320]


def test_the_chosen_head_is_shown_and_stays_chosen(page, scene_file):
    _upload(page, scene_file)
    sync_api.expect(page.locator(".answer")).to_have_count(2)
    choice = page.get_by_role("combobox", name="Attention")
    assert choice.locator("option").all_text_contents() == ["all heads averaged", "head 0", "head 1"]
    page.locator(".answer").first.locator("button.attention-word").first.click()
    page.mouse.move(2, 2)
    lit = page.locator(".attention-overlay.is-lit mask rect[fill='black']")
    opacities = "rects => rects.map((rect) => rect.getAttribute('fill-opacity'))"
    shown = []
    for label in ("all heads averaged", "head 0", "head 1"):
        choice.select_option(label=label)
        shown.append(tuple(lit.evaluate_all(opacities)))
    assert len(set(shown)) == 3
    page.get_by_role("button", name="Caption", exact=True).click()
    sync_api.expect(page.locator(".history .thumb")).to_have_count(2)
    assert choice.locator("option:checked").text_content() == "head 1"
    assert page.locator(".answer .attention-head:visible").all_text_contents() == ["head 1"] * 2


def test_the_keyboard_alone_asks_and_looks(page):
    page.locator(".samples .thumb").first.focus()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator(".answer")).to_have_count(2)
    word = page.locator("button.attention-word").first
    for _ in range(40):
        page.keyboard.press("Tab")
        if word.evaluate("node => node === document.activeElement"):
            break
    assert page.locator(".attention-overlay.is-lit").count() == 1


def test_a_wrong_file_is_refused_in_words_and_the_next_is_captioned(page, scene_file, tmp_path):
    wrong = tmp_path / "letter.txt"
    wrong.write_text("dear server")
    _upload(page, wrong)
    sync_api.expect(page.get_by_role("alert")).to_contain_text("letter.txt is not a picture of a known kind")
    large = tmp_path / "large.png"
    noise = np.random.default_rng(0).integers(0, 256, (500, 500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(large)
    _upload(page, large)
    sync_api.expect(page.get_by_role("alert")).to_contain_text("the picture is too large")
    _upload(page, scene_file)
    sync_api.expect(page.locator(".answer")).to_have_count(2)
    assert page.get_by_role("alert").count() == 0


def test_settings_and_samples_and_history(page):
    page.get_by_role("checkbox", name="xlan").uncheck()
    page.get_by_role("spinbutton", name="captions").fill("3")
    page.get_by_role("spinbutton", name="temperature").fill("1.5")
    page.locator(".samples .thumb").nth(2).click()
    sync_api.expect(page.locator(".answer")).to_have_count(1)
    assert page.locator(".answer .attention-caption").count() == 3
    page.get_by_role("checkbox", name="xlan").check()
    page.get_by_role("button", name="Caption", exact=True).click()
    sync_api.expect(page.locator(".answer")).to_have_count(2)
    assert page.locator(".history .thumb").count() == 2
    page.locator(".history .thumb").nth(1).click()
    sync_api.expect(page.locator(".answer")).to_have_count(1)


def test_a_pasted_and_a_dropped_picture_are_captioned(page):
    give = """(kind) => fetch("/api/samples/scene-1.png").then((answer) => answer.blob()).then((data) => {
      const files = new DataTransfer();
      files.items.add(new File([data], `${kind}.png`, {type: "image/png"}));
      const event = kind === "paste" ? new ClipboardEvent("paste", {clipboardData: files, bubbles: true})
        : new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true});
      document.querySelector(".drop").dispatchEvent(event);
    })"""
    for number, kind in enumerate(("paste", "drop"), start=1):
        page.evaluate(give, kind)
        sync_api.expect(page.locator(".history .thumb")).to_have_count(number)
        assert page.locator(".answer img").first.get_attribute("alt") == f"Picture {kind}.png"


def test_json_and_png_can_be_kept(page, scene_file):
    _upload(page, scene_file)
    first = page.locator(".answer").first
    with page.expect_download() as kept:
        first.get_by_role("button", name="JSON").click()
    told = json.loads(Path(kept.value.path()).read_text())
    assert kept.value.suggested_filename == "mine-ngsan.json"
    assert told["captions"][0]["words"] == first.locator(".attention-word").all_text_contents()
    assert told["settings"]["beam_size"] == "3"
    with page.expect_download() as kept:
        first.get_by_role("button", name="PNG").click()
    assert Image.open(io.BytesIO(Path(kept.value.path()).read_bytes())).format == "PNG"


def test_a_phone_needs_no_sideways_scrolling(page, scene_file):
    page.set_viewport_size({"width": 390, "height": 800})
    _upload(page, scene_file)
    sync_api.expect(page.locator(".answer")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_page_of_the_api_describes_every_call(page, address):
    page.goto(f"{address}/docs")
    headings = page.locator("#operations h2 code")
    sync_api.expect(headings).to_have_count(6)
    assert "POST /api/captions" in headings.all_text_contents()
    assert page.get_by_role("rowheader", name="temperature").first.is_visible()


def test_the_client_of_the_documentation_is_answered(address, scene_file):
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(compile(page.split("```python\n")[1].split("```")[0], "serving.md", "exec"), names)
    answer = names["caption"](scene_file, server=address, model="xlan", captions=2)
    assert (answer["model"], len(answer["captions"])) == ("xlan", 2)
