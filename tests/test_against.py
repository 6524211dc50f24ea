"""benchmarks/against.py and startup.py: what is wrong is one line and exit 2; the least of several tries counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.against import Side, _in_turn

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "error: the following arguments are required: BASE"),
        (["nosuchcommit", "--data-dir", "."], "error: BASE: 'nosuchcommit' is no commit of this repository"),
        (["HEAD", "--only", "nosuchrow"], "error: --only: 'nosuchrow' is no row of this table; rows are "),
        (["HEAD", "--time-limit", "0"], "error: argument --time-limit: expected seconds above 0, found 0"),
        (["HEAD", "--time-limit", "nan"], "error: argument --time-limit: expected seconds above 0, found nan"),
        (["HEAD", "--repetitions", "0"], "error: argument --repetitions: expected at least 1, found 0"),
        (["HEAD", "--points", "--check"], "error: argument --check: "),
        (["HEAD", "--size", "big"], "error: model size: expected TREESxDEPTH such as 50x3, found 'big'"),
        (["HEAD", "--data-dir", "nosuchfolder"], "error: nosuchfolder: no such folder (--data-dir)"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], said: str) -> None:
    lines = _refusal("benchmarks.against", arguments)
    assert len(lines) == 1
    assert lines[0].startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "HEAD"], "error: argument --base: needs --fresh"),
        (["--often"], "error: unrecognized arguments: --often"),
    ],
)
def test_startup_refuses_in_one_line(arguments: list[str], said: str) -> None:
    assert _refusal("benchmarks.startup", arguments) == [said]


def _refusal(module: str, arguments: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()


class Canned(Side):
    """Answers with seconds that are given."""

    def __init__(self, name: str, seconds: list[float], order: list[str]):
        self.name, self.seconds, self.order = name, seconds, order

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.order.append(self.name)
        return {"seconds": self.seconds.pop(0)}


def test_short_rows_are_asked_in_turn_and_the_least_seconds_count() -> None:
    order: list[str] = []
    sides = (Canned("old", [3.0, 1.0, 2.0], order), Canned("new", [0.5, 0.7, 0.4], order))
    old, new = _in_turn({}, sides, repetitions=3)
    assert (old["seconds"], new["seconds"]) == (1.0, 0.4)
    assert order == ["old", "new"] * 3


def test_a_long_row_is_asked_once() -> None:
    order: list[str] = []
    old, _ = _in_turn({}, (Canned("old", [30.0], order), Canned("new", [1.0], order)), repetitions=5)
    assert old["seconds"] == 30.0
    assert order == ["old", "new"]
