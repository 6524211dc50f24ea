"""The paper's first question, its Table 2: how does the method compare with other quantification methods?"""

from __future__ import annotations

from benchmarks.paper import published
from benchmarks.paper.configurations import TABLE_2, Configuration, selected
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
    ratio_note,
    run_cell,
    selected_methods,
)
from benchmarks.paper.models import ModelSize
from benchmarks.paper.runs import Job
from benchmarks.paper.tables import PAPER, Table

BOX = Method("box", "box")
METHODS = (
    BOX,
    Method("BoxQTE (smt)", "smt", published_as="BoxQTE"),
    Method("CegarQuant (random)", "cegar", {"refinement": "random"}, "CegarQuant (random)"),
    Method("CegarQuant (node)", "cegar", {"refinement": "node"}, "CegarQuant (node)"),
    Method("CegarQuant (node+random)", "cegar", {"refinement": "node+random"}, "CegarQuant (node+random)"),
)
SIZES = (ModelSize(50, 3), ModelSize(10, 3))


def jobs(settings: Settings) -> list[Job]:
    """Every configuration with every method at every size; a configuration's methods side by side."""
    return jobs_of(TABLE_2, METHODS, settings)


def tables(settings: Settings, rows: Rows) -> list[Table]:
    """One table a model size."""
    return [_table(settings, rows, size) for size in settings.sizes]


def _table(settings: Settings, rows: Rows, size: ModelSize) -> Table:
    configurations = selected(TABLE_2, settings.only)
    methods = selected_methods(METHODS, settings.methods)
    found = {m.title: [rows(job_of(c, m, size, settings)) for c in configurations] for m in methods}
    # The paper's models are of one size; beside another size its figures would compare nothing.
    compared = size == ModelSize(50, 3)
    printed = [m for m in published.TABLE_2_METHODS if compared]
    cells = [
        (
            *about_cells(c),
            *(run_cell(found[m.title][i]) for m in methods),
            *(published_cell(published.TABLE_2[c.name][m]) for m in printed),
        )
        for i, c in enumerate(configurations)
    ]
    counts = (
        "converged",
        "",
        "",
        *(converged_cell(found[m.title]) for m in methods),
        *(_published_count(m, configurations) for m in printed),
    )
    notes = [
        f"seconds until exact, or the gap that was left; {settings.library} {size}, limit {settings.limit:g} s, "
        f"{settings.workers} workers, kappa 0.5",
        *(
            ratio_note(m.title, found[BOX.title], found[m.title])
            for m in methods
            if m.title != BOX.title and BOX.title in found
        ),
        machine_note(row for part in found.values() for row in part),
    ]
    if printed:
        notes.append("paper: printed in the paper (17 processes on a 20-core machine, 600 s), on its own models, which its "
                     "text does not describe fully; not measured here")  # fmt: skip
    columns = ("property", "data set", "attribute", *(m.title for m in methods), *(f"{PAPER}{m}" for m in printed))
    return Table(f"RQ1 (Table 2), {size}", columns, cells, [counts], notes)


def _published_count(method: str, configurations: tuple[Configuration, ...]) -> str:
    runs = [published.TABLE_2[c.name][method] for c in configurations]
    return f"{sum(run.converged for run in runs)} of {len(runs)}"
