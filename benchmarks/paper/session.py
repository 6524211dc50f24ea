"""Run the rows of a table one after the other: what is done is skipped, what fails is a row that says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.paper.records import Records, Row
from benchmarks.paper.runs import Job, run_fresh
from benchmarks.paper.tables import gap_text, seconds_text

Say = Callable[[str], None]
START_SECONDS = 10.0
"""About what a fresh process takes to start, read the data and train, for the time left."""


def run_jobs(
    jobs: Sequence[Job],
    records: Records,
    say: Say,
    *,
    data_dir: str | None = None,
    again: bool = False,
    run: Callable[[Job, str | None], Row] = run_fresh,
) -> list[Row]:
    """The row of every job, in order; rows that `records` has are not run again.

    Parameters
    ----------
    jobs
        What to measure.
    records
        Where finished rows are, and go to.
    say
        Takes progress lines.
    data_dir
        Passed on to the data sets.
    again
        Run also what is done. A row that went wrong (refused, crashed, killed) is always tried again.
    run
        Does one job; tests give their own.
    """
    left = [job for job in jobs if again or not finished(records.get(job.key))]
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} rows are done already ({records.path}); --again runs them anew")
    started = time.monotonic()
    for at, job in enumerate(left):
        say(f"row {at + 1} of {len(left)}: {job.configuration.name}, {job.method}, {job.size}, limit {job.time_limit:g} s"
            f"{_time_left(left[at:], at, time.monotonic() - started)}")  # fmt: skip
        row = run(job, data_dir)
        records.add(row)
        say(f"    {row_text(row)}")
    return [records[job.key] for job in jobs]


def finished(row: Row | None) -> bool:
    """Whether a row holds a measurement."""
    return row is not None and "error" not in row


def row_text(row: Row) -> str:
    """What came out, in a line."""
    if "error" in row:
        return f"{row['status']}: {row['error']}"
    if "idis" in row:
        return f"{row['idis']:,} IDIs in {seconds_text(row['seconds'])} s"
    found = "" if row["value"] is None else f", measure {row['value']:.12f}"
    return f"{row['status']} in {seconds_text(row['seconds'])} s, gap {gap_text(row['gap'])}{found}"


def _time_left(left: Sequence[Job], done: int, seconds: float) -> str:
    """At the pace so far, and at most: every row at its limit."""
    most = sum(job.time_limit + START_SECONDS for job in left)
    if done == 0:
        return f"; all rows take at most about {duration_text(most)}"
    return f"; about {duration_text(min(seconds / done * len(left), most))} left, at most {duration_text(most)}"


def duration_text(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration_text(42), duration_text(200), duration_text(7300)
    ('42 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
