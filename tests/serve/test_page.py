"""The served page in a real browser: uploads, captions, attention, errors and downloads."""

import csv
import json
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.data.scenes import draw_scene, make_scene

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("playwright", reason="needs the playwright package")

import uvicorn
from playwright import sync_api

from legenda.serve.app import create_app
from legenda.serve.engine import Engine

sync_api.expect.set_options(timeout=60_000)  # a busy machine is no failure


@pytest.fixture(scope="module")
def address(served, samples) -> Iterator[str]:
    """A server on a free port of this machine."""
    with Engine(served) as engine, socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(engine, samples, {}, max_bytes=500_000)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def page(browser, address) -> Iterator["sync_api.Page"]:
    """The page; at teardown check that only the server was requested and no script failed."""
    requested: list[str] = []
    failed: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(address)
    yield page
    context.close()
    assert failed == []
    assert requested
    assert all(url.startswith((address, "data:", f"blob:{address}")) for url in requested)


@pytest.fixture
def scene_file(tmp_path) -> Path:
    path = tmp_path / "mine.png"
    draw_scene(make_scene("requested", 1)).save(path)
    return path


def _upload(page, path: Path) -> None:
    page.locator("input[type=file]").set_input_files(str(path))


def test_an_upload_is_captioned_and_a_word_highlights_its_regions(page, scene_file):
    _upload(page, scene_file)
    results = page.locator(".result")
    sync_api.expect(results).to_have_count(2)
    assert results.locator("h2").all_text_contents()[0].startswith("ngsan")
    overlay = results.nth(0).locator(".attention-overlay")
    words = results.nth(0).locator("button.attention-word")
    assert words.count() > 0
    assert "is-lit" not in (overlay.get_attribute("class") or "")
    words.nth(0).hover()
    assert "is-lit" in (overlay.get_attribute("class") or "")
    assert page.locator(".attention-overlay.is-lit").count() == 1
    widths = "images => Promise.all(images.map(image => image.decode().then(() => image.naturalWidth)))"
    assert results.locator("img").evaluate_all(widths) == [320, 320]


@pytest.mark.slow
def test_invalid_uploads_show_an_error(page, scene_file, tmp_path):
    wrong = tmp_path / "letter.txt"
    wrong.write_text("dear server")
    _upload(page, wrong)
    sync_api.expect(page.get_by_role("alert")).to_contain_text("letter.txt is not an image of a known type")
    large = tmp_path / "large.png"
    noise = np.random.default_rng(0).integers(0, 256, (500, 500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(large)
    _upload(page, large)
    sync_api.expect(page.get_by_role("alert")).to_contain_text("large.png is too large; send at most 0.5 MB")
    _upload(page, scene_file)
    sync_api.expect(page.locator(".result")).to_have_count(2)
    assert page.get_by_role("alert").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_caption_and_the_chooser_are_in_view(page, scene_file, width, height):
    page.set_viewport_size({"width": width, "height": height})
    _upload(page, scene_file)
    sync_api.expect(page.locator(".result img")).to_have_count(2)
    sync_api.expect(page.locator(".attention-words").first).to_be_in_viewport(ratio=1)
    sync_api.expect(page.get_by_role("button", name="Choose images")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_several_files_are_captioned_in_order_and_a_bad_one_is_named(page, scene_file, tmp_path):
    wrong, second = tmp_path / "letter.txt", tmp_path / "second.png"
    wrong.write_text("dear server")
    second.write_bytes(scene_file.read_bytes())
    page.locator("input[type=file]").set_input_files([str(scene_file), str(wrong), str(second)])
    sync_api.expect(page.locator(".result")).to_have_count(4)
    names = [text.split(",")[0] for text in page.locator(".result h2 small").all_text_contents()]
    assert names == ["mine.png", "mine.png", "second.png", "second.png"]
    sync_api.expect(page.get_by_role("alert")).to_contain_text("letter.txt is not an image of a known type")


def test_things_are_drawn_where_they_are_and_one_can_be_pointed_at(page, scene_file):
    things = [
        {"label": "cup", "score": 0.9, "box": [0.25, 0.5, 0.75, 1]},
        {"label": "cup", "score": 0.6, "box": [0, 0, 0.2, 0.2]},
        {"label": "fork", "score": 0.4, "box": [0, 0, 1, 1]},
    ]

    page.evaluate(
        """things => {
          const original = window.fetch;
          window.fetch = async (...request) => {
            const response = await original(...request);
            const content = await response.json();
            return { ok: response.ok, json: async () => ({ ...content, things }) };
          };
        }""",
        things,
    )
    page.get_by_role("checkbox", name="xlan").uncheck()
    page.set_input_files("input[type=file]", scene_file)
    cup, stage = page.locator(".thing", has_text="cup").first, page.locator(".attention-stage")
    cup.wait_for()
    corner = """(node, stage) => {
      const [inner, outer] = [node, stage].map((element) => element.getBoundingClientRect());
      return [(inner.x - outer.x) / outer.width, (inner.y - outer.y) / outer.height, inner.width / outer.width];
    }"""
    assert cup.evaluate(corner, stage.element_handle()) == pytest.approx([0.25, 0.5, 0.5], abs=0.01)
    fork = page.locator(".thing", has_text="fork")
    assert not fork.is_visible()
    page.get_by_role("checkbox", name="boxes below 0.5").check()
    assert fork.is_visible()
    page.locator(".thing-name", has_text="2 cups").hover()
    assert float(fork.evaluate("node => getComputedStyle(node).opacity")) < 0.5
    page.locator("button.attention-word").first.hover()
    assert not cup.is_visible()


@pytest.mark.slow
def test_a_sentence_is_copied(page, scene_file):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    _upload(page, scene_file)
    result = page.locator(".result").first
    result.get_by_role("button", name="Copy the sentence").click()
    sync_api.expect(result.get_by_role("button", name="Copied")).to_be_visible()
    sentence = " ".join(result.locator(".attention-word").all_text_contents())
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    assert page.evaluate("navigator.clipboard.readText()") == sentence
    page.get_by_role("button", name="Copy all").click()
    page.get_by_role("group", name="All captions").get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[0] == sentence


def test_captions_of_all_images_are_saved_as_csv(page, scene_file):
    _upload(page, scene_file)
    sync_api.expect(page.locator(".result")).to_have_count(2)
    assert page.locator(".tools select").count() == 1
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    with open(download.value.path(), newline="", encoding="utf-8") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["ngsan", "xlan"]
    words = page.locator(".result").first.locator(".attention-word").all_text_contents()
    assert rows[0]["caption"] == " ".join(words)
    assert rows[0]["image"] == "mine.png"
    assert float(rows[0]["log_prob"]) < 0
    assert rows[0]["confidence"] == ""


def test_an_image_that_browsers_do_not_draw_is_drawn(page, tmp_path):
    draw_scene(make_scene("requested", 1)).save(tmp_path / "IMG_0001.HEIC", format="HEIF")
    _upload(page, tmp_path / "IMG_0001.HEIC")
    images = page.locator(".result .attention-stage img")
    sync_api.expect(images).to_have_count(2)
    for image in (*images.all(), page.locator(".history img").first):
        assert image.get_attribute("src").startswith("data:image/jpeg")
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
    assert page.locator(".undrawn").count() == 0


def test_a_form_captions_without_javascript(browser, address, scene_file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    page.locator("input[type=file]").set_input_files(str(scene_file))
    sync_api.expect(page.locator("form")).to_contain_text("ngsan, xlan")
    page.get_by_role("button", name="Caption").click()
    sync_api.expect(page.locator(".answers")).to_contain_text("mine.png: ")
    context.close()


def _examples(language: str) -> str:
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "serving.md"
    return guide.read_text(encoding="utf-8").split(f"```{language}\n")[-1].split("```")[0]


def test_the_python_client_of_the_guide_works(address, scene_file):
    names: dict = {}
    exec(compile(_examples("python"), "serving.md", "exec"), names)
    result = names["caption"](scene_file, server=address, model="xlan", num_captions=2)
    assert (result["model"], len(result["captions"])) == ("xlan", 2)


def test_the_javascript_client_of_the_guide_works(page, address, scene_file):
    program = _examples("javascript").replace("http://127.0.0.1:8000", address)
    data = list(scene_file.read_bytes())
    call = (
        f"async (data) => {{ const file = new Blob([new Uint8Array(data)]); {program} return answer.captions.length; }}"
    )
    assert page.evaluate(call, data) == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_lines_of_the_guide_work(address, scene_file, tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(scene_file.read_bytes())
    lines = _examples("bash").replace("http://127.0.0.1:8000", address).splitlines()
    answers = [
        subprocess.run(["curl", "-s", *shlex.split(line)[1:]], cwd=tmp_path, capture_output=True) for line in lines
    ]
    assert len(json.loads(answers[0].stdout)["captions"]) == 2
    assert [entry["name"] for entry in json.loads(answers[1].stdout)] == ["a.png", "b.png"]
    assert Image.open(tmp_path / "sheet.png").format == "PNG"
