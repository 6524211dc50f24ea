"""Importing boxqte, and `boxqte --help`, load nothing heavy and answer at once; who must compile says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "pandas",
    "boxqte._core",
    "narwhals",
    "rich",
    "matplotlib",
    "tomllib",
    "xgboost",
    "sklearn",
    "html",
    "csv",
)
ALLOWED = {"csv"}  # the standard library's, a few milliseconds


@pytest.mark.parametrize(
    "line", ["import boxqte", "import sys; sys.argv = ['boxqte', '--help']; import boxqte.__main__"]
)
def test_nothing_heavy_is_loaded(line: str) -> None:
    script = f"import sys\ntry:\n    exec({line!r})\nexcept SystemExit:\n    pass\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stderr.splitlines()[-1]))
    assert [name for name in HEAVY if name in loaded and name not in ALLOWED] == []


@pytest.mark.parametrize("arguments", [["-c", "import boxqte"], ["-m", "boxqte", "--help"]])
def test_it_takes_little_processor_time(arguments: list[str]) -> None:
    """Processor time, since a busy machine makes wall time meaningless; benchmarks/startup.py measures wall time."""
    before = os.times()
    for _ in range(3):
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent / 3 < 0.6  # twice 0.3 s: lenient
