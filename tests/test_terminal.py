"""Control characters of strangers do not reach the terminal, and colors of the program do."""

import io
import os
import shutil
import sys

import numpy as np
import pytest

from legenda import terminal
from legenda.data.captions import ScenesData
from legenda.data.scenes import draw_scene, make_scene
from legenda.features import write_store
from legenda.terminal import counted, escape_controls, safe_stdout

EVIL = "\x1b]0;owned\x07\x1b[31mred\u202eeslaf\x9b2J\r"
ESCAPED = r"\u001b]0;owned\u0007\u001b[31mred\u202eeslaf\u009b2J\u000d"


def test_control_characters_become_escapes_and_other_text_stays():
    assert escape_controls(EVIL) == ESCAPED
    assert escape_controls("\u061c\u200e\u200f\u2066") == r"\u061c\u200e\u200f\u2066"  # of the order of letters
    assert escape_controls(os.fsdecode(b"\xff.png")) == r"\udcff.png"
    for text in ("Grüße, 猫 und 🐈\u200d", "two\tcolumns\nof lines", ESCAPED):
        assert escape_controls(text) == text


def test_an_encoding_without_a_character_gets_an_escape(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    with safe_stdout():
        print("caf\xe9")
    assert raw.getvalue() == rb"caf\xe9" + b"\n"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "LINE_INTERVAL_S", 0.0)
    with terminal.progress_bar("reading\x1b") as update:
        update(3, 7)
        terminal.STOPPED.set()
        try:
            with pytest.raises(KeyboardInterrupt):
                update(4, 7)
        finally:
            terminal.STOPPED.clear()
    assert capsys.readouterr().err == "reading\\u001b: 3 of 7\n"


def test_no_command_prints_what_a_terminal_obeys(make_run, run_command, tmp_path):
    run = shutil.copytree(make_run("transformer", ScenesData(train=40, validation=2)), tmp_path / "run")
    words = (run / "vocabulary.txt").read_text().split("\n")
    (run / "vocabulary.txt").write_text("\n".join([*words[:2], *(f"\u202e{word}" for word in words[2:-1]), ""]))
    image, empty = tmp_path / "a\x1b[31m.png", tmp_path / "b\x1b[31m.png"
    draw_scene(make_scene("fresh", 0)).save(image)
    empty.touch()
    store = tmp_path / "f.safetensors"
    write_store(store, [(EVIL, np.ones((2, 3)), None)], extractor=f"{EVIL}-01234567")
    for number, command in enumerate(
        (
            f"caption {image} {empty} --model {run}",
            f"extract {image} {empty} --extractor scenes --out {tmp_path}/\x1b[31mout.safetensors",
            f"inspect {store}",
            f"inspect {store} --json",
            f"evaluate {run} --features {store} --annotations {tmp_path}/\x1b[31mgone.json",
            f"score {tmp_path}/\x1b[31mgone.json {store}",
            f"caption {image} --model {run} --extractor \x1b[31m.py",
            "\x1b[31m",
        )
    ):
        _, out, err = run_command(command)
        assert "\\u001b[31m" in out + err, (number, out, err)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err


@pytest.mark.parametrize(
    ("number", "nouns", "form", "text"),
    [
        (1, "images", "", "1 image"),
        (0, "images", "", "0 images"),
        (1200, "different words", ",", "1,200 different words"),
    ],
)
def test_a_noun_agrees_with_its_number(number, nouns, form, text):
    assert counted(number, nouns, form) == text
