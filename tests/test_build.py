"""The C++ core as it is built: chosen by the processor, named by BOXQTE_CORE, and what mypy knows of it is true."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boxqte import _core

ROOT = Path(__file__).resolve().parent.parent
BUILT = [name for name in _core.SETS if importlib.util.find_spec(f"boxqte._core._{name}") is not None]


def core_named(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from boxqte import _core; print(_core.INSTRUCTION_SET)"],
        env=os.environ | {"BOXQTE_CORE": name}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_stub_is_up_to_date() -> None:
    pytest.importorskip("nanobind", reason="nanobind (extra 'lint') is not installed")
    done = subprocess.run(
        [sys.executable, ROOT / "src" / "core" / "make_stub.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", BUILT)
def test_every_core_loads_or_says_that_the_processor_lacks_it(name: str) -> None:
    done = core_named(name)
    if done.returncode:
        assert done.stderr.splitlines()[-1] == f"ImportError: BOXQTE_CORE: this processor does not run '{name}'"
    else:
        assert done.stdout.strip() == name


def test_the_best_core_is_chosen() -> None:
    if "BOXQTE_CORE" in os.environ:
        pytest.skip("BOXQTE_CORE names the core")
    running = [name for name in BUILT if core_named(name).returncode == 0]
    assert running[0] == _core.INSTRUCTION_SET


def test_a_core_that_was_not_built_is_refused_in_one_line() -> None:
    done = core_named("sse9")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: BOXQTE_CORE: 'sse9' is not among the cores that were built"
    )
