"""The paper's third question, its Table 4: used for fairness testing, how does it compare with fairness testers?"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.paper import published
from benchmarks.paper.configurations import TABLE_4, Configuration, selected
from benchmarks.paper.datasets import TITLES
from benchmarks.paper.experiment import Method, Rows, Settings, job_of, machine_note, selected_methods
from benchmarks.paper.models import ModelSize
from benchmarks.paper.records import Row
from benchmarks.paper.runs import Job
from benchmarks.paper.session import finished
from benchmarks.paper.tables import PAPER, Table, seconds_text

BOX = Method("box", "box")
TESTERS = ("themis", "sg", "expga", "aft", "vbt", "surrogate")
METHODS = (BOX, *(Method(name, name) for name in TESTERS))
SIZES = (ModelSize(50, 3),)
WANTED_IDIS = 500_000
WANTED_SECONDS = 60.0


def jobs(settings: Settings) -> list[Job]:
    """Quantify and sample, then every tester, on every configuration."""
    return [
        _job(c, method, size, settings)
        for size in settings.sizes
        for c in selected(TABLE_4, settings.only)
        for method in selected_methods(METHODS, settings.methods)
    ]


def _job(c: Configuration, method: Method, size: ModelSize, settings: Settings) -> Job:
    job = job_of(c, method, size, settings)
    if method is BOX:
        return replace(job, sample=settings.samples)
    seconds = settings.limit if settings.tester_seconds is None else settings.tester_seconds
    # a tester is one thread
    return replace(job, engine="tester", tester=method.title, time_limit=seconds, workers=1)


def tables(settings: Settings, rows: Rows) -> list[Table]:
    """One table a model size."""
    return [_table(settings, rows, size) for size in settings.sizes]


def _table(settings: Settings, rows: Rows, size: ModelSize) -> Table:
    configurations = selected(TABLE_4, settings.only)
    chosen = selected_methods(METHODS, settings.methods)
    testers = [m for m in chosen if m is not BOX]
    cells, everything = [], []
    reached = 0
    for c in configurations:
        ours = rows(_job(c, BOX, size, settings)) if BOX in chosen else None
        theirs = [rows(_job(c, m, size, settings)) for m in testers]
        everything += [ours, *theirs]
        reached += _reaches(ours)
        printed = published.TABLE_4[c.name]
        cells.append(
            (
                TITLES[c.dataset],
                c.sensitive or "",
                *box_cells(ours),
                *map(idi_cell, theirs),
                printed.measure,
                f"{printed.idis:,}",
                printed.total,
                *(f"{printed.testers[name]:,}" for name in ("themis", "sg", "expga", "aft")),
            )
        )
    columns = (
        "data set", "attribute", "measure", "IDIs", "quantification s", "sampling s", "total s",
        *(f"{m.title} IDIs" for m in testers),
        f"{PAPER}measure", f"{PAPER}IDIs", f"{PAPER}total s",
        *(f"{PAPER}{name} IDIs" for name in ("THEMIS", "SG", "ExpGA", "AFT")),
    )  # fmt: skip
    seconds = settings.limit if settings.tester_seconds is None else settings.tester_seconds
    notes = [
        f"{settings.library} {size}, eps 0, kappa 0.5, {settings.workers} workers; {settings.samples:,} samples drawn; "
        f"testers {seconds:g} s each, batched and with the published errors fixed, seed {settings.seed}",
        "an IDI counts once for all its sensitive values, and only if the library's own predict confirms it",
        f"{reached} of {len(configurations)} rows have at least {WANTED_IDIS:,} IDIs within {WANTED_SECONDS:g} s in total",
        machine_note(everything),
        "paper: printed in the paper, on its own models; its testers had 3600 s",
    ]
    return Table(f"RQ3 (Table 4), {size}", columns, cells, [], notes)


def box_cells(row: Row | None) -> tuple[str, str, str, str, str]:
    """Measure, IDIs, seconds of quantification, of sampling, and of both."""
    if row is None or not finished(row):
        return ("not run" if row is None else row["status"], "", "", "", "")
    drawn = row["sample"]
    measure = f"{row['value']:.4f}" if row["value"] is not None else f"{row['lower']:.4f}..{row['upper']:.4f}"
    total = row["seconds"] + drawn["seconds"]
    return (
        measure,
        f"{drawn['idis']:,}",
        seconds_text(row["seconds"]),
        seconds_text(drawn["seconds"]),
        seconds_text(total),
    )


def idi_cell(row: Row | None) -> str:
    """How many distinct IDIs a tester found."""
    if row is None:
        return "not run"
    return f"{row['idis']:,}" if finished(row) else str(row["status"])


def _reaches(row: Row | None) -> bool:
    if row is None or not finished(row):
        return False
    enough: bool = row["sample"]["idis"] >= WANTED_IDIS
    return enough and bool(row["seconds"] + row["sample"]["seconds"] <= WANTED_SECONDS)
