"""The paper's second question, its Table 3: what does each of its three enhancements contribute?"""

from __future__ import annotations

from benchmarks.paper import published
from benchmarks.paper.configurations import TABLE_3, selected
from benchmarks.paper.experiment import (
    Method,
    Rows,
    Settings,
    about_cells,
    converged_cell,
    job_of,
    jobs_of,
    machine_note,
    published_cell,
    run_cell,
    selected_methods,
)
from benchmarks.paper.models import ModelSize
from benchmarks.paper.records import Row
from benchmarks.paper.runs import Job
from benchmarks.paper.tables import PAPER, Table, geometric_mean

WHOLE = Method("BoxQTE (smt)", "smt", published_as="BoxQTE")
METHODS = (
    WHOLE,
    Method("no box blocking", "smt", {"box_blocking": False}, "BoxQTE (no-box-block)"),
    Method("no decomposition", "smt", {"decomposition": False}, "BoxQTE (no-decomp)"),
    Method("no priority", "smt", {"priority": False}, "BoxQTE (no-prior)"),
)
SIZES = (ModelSize(50, 3), ModelSize(10, 3))


def jobs(settings: Settings) -> list[Job]:
    """Every configuration with every variant at every size."""
    return jobs_of(TABLE_3, METHODS, settings)


def tables(settings: Settings, rows: Rows) -> list[Table]:
    """One table a model size."""
    return [_table(settings, rows, size) for size in settings.sizes]


def _table(settings: Settings, rows: Rows, size: ModelSize) -> Table:
    configurations = selected(TABLE_3, settings.only)
    methods = selected_methods(METHODS, settings.methods)
    found = {m.title: [rows(job_of(c, m, size, settings)) for c in configurations] for m in methods}
    printed = [m for m in published.TABLE_3_METHODS if size == ModelSize(50, 3)]
    cells = [
        (
            *about_cells(c),
            *(run_cell(found[m.title][i]) for m in methods),
            *(published_cell(published.TABLE_3[c.name][m]) for m in printed),
        )
        for i, c in enumerate(configurations)
    ]
    summary = ("converged", "", "", *(converged_cell(found[m.title]) for m in methods), *[""] * len(printed))
    effects = [effect_note(m.title, found[WHOLE.title], found[m.title]) for m in methods
               if m.title != WHOLE.title and WHOLE.title in found]  # fmt: skip
    notes = [
        f"seconds until exact, or the gap that was left; {settings.library} {size}, limit {settings.limit:g} s, "
        f"{settings.workers} workers, kappa 0.7",
        *effects,
        machine_note(row for part in found.values() for row in part),
    ]
    if printed:
        notes.append("paper: printed in the paper; the whole method takes 129.4 s on average, without box blocking 184.4, "
                     "without decomposition 211.0, without priority 135.3")  # fmt: skip
    columns = ("property", "data set", "attribute", *(m.title for m in methods), *(f"{PAPER}{m}" for m in printed))
    return Table(f"RQ2 (Table 3), {size}", columns, cells, [summary], notes)


def effect_note(title: str, whole: list[Row | None], without: list[Row | None]) -> str:
    """What leaving an enhancement out does: to the seconds where both converge, to the gap where neither does."""
    pairs = [(a, b) for a, b in zip(whole, without) if a is not None and b is not None and "gap" in a and "gap" in b]
    times = geometric_mean([b["seconds"] / a["seconds"] for a, b in pairs if a["converged"] and b["converged"]])
    gaps = [b["gap"] - a["gap"] for a, b in pairs if not (a["converged"] and b["converged"])]
    parts = []
    if times is not None:
        parts.append(f"{times:.2f} times the seconds where both converge")
    if gaps:
        parts.append(f"{sum(gaps) / len(gaps):+.3f} in the gap on average over the {len(gaps)} other rows")
    return f"{title}: {' and '.join(parts) or 'no row to compare'}"
