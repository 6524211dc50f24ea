"""Progress: a live panel in a terminal, lines in a log, nothing if quiet; colours only where they are wanted."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from boxqte.engines.protocol import Progress
from boxqte.report.progress import LivePanel, PlainLines, Speed, show_progress, show_steps, time_left_words, wants_color

ROOT = Path(__file__).resolve().parents[2]
MOMENT = Progress(2.0, 0.25, 0.75, 0.5, 1000, 12)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_speed_is_that_of_the_last_seconds() -> None:
    speed = Speed()
    rates = [speed.update(float(i), 100 * i if i < 50 else 5000) for i in range(1, 61)]
    assert rates[20] == pytest.approx(100)
    assert rates[-1] == 0


def test_a_log_gets_one_line_every_few_seconds_with_speed_and_time_left() -> None:
    log = io.StringIO()
    lines = PlainLines("sex", 60.0, log)
    for tenth in range(100):
        lines(Progress(tenth / 10, 0.25, 0.75, 0.5, 100 * tenth, 12))
    said = log.getvalue().splitlines()
    assert len(said) == 3
    assert said[0].startswith("sex:      3.0 s  measure between 0.25")
    assert "1,000 a second, 57 s left" in said[0]


def test_while_nothing_happens_a_log_says_so_once() -> None:
    log = io.StringIO()
    lines = PlainLines("", None, log)
    for second in range(100):
        lines(Progress(float(second), 0.0, 1.0, 0.0, 0, 0))
    assert log.getvalue().count("\n") == 1
    assert "starting" in log.getvalue()


@pytest.mark.parametrize(("limit", "words"), [(None, ""), (float("inf"), ""), (60.0, "50 s left"), (5.0, "0 s left")])
def test_time_left(limit: float | None, words: str) -> None:
    assert time_left_words(10.0, limit) == words


def test_steps_are_lines_in_a_log_and_nothing_if_quiet() -> None:
    log = io.StringIO()
    with show_steps("report", time_limit=9.0, stream=log) as say:
        assert say is not None
        for name in ("regions", "flips", "profiles"):
            say(name)
    assert re.fullmatch(r"report:      0\.\d s  regions, 9 s left\n", log.getvalue())  # one every few seconds
    with show_steps("report", quiet=True, stream=log) as say:
        assert say is None


def test_steps_are_one_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with show_steps("report", stream=terminal) as say:
        assert say is not None
        say("regions")
        time.sleep(0.3)
    assert "regions" in terminal.getvalue()


def test_a_log_says_what_is_certain_and_what_is_statistical() -> None:
    log = io.StringIO()
    PlainLines("", None, log)(Progress(5.0, 0.25, 0.75, 0.5, 1000, 0, (0.4, 0.5, 0.999)))
    assert "between 0.250000 and 0.750000 (certain), between 0.400000 and 0.500000 (statistical, confidence 0.999)" in (
        log.getvalue()
    )


def test_quiet_shows_nothing() -> None:
    terminal = Terminal()
    with show_progress(quiet=True, stream=terminal) as progress:
        assert progress is None
    assert terminal.getvalue() == ""


def test_a_terminal_gets_a_panel_and_a_dumb_one_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(stream=Terminal()) as progress:
        assert isinstance(progress, LivePanel)
    monkeypatch.setenv("TERM", "dumb")
    with show_progress(stream=Terminal()) as progress:
        assert isinstance(progress, PlainLines)


def rendered(color: bool) -> str:
    terminal = Terminal()
    panel = LivePanel("fairness in sex", 60.0, color, terminal)
    panel(MOMENT)
    panel._live.console.print(panel.render())
    return terminal.getvalue()


def test_the_panel_shows_bounds_gap_decided_open_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    text = re.sub(r"\x1b\[[0-9;]*m", "", rendered(True))
    for words in ("fairness in sex", "between 0.25", "and 0.75", "gap 0.5", "50.0000 %", "1,000 nodes", "500 a second",
                  "12 boxes open", "60 s left", "Ctrl-C stops"):  # fmt: skip
        assert words in text, words
    assert text.count("▒") == 20


def test_no_color_leaves_out_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in rendered(True)
    assert not re.search(r"\x1b\[3\d", rendered(False))
    assert wants_color(False)
    assert not wants_color(True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(False)


# --- the command in a real terminal ---

SLOW = """
import sys, time
import boxqte.engines as engines
from boxqte.cli.main import main
from boxqte.engines.protocol import Decided, Outcome, Status

class Slow:
    '''Decides a little in every step.'''
    name = "slow"
    from dataclasses import make_dataclass
    Options = make_dataclass("Options", [])
    capabilities = frozenset()
    def __init__(self, options): pass
    def run(self, grid, limits, watch, companions):
        done = Decided()
        try:
            for i in range(1, 400):
                done = Decided(fair=i / 1000, unfair=i / 2000)
                stop = watch.report(done, nodes=100 * i, open_boxes=i)
                if stop: return Outcome(done, stop)
                time.sleep(0.05)
        except KeyboardInterrupt:
            return Outcome(done, Status.INTERRUPTED)
        return Outcome(done, Status.CONVERGED)

engines.ENGINES["slow"] = "__main__:Slow"
sys.exit(main(sys.argv[1:]))
"""


def in_terminal(folder: Path, *more: str, interrupt_after: str | None = None) -> tuple[int, str]:
    """Run a slow question in a pseudo-terminal: its exit code and all that it drew."""
    (folder / "slow.py").write_text(SLOW)
    examples = ROOT / "examples"
    line = [sys.executable, "slow.py", "quantify", str(examples / "model.json"), "--space", str(examples / "space.json"),
            "--sensitive", "sex", "--engine", "slow", *more]  # fmt: skip
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(line, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen: list[str] = []

    def read() -> None:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the terminal is closed
                return
            if not part:
                return
            seen.append(part.decode("utf-8", "replace"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    started = time.monotonic()
    while interrupt_after is not None and interrupt_after not in "".join(seen):
        assert time.monotonic() < started + 60, "".join(seen)
        time.sleep(0.05)
    if interrupt_after is not None:
        process.send_signal(signal.SIGINT)
    code = process.wait(120)
    reader.join(10)
    os.close(ours)
    return code, "".join(seen)


def test_ctrl_c_in_a_terminal_prints_the_bounds_and_how_to_go_on(tmp_path: Path) -> None:
    code, drawn = in_terminal(tmp_path, interrupt_after="boxes open")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert code == 130
    assert "▒" in drawn
    assert "status               interrupted" in text
    assert re.search(r"measure +between 0\.\d+ and 0\.\d+", text)
    assert "interrupted; the bounds above are certain; with --checkpoint FILE the same command would go on" in text
    assert "Traceback" not in text


def test_quiet_draws_nothing_in_a_terminal(tmp_path: Path) -> None:
    code, drawn = in_terminal(tmp_path, "--quiet", "--time-limit", "0.3")
    assert code == 0
    assert "▒" not in drawn
    assert "\x1b[" not in drawn
