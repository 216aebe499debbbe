"""METEOR against its reference, and a program that misbehaves in every way."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from legenda.errors import LegendaError
from legenda.metrics import Meteor
from legenda.metrics.resampling import _meteor

# A program that keeps METEOR's protocol: what it says of a caption is how long it is, and the score of that.
PROTOCOL = """
for line in sys.stdin:
    parts = line.rstrip("\\n").split(" ||| ")
    if parts[0] == "SCORE":
        print(len(parts[-1]), len(parts), flush=True)
    else:
        counts = [float(part.split()[0]) for part in parts[1:]]
        print(*counts, sum(counts), sep="\\n", flush=True)
"""


@pytest.fixture(scope="module")
def meteor():
    """One process of the real program for all tests here."""
    if find_spec("pycocoevalcap") is None:
        pytest.skip("needs the extra `meteor`")
    with Meteor() as program:
        yield program


@pytest.fixture
def fake_meteor(fake_java, monkeypatch):
    """A Meteor whose program is the given Python code."""
    monkeypatch.setattr("legenda.metrics.meteor.find_program", lambda _, file: Path(file))
    programs = []

    def make(code: str = PROTOCOL, timeout: float = 30.0) -> Meteor:
        fake_java(code)
        programs.append(Meteor(timeout=timeout))
        return programs[-1]

    yield make
    for program in programs:
        program.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def process_of(program: Meteor) -> int:
    assert program._child is not None
    return program._child.process.pid


def test_a_thousand_images_score_as_in_pycocoevalcap(meteor, shared):
    fixture = json.loads((shared / "fixtures/metrics_fakecap.json").read_text(encoding="utf-8"))
    images = list(fixture["tok_candidates"])
    found = meteor.score(
        [fixture["tok_candidates"][image] for image in images], [fixture["tok_refs"][image] for image in images]
    )
    assert found.corpus == fixture["corpus"]["METEOR"]
    assert dict(zip(images, found.per_image, strict=True)) == fixture["per_image"]["METEOR"]
    # What resampling makes of the counts is the same again.
    counts = np.array(found.counts)
    assert _meteor(counts) == pytest.approx(found.per_image, abs=1e-12)
    assert float(_meteor(counts.sum(0))) == pytest.approx(found.corpus, abs=1e-12)


def test_a_score_by_hand(meteor):
    # "cats" has the stem of "cat" (0.6), "sit" is a synonym of "sat" (0.8); content words count 0.75, others 0.25.
    found = meteor.score(["the cats sit"], [["a cat sat"]])
    precision = recall = 0.75 * (0.6 + 0.8) / (0.75 * 2 + 0.25 * 1)
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    assert found.corpus == pytest.approx(mean * (1 - 0.6 * (1 / 2) ** 0.2))


def test_signs_that_break_the_protocol_count_as_spaces(meteor):
    odd = meteor.score(
        ["a dog\nruns\rhome", "a ||| b", "caf\ud800e", "", "a cat\u2028"],
        [["a dog runs home"], ["a b", "a |||| b"], ["x\ny"], ["a kite"], [""]],
    )
    plain = meteor.score(
        ["a dog runs home", "a   b", "caf?e", "", "a cat"],
        [["a dog runs home"], ["a b", "a   b"], ["x y"], ["a kite"], [""]],
    )
    assert odd == plain
    assert odd.per_image == [pytest.approx(1.0), pytest.approx(1.0), 0.0, 0.0, 0.0]


def test_no_captions_are_refused():
    with pytest.raises(LegendaError, match="no captions"):
        Meteor().score([], [])
    with pytest.raises(LegendaError, match="a caption has no references"):
        Meteor().score(["a", "b"], [["a"], []])


def test_calls_from_several_threads_wait_for_one_another(fake_meteor):
    program = fake_meteor()
    answers = {}

    def ask(length: int) -> None:
        answers[length] = program.score(["a" * length] * 50, [["b"]] * 50).per_image

    threads = [threading.Thread(target=ask, args=(length,)) for length in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {length: [float(length)] * 50 for length in range(1, 9)}


def test_long_conversations_do_not_block(fake_meteor):
    # More than any pipe holds, both ways and on the standard error.
    program = fake_meteor(f"sys.stderr.write('warning ' * 100_000 + '\\n'); sys.stderr.flush()\n{PROTOCOL}")
    found = program.score(["word " * 100] * 4000, [["b" * 500]] * 4000)
    assert found.per_image == [500.0] * 4000


def test_a_silent_program_is_ended_after_the_time_out(fake_meteor):
    program = fake_meteor("time.sleep(60)", timeout=0.3)
    began = time.monotonic()
    with pytest.raises(LegendaError, match=r"METEOR printed nothing for 0\.3 seconds and was killed"):
        program.score(["a"], [["a"]])
    assert time.monotonic() - began < 10


def test_killed_program_is_reported_and_restarted(fake_meteor):
    program = fake_meteor()
    assert program.score(["abc"], [["b"]]).corpus == 3.0
    first = process_of(program)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(LegendaError, match="METEOR exited by signal 9 before it had answered"):
        program.score(["abc"], [["b"]])
    assert program.score(["ab"], [["b"]]).corpus == 2.0
    assert process_of(program) != first


def test_reason_of_a_failure_is_reported(fake_meteor):
    program = fake_meteor("print('Exception in thread main: no memory', file=sys.stderr); sys.exit(3)")
    with pytest.raises(LegendaError, match=r"with exit code 3 \(Exception in thread main: no memory\)"):
        program.score(["a"], [["a"]])


def test_output_without_numbers_is_reported(fake_meteor):
    program = fake_meteor("for line in sys.stdin: print('Error: specify SCORE or EVAL or SING', flush=True)")
    with pytest.raises(LegendaError, match="printed something other than numbers"):
        program.score(["a"], [["a"]])


def test_java_that_does_not_start_is_reported(fake_meteor, tmp_path):
    program = fake_meteor()
    (tmp_path / "java").write_bytes(b"\x7fELF and no more")
    with pytest.raises(LegendaError, match="java does not start"):
        program.score(["a"], [["a"]])


@pytest.mark.parametrize("leave", ["close", "forget", "interrupt"])
def test_no_process_is_left(fake_meteor, leave, monkeypatch):
    fake_meteor()
    program = Meteor()
    program.score(["a"], [["a"]])
    pid = process_of(program)
    assert is_running(pid)
    if leave == "close":
        program.close()
    elif leave == "forget":
        del program
        gc.collect()
    else:

        def interrupted(*_args: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("legenda.metrics.meteor._Child.ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            program.score(["a"], [["a"]])
    assert not is_running(pid)


def test_an_interpreter_that_ends_takes_its_program_along(fake_meteor, tmp_path):
    fake_meteor()
    code = (
        "from pathlib import Path; import legenda.metrics.meteor as m; m.find_program = lambda _, file: Path(file); "
        "program = m.Meteor(); program.score(['a'], [['a']]); print(program._child.process.pid)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert not is_running(int(ended.stdout))
    assert ended.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["java"]
