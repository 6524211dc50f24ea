"""Importing boxqte, and `boxqte --help`, load nothing heavy and answer at once; who must compile says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boxqte

HEAVY = ("numpy", "pandas", "numba", "narwhals", "rich", "matplotlib", "tomllib", "xgboost", "sklearn", "html", "csv")
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


def test_a_copy_of_the_package_says_that_it_must_compile(tmp_path: Path) -> None:
    """numba keeps the machine code by the path of the source: what another installation compiled does not help here."""
    copy = tmp_path / "copy"
    shutil.copytree(Path(boxqte.__file__).parent, copy / "boxqte", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "from boxqte.engines.box import jit, window\n"
        "before = jit.needs_compiling(window.__file__)\n"
        "jit.mark_compiled(window.__file__)\n"
        "print(before, jit.needs_compiling(window.__file__))"
    )

    def said(folder: Path) -> str:
        paths = {"PYTHONPATH": str(folder), "BOXQTE_CACHE": str(tmp_path / "cache")}
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | paths,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout.strip()

    here = Path(boxqte.__file__).parent.parent
    assert [said(here), said(here), said(copy)] == ["True False", "False False", "True False"]
