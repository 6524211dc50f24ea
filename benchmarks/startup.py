"""How soon a new user has an answer: first use in a fresh clone with an empty home, and what the packages weigh.

    python -m benchmarks.startup                    this environment: importing, --help, an audit, a question
    python -m benchmarks.startup --fresh            a fresh clone of HEAD: `make demo`, then the first audit and question
    python -m benchmarks.startup --fresh --base df52b54    and how much lighter the installed packages are than that commit's

Wall clock. Lines of this environment are the median of several fresh processes, those of a fresh clone the very first run.
Exit 1 if a goal is missed: measure on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
RUNS = 11
AUDIT = (
    *("audit", "model.json", "--data", "people.csv", "--label", "granted", "--categorical", "race"),
    *("--sensitive", "sex,race", "--html"),
)
QUESTION = ("quantify", "examples/model.json", "--space", "examples/space.json", "--sensitive", "sex")
MEGABYTE = 1_000_000
WEIGH = """
import importlib.metadata as metadata, importlib.util, pathlib, re
from pip._vendor.packaging.requirements import Requirement
seen, todo, files = set(), ["boxqte"], []
while todo:
    name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
    if name in seen:
        continue
    seen.add(name)
    package = metadata.distribution(name)
    files += [file.locate() for file in package.files or () if name != "boxqte"]
    for text in package.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            todo.append(needed.name)
files += pathlib.Path(importlib.util.find_spec("boxqte").origin).parent.rglob("*")
print(sum(file.stat().st_size for file in files if file.is_file() and "__pycache__" not in file.parts))
"""
"""The bytes of boxqte, of what it needs, and of what that needs, without what Python compiled."""


@dataclass(frozen=True)
class Line:
    """A figure and its goal; `most` is None where there is none."""

    what: str
    seconds: float
    most: float | None = None

    @property
    def met(self) -> bool:
        return self.most is None or self.seconds <= self.most

    def __str__(self) -> str:
        goal = "" if self.most is None else f"   goal {self.most:g} s: {'met' if self.met else 'MISSED'}"
        return f"{self.what:<46} {self.seconds:8.3f} s{goal}"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


class FailedError(Exception):
    """A command that is measured went wrong; one line."""


def main() -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--fresh", action="store_true", help="clone HEAD, `make demo` with an empty home, first answers"
    )
    parser.add_argument(
        "--base", metavar="COMMIT", help="with --fresh: compare the weight of the packages with this commit's"
    )
    arguments = parser.parse_args()
    if arguments.base and not arguments.fresh:
        parser.error("argument --base: needs --fresh")
    met = True

    def show(line: Line) -> None:
        nonlocal met
        met &= line.met
        print(line, flush=True)

    try:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.fresh:
                met &= fresh(Path(folder), arguments.base, show)
            else:
                here(Path(folder), show)
    except FailedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if met else 1


def here(folder: Path, show: Callable[[Line], None]) -> None:
    """This environment, medians."""
    module, report = ["-m", "boxqte"], str(folder / "report.html")
    show(Line("python -c pass", median(["-c", "pass"])))
    show(Line("import boxqte", median(["-c", "import boxqte"]), 0.1))
    show(Line("boxqte --version", median([*module, "--version"]), 0.3))
    show(Line("boxqte --help", median([*module, "--help"]), 0.3))
    show(Line("boxqte audit --help", median([*module, "audit", "--help"]), 0.3))
    show(Line("boxqte quantify examples/model.json ...", median([*module, *QUESTION], 3), 1.0))
    show(Line("boxqte audit model.json ... (README)", median([*module, *AUDIT, report], 3, ROOT / "examples"), 5.0))


def fresh(folder: Path, base: str | None, show: Callable[[Line], None]) -> bool:
    """A fresh clone, the first time each. Whether the packages weigh as little as they should."""
    home, clone = folder / "home", folder / "boxqte"
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS")}
    environment["HOME"] = str(home)
    timed(["git", "clone", "--quiet", str(ROOT), str(clone)], folder, environment)
    show(Line("make demo, fresh clone, empty home", timed(["make", "demo"], clone, environment), 120.0))
    command, python = str(clone / ".venv/bin/boxqte"), str(clone / ".venv/bin/python")
    audit = [command, *AUDIT, str(folder / "report.html")]
    show(Line("boxqte audit model.json ... (README)", timed(audit, clone / "examples", environment), 5.0))
    show(Line("boxqte quantify examples/model.json ...", timed([command, *QUESTION], clone, environment), 1.0))
    show(Line("import boxqte", median(["-c", "import boxqte"], RUNS, clone, python, environment), 0.1))
    new = weight(python)
    print(f"{'boxqte and the packages it needs':<46} {new / MEGABYTE:8.1f} MB")
    if base is None:
        return True
    old = weight(str(python_of(base)))
    lighter = old - new >= 30 * MEGABYTE
    print(f"{f'the same at {base}':<46} {old / MEGABYTE:8.1f} MB   goal 30 MB less: {'met' if lighter else 'MISSED'}")
    return lighter


def python_of(base: str) -> Path:
    """The interpreter of the environment that benchmarks/against.py makes of a commit."""
    from benchmarks.against import commit_of, old_python

    from boxqte import BoxQTEError

    try:
        return old_python(commit_of(base))
    except BoxQTEError as error:
        raise FailedError(str(error)) from None


def weight(python: str) -> int:
    done = subprocess.run([python, "-c", WEIGH], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"weighing the packages failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return int(done.stdout)


def median(
    arguments: list[str], runs: int = RUNS, folder: Path = ROOT, python: str = sys.executable,
    environment: dict[str, str] | None = None,
) -> float:  # fmt: skip
    """The median wall time of a fresh interpreter with these arguments."""
    return statistics.median(timed([python, *arguments], folder, environment) for _ in range(runs))


def timed(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> float:
    """The wall time of a command that must not fail; 1 is an answer too (violated)."""
    started = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FailedError(f"{command[0]}: {error.strerror}") from None
    seconds = time.perf_counter() - started
    if done.returncode > 1 or (done.returncode and command[0] in ("git", "make")):
        said = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
        raise FailedError(f"{' '.join(command[:3])} ended with exit code {done.returncode}: {said[:300]}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
