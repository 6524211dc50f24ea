"""How seconds and gap grow with trees, depth, attributes, epsilon and kappa, and how many boxes an enumerator would visit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.paper.configurations import SENSITIVE, Configuration
from benchmarks.paper.datasets import TITLES
from benchmarks.paper.experiment import Method, Rows, Settings, job_of, machine_note, run_cell
from benchmarks.paper.models import ModelSize
from benchmarks.paper.records import RecordError, Row
from benchmarks.paper.runs import Job
from benchmarks.paper.session import finished
from benchmarks.paper.tables import Table

BOX = Method("box", "box")
DATASETS = ("compas", "bank", "lsac")
TREES = (10, 20, 30, 40, 50, 60, 80, 100)
DEPTHS = (3, 4)
SIZES = (ModelSize(50, 3),)
SWEEPS = ("trees", "depth", "attributes", "epsilon", "kappa")
EPSILONS = ("0", "0.02", "0.05", "0.1", "0.2")
KAPPAS = ("0.5", "0.6", "0.7", "0.8", "0.9")
NOISE_SECONDS = 0.02
"""Shorter runs measure the clock and the driver, not the search; they are shown but not fitted."""


@dataclass(frozen=True)
class Point:
    """One measurement: which line of the figure it is on, where on it, and the job."""

    sweep: str
    line: str
    at: float
    job: Job


@dataclass(frozen=True)
class Growth:
    """seconds = a * x**power, fitted on logarithms; `fit` is the share of the variance that it explains."""

    power: float
    fit: float
    points: int


def points(settings: Settings) -> list[Point]:
    """All measurements of the sweeps that `--only` names (`trees`, `trees-bank`, ...); all without it."""
    found = [p for sweep in SWEEPS for d in DATASETS for p in _sweep(sweep, d, settings)]
    for name in settings.only:
        if not any(_matches(p, name) for p in found):
            raise RecordError(f"--only: '{name}' is no sweep; sweeps are {', '.join(SWEEPS)}, or such as trees-bank")
    return [p for p in found if not settings.only or any(_matches(p, name) for name in settings.only)]


def _matches(point: Point, name: str) -> bool:
    return f"{point.sweep}-{point.job.configuration.dataset}-".startswith(f"{name}-")


def _sweep(sweep: str, dataset: str, settings: Settings) -> list[Point]:
    sensitive, title = SENSITIVE[dataset][0], TITLES[dataset]
    plain = Configuration(dataset, sensitive, "0")
    size = settings.sizes[0]

    def job(c: Configuration, at: ModelSize) -> Job:
        return replace(job_of(c, BOX, at, settings), count_boxes=sweep in ("trees", "depth"))

    if sweep == "trees":
        return [Point(sweep, f"{title}, depth {d}", t, job(plain, ModelSize(t, d))) for d in DEPTHS for t in TREES]
    if sweep == "depth":
        return [Point(sweep, title, d, job(plain, ModelSize(size.trees, d))) for d in (1, 2, 3, 4, 5)]
    if sweep == "attributes":
        most = {"compas": 6, "bank": 16, "lsac": 11}[dataset]
        numbers = sorted({max(2, round(most * share)) for share in (0.25, 0.5, 0.75, 1.0)})
        return [Point(sweep, title, n, replace(job(plain, size), attributes=n)) for n in numbers]
    if sweep == "epsilon":
        return [Point(sweep, title, float(e), job(replace(plain, epsilon_rate=e), size)) for e in EPSILONS]
    return [Point(sweep, title, float(k), job(replace(plain, kappa=k), size)) for k in KAPPAS]


def jobs(settings: Settings) -> list[Job]:
    """The job of every point; a job that is on several lines once."""
    return list({p.job.key: p.job for p in points(settings)}.values())


def tables(settings: Settings, rows: Rows) -> list[Table]:
    """A table of measurements a sweep, and one of fitted growth."""
    every = points(settings)
    found = [_sweep_table(sweep, [p for p in every if p.sweep == sweep], rows, settings) for sweep in SWEEPS
             if any(p.sweep == sweep for p in every)]  # fmt: skip
    return [*found, _growth_table(every, rows)]


def _sweep_table(sweep: str, part: list[Point], rows: Rows, settings: Settings) -> Table:
    cells = []
    for p in part:
        row = rows(p.job)
        cells.append((p.line, f"{p.at:g}", run_cell(row), _nodes(row), boxes_text(row)))
    return Table(
        f"Scaling with {sweep}",
        ("model", sweep, "seconds, or gap", "nodes", "boxes of an enumerator"),
        cells,
        notes=[
            f"box engine, {settings.workers} workers, limit {settings.limit:g} s, eps 0 and kappa 0.5 unless swept",
            machine_note(rows(p.job) for p in part),
        ],
    )


def _growth_table(every: Sequence[Point], rows: Rows) -> Table:
    cells = []
    for sweep in ("trees", "depth", "attributes"):
        for line in dict.fromkeys(p.line for p in every if p.sweep == sweep):
            found = growth([(p.at, rows(p.job)) for p in every if p.sweep == sweep and p.line == line])
            text = ("", "", "") if found is None else (f"{found.power:.2f}", f"{found.fit:.2f}", str(found.points))
            cells.append((sweep, line, *text))
    return Table(
        "Fitted growth",
        ("against", "model", "exponent", "explained variance", "points"),
        cells,
        notes=[
            f"seconds ~ x**exponent, least squares on logarithms over converged runs of at least {NOISE_SECONDS:g} s"
        ],
    )


def growth(measured: Sequence[tuple[float, Row | None]]) -> Growth | None:
    """The exponent of seconds against x; None with fewer than three runs to fit.

    Examples
    --------
    >>> rows = [(float(n), {"converged": True, "seconds": 0.1 * n**2}) for n in (1, 2, 4, 8)]
    >>> round(growth(rows).power, 6)
    2.0
    """
    usable = [
        (math.log(x), math.log(row["seconds"]))
        for x, row in measured
        if row is not None and finished(row) and row["converged"] and row["seconds"] >= NOISE_SECONDS
    ]
    if len(usable) < 3:
        return None
    mean_x, mean_y = (sum(p[i] for p in usable) / len(usable) for i in (0, 1))
    xx = sum((x - mean_x) ** 2 for x, _ in usable)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in usable)
    yy = sum((y - mean_y) ** 2 for _, y in usable)
    return Growth(xy / xx, xy * xy / (xx * yy) if yy else 1.0, len(usable))


def boxes_text(row: Row | None) -> str:
    """A count of boxes, or about how many."""
    if row is None or "boxes" not in row:
        return ""
    boxes = row["boxes"]
    return f"{boxes['boxes']:,.0f}" if boxes["exact"] else f"about {boxes['boxes']:.0e}"


def _nodes(row: Row | None) -> str:
    return "" if row is None or row.get("nodes") is None else f"{row['nodes']:,}"
