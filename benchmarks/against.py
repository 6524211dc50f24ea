"""This core against that of another commit: the same models, one thread, CPU seconds, in one run.

    python -m benchmarks.against df52b54                       the 40 rows of the paper's Tables 2 and 3, XGBoost 50x3
    python -m benchmarks.against df52b54 --only bank           the rows whose name begins so
    python -m benchmarks.against df52b54 --points              500x6: points decided a second, epsilon 0 and .1
    python -m benchmarks.against df52b54 --check               exit 1 unless all measures agree to 1e-12

The old commit gets a work tree and an environment of its own below benchmarks/out/against, which are used again. Both
sides are processes that answer the same questions in turn, old and new and old and new: what else the machine does hits
both. Rows of less than 5 s are asked several times, and the least seconds count. A ratio is old seconds by new seconds.
The data sets come from --data-dir, BOXQTE_DATA or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.paper.configurations import TABLE_2, TABLE_3, Configuration, selected
from benchmarks.paper.datasets import data_folder, load_dataset
from benchmarks.paper.models import ModelSize, train
from benchmarks.paper.tables import Table, geometric_mean, seconds_text

from boxqte import BoxQTEError

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "out" / "against"
SHORT_SECONDS = 5.0
AGREEMENT = 1e-12
POINTS = tuple(
    Configuration(dataset, sensitive, rate)
    for rate in ("0", "0.1")
    for dataset, sensitive in (
        ("adult", "sex"), ("bank", "age"), ("compas", "race"), ("credit", "sex"), ("lsac", "race")
    )
)  # fmt: skip


class ComparisonError(BoxQTEError):
    """The comparison cannot be made."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


class Side:
    """A process that answers with one of the two versions."""

    def __init__(self, name: str, python: Path, python_path: Path | None):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if python_path is not None:
            environment["PYTHONPATH"] = str(python_path)
        self.name = name
        self.process = subprocess.Popen(
            [str(python), str(ROOT / "benchmarks" / "against_side.py")], env=environment, cwd=OUT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone, which the next line finds out
        line = self.process.stdout.readline()
        if not line:
            raise ComparisonError(f"the {self.name} side ended with exit code {self.process.wait()} (see above)")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ComparisonError(f"the {self.name} side: {answer['error']}")
        return answer


def main() -> int:
    arguments = _arguments()
    try:
        with ExitStack() as stack:
            rows = selected(POINTS if arguments.points else (*TABLE_2, *TABLE_3), arguments.only)
            data_folder(arguments.data_dir)  # a wrong one is said at once, also where all models are there
            commit = commit_of(arguments.base)
            OUT.mkdir(parents=True, exist_ok=True)
            questions = _questions(rows, arguments)
            sides = (
                stack.enter_context(Side("old", old_python(commit), None)),
                stack.enter_context(Side("new", Path(sys.executable), ROOT / "src")),
            )
            table = _points_table if arguments.points else _solving_table
            shown, agreed = table(rows, questions, sides, arguments)
    except BoxQTEError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(shown.text())
    return 0 if agreed or not arguments.check else 1


def _arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="the commit to compare with, such as df52b54")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="such as adult-age or bank-age-e0")
    parser.add_argument("--time-limit", type=float, metavar="S", help="of a row: 600, with --points 10")
    parser.add_argument(
        "--repetitions", type=int, default=5, metavar="N", help="of rows of less than 5 s; the best counts"
    )
    parser.add_argument("--points", action="store_true", help="points decided a second, instead of the box engine")
    parser.add_argument("--size", default=None, metavar="TREESxDEPTH", help="of the models: 50x3, with --points 500x6")
    parser.add_argument("--check", action="store_true", help="exit 1 unless all rows agree to 1e-12")
    parser.add_argument("--data-dir", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.time_limit is None:
        arguments.time_limit = 10.0 if arguments.points else 600.0
    if not arguments.time_limit > 0:
        parser.error(f"argument --time-limit: expected seconds above 0, found {arguments.time_limit:g}")
    if arguments.repetitions < 1:
        parser.error(f"argument --repetitions: expected at least 1, found {arguments.repetitions}")
    if arguments.points and arguments.check:
        parser.error("argument --check: points are drawn at random, so there is nothing to check with --points")
    return arguments


def commit_of(base: str) -> str:
    """The full name of a commit."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    if not commit:
        raise ComparisonError(f"BASE: '{base}' is no commit of this repository")
    return commit


def old_python(commit: str) -> Path:
    """The interpreter that has the old commit; its work tree and environment are made where they are not there yet."""
    home = OUT / commit[:12]
    python, ready = home / "env" / "bin" / "python", home / "ready"
    if ready.exists():
        return python
    _say(f"making a work tree and an environment of {commit[:12]} ...")
    _run("git", "-C", str(ROOT), "worktree", "prune")
    if not (home / "tree" / "pyproject.toml").exists():
        _run("git", "-C", str(ROOT), "worktree", "add", "--force", "--detach", str(home / "tree"), commit)
    _run(sys.executable, "-m", "venv", "--clear", str(home / "env"))
    _run(str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", str(home / "tree"))
    ready.touch()
    return python


def _questions(rows: Iterable[Configuration], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Every row as both sides get it; models are trained once and kept as files."""
    size = ModelSize.parse(arguments.size or ("500x6" if arguments.points else "50x3"))
    questions = []
    for row in rows:
        model, space = OUT / f"{row.dataset}-{size}.json", OUT / f"{row.dataset}-space.json"
        if not (model.exists() and space.exists()):
            _say(f"training {row.dataset} {size} ...")
            data = load_dataset(row.dataset, arguments.data_dir)
            data.space.save(space)
            half = model.with_suffix(".new.json")  # a training that is broken off leaves no half model
            train(data, size).save_model(half)
            half.replace(model)
        questions.append({
            "sensitive": row.sensitive, "epsilon_rate": row.epsilon_rate, "kappa": row.kappa,
            "model": str(model), "space": str(space), "time_limit": arguments.time_limit,
        })  # fmt: skip
    return questions


def _warmed(rows: Iterable[Configuration], questions: list[dict[str, Any]], sides: tuple[Side, Side]) -> Iterator[Any]:
    """Rows and questions, each kind of question after a warm-up that nobody is charged for."""
    kinds = set()
    for row, question in zip(rows, questions):
        kind = (row.sensitive is None, row.epsilon_rate, row.kappa)
        if kind not in kinds:
            kinds.add(kind)
            _say("loading, and where a version does that compiling, which is not counted ...")
            for side in sides:
                side.ask(question | {"do": "warm_up"})
        yield row, question


def _solving_table(
    rows: tuple[Configuration, ...],
    questions: list[dict[str, Any]],
    sides: tuple[Side, Side],
    arguments: argparse.Namespace,
) -> tuple[Table, bool]:
    cells, ratios, agreed = [], {}, True
    for row, question in _warmed(rows, questions, sides):
        old, new = _in_turn(question | {"do": "solve"}, sides, arguments.repetitions)
        ratio = old["seconds"] / new["seconds"] if new["converged"] else None
        difference = new["value"] - old["value"] if old["converged"] and new["converged"] else None
        agreed &= difference is not None and abs(difference) <= AGREEMENT
        ratios[row] = ratio
        cells.append((
            row.name, _seconds(old), _seconds(new), _ratio(ratio, more=not old["converged"]),
            "" if difference is None else f"{difference:+.1e}",
        ))  # fmt: skip
        _say("  ".join(cells[-1]))
    groups = {
        "eps 0": [r for c, r in ratios.items() if c.epsilon_rate == "0"],
        "eps .1, kappa .5": [r for c, r in ratios.items() if c.epsilon_rate != "0" and c.kappa == "0.5"],
        "eps .1, kappa .7": [r for c, r in ratios.items() if c.epsilon_rate != "0" and c.kappa == "0.7"],
        "bank, eps .1": [r for c, r in ratios.items() if c.epsilon_rate != "0" and c.dataset == "bank"],
    }
    summary = [_mean(name, part) for name, part in groups.items() if part]
    notes = [
        f"CPU seconds, one thread, limit {arguments.time_limit:g} s of wall clock; > marks a row that did not end in it",
        "all measures agree to 1e-12" if agreed else "NOT all measures agree to 1e-12 (or a row did not end)",
    ]
    columns = ("configuration", "old s", "new s", "ratio", "difference")
    return Table(f"box engine against {arguments.base}", columns, cells, summary, notes), agreed


def _points_table(
    rows: tuple[Configuration, ...],
    questions: list[dict[str, Any]],
    sides: tuple[Side, Side],
    arguments: argparse.Namespace,
) -> tuple[Table, bool]:
    cells, ratios = [], {}
    for row, question in _warmed(rows, questions, sides):
        rates, shares = [], []
        for side in sides:
            answer = side.ask(question | {"do": "points"})
            confident = answer["fair"] + answer["unfair"]
            rates.append(answer["points"] / answer["seconds"] if answer["seconds"] else 0.0)
            shares.append(answer["fair"] / confident if confident else float("nan"))
        ratios[row] = ratio = rates[1] / rates[0] if rates[0] and rates[1] else None
        cells.append((row.name, *(f"{r:,.0f}" for r in rates), _ratio(ratio), *(f"{s:.4f}" for s in shares)))
        _say("  ".join(cells[-1]))
    summary = [
        _mean(f"eps {rate}", part)
        for rate in ("0", "0.1")
        if (part := [r for c, r in ratios.items() if c.epsilon_rate == rate])
    ]
    columns = ("configuration", "old points/s", "new points/s", "ratio", "old fair share", "new fair share")
    notes = ["points by CPU second, one thread; the shares of fair points are estimates and differ by chance"]
    return Table(f"points decided against {arguments.base}", columns, cells, [(*r, "") for r in summary], notes), True


def _in_turn(
    question: dict[str, Any], sides: tuple[Side, Side], repetitions: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Old, new, old, new; the answer of each side that took least."""
    answers: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for _ in range(repetitions):
        for side, kept in zip(sides, answers):
            kept.append(side.ask(question))
        if max(kept[-1]["seconds"] for kept in answers) > SHORT_SECONDS:
            break
    old, new = (min(kept, key=lambda answer: answer["seconds"]) for kept in answers)
    return old, new


def _seconds(answer: dict[str, Any]) -> str:
    return f"{'' if answer['converged'] else '> '}{seconds_text(answer['seconds'])}"


def _ratio(ratio: float | None, more: bool = False) -> str:
    return "" if ratio is None else f"{'> ' if more else ''}{ratio:.2f}"


def _mean(name: str, ratios: list[float | None]) -> tuple[str, ...]:
    known = [r for r in ratios if r is not None]
    mean = geometric_mean(known)
    what = f"{name}: geometric mean of {len(known)}"
    return (what, "", f"least {min(known):.2f}" if known else "", "" if mean is None else f"{mean:.2f}", "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ComparisonError("git is not on the PATH") from None
    return done.stdout.strip()


def _run(*command: str) -> None:
    """Make a part of the old side; what went wrong is its last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
        raise ComparisonError(f"{' '.join(command[:4])} ... failed with exit code {done.returncode}: {said[:300]}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
