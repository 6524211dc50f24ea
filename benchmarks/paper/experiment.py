"""What the experiments have in common: settings, methods, the cells of their tables, and the files that they write."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paper.configurations import Configuration, selected
from benchmarks.paper.datasets import TITLES
from benchmarks.paper.models import ModelSize
from benchmarks.paper.published import PublishedRun
from benchmarks.paper.records import RecordError, Row
from benchmarks.paper.runs import Job
from benchmarks.paper.session import finished
from benchmarks.paper.tables import Table, gap_text, geometric_mean, seconds_text

from boxqte.basics.machine import cores

YES, NO = "yes", "no"


@dataclass(frozen=True)
class Method:
    """A column of a table: an engine with options, under the name that the paper gives it."""

    title: str
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    published_as: str | None = None


@dataclass(frozen=True)
class Settings:
    """How an experiment is run."""

    limit: float = 600.0
    sizes: tuple[ModelSize, ...] = (ModelSize(50, 3),)
    library: str = "xgboost"
    workers: int = field(default_factory=lambda: _cores())
    seed: int = 0
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    """Titles or engines to run; all if empty."""
    samples: int = 1_000_000
    tester_seconds: float | None = None
    """The testers' time; None is the limit."""


Rows = Callable[[Job], Row | None]


def selected_methods(methods: Iterable[Method], wanted: Sequence[str]) -> tuple[Method, ...]:
    """The methods whose title or engine is wanted; all if nothing is."""
    everything = tuple(methods)
    for name in wanted:
        if not any(name in (m.title, m.engine) for m in everything):
            known = dict.fromkeys([m.engine for m in everything] + [m.title for m in everything])
            raise RecordError(f"--engines: '{name}' is no method of this table; methods are {', '.join(known)}")
    return tuple(m for m in everything if not wanted or m.title in wanted or m.engine in wanted)


def jobs_of(configurations: Sequence[Configuration], methods: Sequence[Method], settings: Settings) -> list[Job]:
    """Every selected configuration with every selected method at every size; a configuration's methods side by side."""
    return [
        job_of(c, method, size, settings)
        for size in settings.sizes
        for c in selected(configurations, settings.only)
        for method in selected_methods(methods, settings.methods)
    ]


def job_of(c: Configuration, method: Method, size: ModelSize, settings: Settings) -> Job:
    """The job behind a cell of a table."""
    return Job(
        c,
        method=method.title,
        engine=method.engine,
        options=method.options | ({"seed": settings.seed} if method.engine == "cegar" else {}),
        library=settings.library,
        trees=size.trees,
        depth=size.depth,
        time_limit=settings.limit,
        workers=settings.workers,
        seed=settings.seed,
    )


def about_cells(c: Configuration) -> tuple[str, str, str]:
    """Property, data set and attribute, as the paper's tables begin."""
    what = "robustness" if c.sensitive is None else "fairness"
    return f"{what}, eps {c.epsilon_rate}", TITLES[c.dataset], c.sensitive or "-"


def run_cell(row: Row | None) -> str:
    """A measurement in a cell: seconds if it converged, else the gap that is left and the seconds."""
    if row is None:
        return "not run"
    if not finished(row):
        return str(row["status"])
    if row["converged"]:
        return f"{seconds_text(row['seconds'])}"
    return f"gap {gap_text(row['gap'])} after {seconds_text(row['seconds'])}"


def published_cell(run: PublishedRun) -> str:
    """The paper's figures in the same form."""
    return run.seconds if run.converged else f"gap {run.gap} after {run.seconds}"


def converged_cell(rows: Iterable[Row | None]) -> str:
    """How many rows converged, and the mean seconds of those that ran."""
    ran = [row for row in rows if row is not None and finished(row)]
    if not ran:
        return ""
    mean = sum(row["seconds"] for row in ran) / len(ran)
    return f"{sum(bool(row['converged']) for row in ran)} of {len(ran)}, mean {seconds_text(mean)}"


def ratio_note(title: str, ours: Sequence[Row | None], theirs: Sequence[Row | None]) -> str:
    """How many times as fast ours is, where both converge, as a geometric mean."""
    ratios = [
        other["seconds"] / own["seconds"]
        for own, other in zip(ours, theirs)
        if own is not None and other is not None and own.get("converged") and other.get("converged")
    ]
    mean = geometric_mean(ratios)
    if mean is None:
        return f"{title}: no row on which both converge, so no ratio"
    digits = f"{mean:,.0f}" if mean >= 10 else f"{mean:.2f}"
    return f"{title}: takes {digits} times box's seconds (geometric mean over the {len(ratios)} rows on which both converge)"


def long_csv(rows: Iterable[Row]) -> str:
    """One line a measurement, every figure in a column of its own."""
    columns = ("configuration", "dataset", "sensitive", "epsilon_rate", "kappa", "method", "library", "trees", "depth",
               "time_limit", "workers", "seed", "status", "converged", "lower", "upper", "gap", "value", "seconds",
               "loading_seconds", "nodes", "peak_bytes", "idis", "tests", "error")  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        job = row["job"]
        known = row | job | job["configuration"] | {"configuration": Configuration(**job["configuration"]).name}
        writer.writerow(["" if known.get(name) is None else known[name] for name in columns])
    return out.getvalue()


def write_tables(folder: str | Path, name: str, tables: Sequence[Table], rows: Iterable[Row]) -> list[Path]:
    """NAME.md, NAME.tex and NAME.csv in the folder."""
    target = Path(folder)
    texts = {
        "md": "\n\n".join(t.markdown() for t in tables) + "\n",
        "tex": "\n\n".join(t.latex() for t in tables) + "\n",
        "csv": long_csv(rows),
    }
    try:
        target.mkdir(parents=True, exist_ok=True)
        for ending, text in texts.items():
            (target / f"{name}.{ending}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{target}: cannot be written: {error.strerror}") from None
    return [target / f"{name}.{ending}" for ending in texts]


def insert_tables(page: str | Path, name: str, tables: Sequence[Table]) -> None:
    """Put the tables between `<!-- NAME -->` and `<!-- end NAME -->` of a Markdown page."""
    path = Path(page)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.S)
    if found is None:
        raise RecordError(f"{path}: has no place for the tables; expected the lines '{begin}' and '{end}'")
    content = "\n\n".join(t.markdown() for t in tables)
    path.write_text(f"{text[: found.start()]}{begin}\n\n{content}\n\n{end}{text[found.end() :]}", encoding="utf-8")


def machine_note(rows: Iterable[Row | None]) -> str:
    """What the rows were measured on."""
    kinds = {
        f"{m['processor']}, {m['cores']} cores, Python {m['python']}"
        for row in rows
        if row and (m := row.get("machine"))
    }
    return f"measured on: {'; '.join(sorted(kinds))}" if kinds else "nothing measured yet"


def _cores() -> int:
    return cores()
