"""The box engine on the 40 configurations of the paper's Tables 2 and 3, one table.

    python -m benchmarks.engine                        all 40, XGBoost 50x3, 600 s each
    python -m benchmarks.engine --only adult-age       the rows whose name begins so
    python -m benchmarks.engine --sizes 100x4,200x5,500x6 --time-limit 60    bigger models: the gap after 60 s
    python -m benchmarks.engine --speedup              1 against 2 workers on the five slowest rows that converged
    python -m benchmarks.engine --speedup --until .8   the same, only until the gap is .8

Every row runs in a fresh process, so peak memory is its own. Rows go to a JSON-lines file at once; a second run does what
is left. The data sets come from --data-dir, BOXQTE_DATA or ../shared/data.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.paper.configurations import TABLE_2, TABLE_3, Configuration, selected
from benchmarks.paper.experiment import insert_tables
from benchmarks.paper.models import ModelSize
from benchmarks.paper.records import Records, Row
from benchmarks.paper.runs import Job
from benchmarks.paper.session import finished, run_jobs
from benchmarks.paper.tables import Table, bytes_text, gap_text, geometric_mean, seconds_text
from benchmarks.prototypes import prototype_gap, prototype_seconds, reference_measure

from boxqte import BoxQTEError, Status

WANTED_SPEEDUP = 1.6
# 100x4, epsilon 0: the certain gap that 60 s on 2 idle cores should reach, with bounds inside open boxes
WANTED_GAP = {"adult-age": 0.45, "adult-race": 0.25, "adult-sex": 0.30, "bank": 0.38, "credit": 0.22, "lsac": 0.15}
EXCHANGE_ONLY = tuple(c for c in TABLE_2 if c.epsilon_rate == "0")


def main() -> int:
    arguments = _arguments()
    try:
        records = Records(arguments.records)
        configurations = selected((*TABLE_2, *TABLE_3), arguments.only)
        if arguments.sizes:
            table = sizes_table(arguments, selected(EXCHANGE_ONLY, arguments.only), records)
        elif arguments.speedup:
            table = speedup_table(arguments, configurations, records)
        else:
            table = engine_table(arguments, configurations, records)
    except BoxQTEError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table.text())
    if arguments.insert:
        name = "engine-sizes" if arguments.sizes else "engine-speedup" if arguments.speedup else "engine"
        insert_tables(arguments.insert, name, [table])
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="such as adult-age or bank-age-e0")
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="S")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sizes", metavar="100x4,...", help="these model sizes instead of 50x3, eps 0: the gap")
    parser.add_argument("--speedup", action="store_true", help="1 against 2 workers on the five slowest that converge")
    parser.add_argument(
        "--until", type=float, default=0.0, metavar="GAP", help="with --speedup: only until the gap is so small"
    )
    parser.add_argument("--records", default="benchmarks/out/engine.jsonl", metavar="FILE")
    parser.add_argument("--insert", metavar="PAGE.md", help="put the table into this page, between its marks")
    parser.add_argument("--again", action="store_true", help="run rows anew that are done")
    parser.add_argument("--table-only", action="store_true", help="run nothing, show what is recorded")
    parser.add_argument("--data-dir", metavar="FOLDER")
    arguments = parser.parse_args()
    if not 0 <= arguments.until < 1:
        parser.error(f"argument --until: expected a gap from 0 to below 1, found {arguments.until:g}")
    return arguments


def rows_of(arguments: argparse.Namespace, jobs: list[Job], records: Records) -> list[Row | None]:
    """The rows of the jobs: run where that is wanted, None where there is none."""
    if not arguments.table_only:
        run_jobs(jobs, records, _say, data_dir=arguments.data_dir, again=arguments.again)
    return [records.get(job.key) for job in jobs]


def engine_table(arguments: argparse.Namespace, configurations: tuple[Configuration, ...], records: Records) -> Table:
    """Seconds, nodes, gap, measure and memory of every configuration, with the prototypes beside."""
    jobs = [Job(c, time_limit=arguments.time_limit, workers=arguments.workers) for c in configurations]
    rows = rows_of(arguments, jobs, records)
    cells = [_engine_cells(c, row) for c, row in zip(configurations, rows)]
    done = [row for row in rows if row is not None and finished(row)]
    return Table(
        f"box engine, XGBoost 50x3, {arguments.workers} workers, limit {arguments.time_limit:g} s",
        ("configuration", "status", "s", "prototype s", "nodes", "gap", "measure", "reference", "difference", "peak"),
        cells,
        [_engine_summary(done, len(rows))] if done else [],
        [
            *_targets(configurations, rows),
            "prototype s: C++, one thread; reference: the prototypes' values (logit of base_score in float64; XGBoost: float32)",
        ],
    )


def _engine_cells(configuration: Configuration, row: Row | None) -> tuple[str, ...]:
    about = (configuration.subject, configuration.epsilon_rate, configuration.kappa)
    before = prototype_seconds(*about)
    if row is None or not finished(row):
        status = "not run" if row is None else str(row["status"])
        return (configuration.name, status, "", before, "", "", (row or {}).get("error", "")[:60], "", "", "")
    reference, value = reference_measure(*about), row["value"]
    return (
        configuration.name,
        row["status"],
        seconds_text(row["seconds"]),
        before,
        f"{row['nodes']:,}",
        gap_text(row["gap"]),
        f"{value:.12f}" if value is not None else f"{row['lower']:.4f}..{row['upper']:.4f}",
        "" if reference is None else f"{reference:.12f}",
        "" if reference is None or value is None else f"{value - reference:+.1e}",
        bytes_text(row["peak_bytes"]),
    )


def _engine_summary(done: list[Row], of: int) -> tuple[str, ...]:
    converged = [row for row in done if row["converged"]]
    median = statistics.median(row["seconds"] for row in done)
    peak = max(row["peak_bytes"] for row in done)
    return (
        f"{len(converged)} of {of} converged",
        "",
        f"median {seconds_text(median)}",
        "",
        "",
        "",
        "",
        "",
        "",
        bytes_text(peak),
    )


def _targets(configurations: tuple[Configuration, ...], rows: list[Row | None]) -> list[str]:
    """The issue's targets against what was measured; a row that is missing or failed counts as missed."""
    exchange = [row for c, row in zip(configurations, rows) if c.epsilon_rate == "0"]
    window = [row for c, row in zip(configurations, rows) if c.epsilon_rate != "0"]
    notes = []
    for what, part, limit, median_limit in (("eps 0", exchange, 60.0, 5.0), ("eps > 0", window, 600.0, 60.0)):
        if not part:
            continue
        seconds = [row["seconds"] if row is not None and row.get("converged") else float("inf") for row in part]
        within = sum(s <= limit for s in seconds)
        notes.append(
            f"{what}: {within} of {len(part)} converged within {limit:g} s (target: all), median "
            f"{seconds_text(statistics.median(seconds))} s (target: {median_limit:g})"
        )
    peaks = [row["peak_bytes"] for row in rows if row is not None and "peak_bytes" in row]
    if peaks:
        notes.append(f"largest peak {bytes_text(max(peaks))} (target: below 4096 MiB)")
    return notes


def sizes_table(arguments: argparse.Namespace, configurations: tuple[Configuration, ...], records: Records) -> Table:
    """Bigger models, eps 0: the gap when the time is up, the prototypes' beside."""
    sizes = [ModelSize.parse(text) for text in arguments.sizes.split(",")]
    cells, notes = [], []
    for size in sizes:
        jobs = [Job(c, trees=size.trees, depth=size.depth, time_limit=arguments.time_limit, workers=arguments.workers)
                for c in configurations]  # fmt: skip
        for c, row in zip(configurations, rows_of(arguments, jobs, records)):
            before = prototype_gap(str(size), c.dataset)
            if row is None or not finished(row):
                cells.append((str(size), c.name, "not run" if row is None else row["status"], "", "", before, "", ""))
                continue
            cells.append((str(size), c.name, row["status"], seconds_text(row["seconds"]), f"{row['gap']:.4f}", before,
                          f"{row['lower']:.4f}..{row['upper']:.4f}", bytes_text(row["peak_bytes"])))  # fmt: skip
            wanted = next((gap for name, gap in WANTED_GAP.items() if c.name.startswith(name)), None)
            if str(size) == "100x4" and wanted is not None:
                notes.append(f"{c.subject}: gap {row['gap']:.4f} (target after 60 s on 2 cores: {wanted})")
    return Table(
        f"box engine, bigger XGBoost models, eps 0, {arguments.workers} workers, limit {arguments.time_limit:g} s",
        ("size", "configuration", "status", "s", "gap", "prototype gap after 60 s", "measure", "peak"),
        cells,
        notes=notes,
    )


def speedup_table(arguments: argparse.Namespace, configurations: tuple[Configuration, ...], records: Records) -> Table:
    """1 against 2 workers on the five slowest configurations that converge with 2."""
    two = [Job(c, time_limit=arguments.time_limit, workers=2) for c in configurations]
    done = [(row["seconds"], job) for job, row in zip(two, rows_of(arguments, two, records))
            if row is not None and row.get("converged")]  # fmt: skip
    slowest = [job.configuration for _, job in sorted(done, key=lambda pair: -pair[0])[:5]]
    # twice the time for one worker: the same work
    jobs = [
        Job(c, time_limit=2 * arguments.time_limit / n, workers=n, gap=arguments.until) for c in slowest for n in (1, 2)
    ]
    rows = iter(rows_of(arguments, jobs, records))
    cells, ratios = [], []
    for c, (alone, both) in zip(slowest, zip(rows, rows)):
        seconds = [None if row is None or not _arrived(row) else row["seconds"] for row in (alone, both)]
        ratio = None if None in seconds else seconds[0] / seconds[1]
        ratios += [] if ratio is None else [ratio]
        cells.append((c.name, *(seconds_text(s) for s in seconds), "" if ratio is None else f"{ratio:.2f}"))
    mean = geometric_mean(ratios)
    until = f", until the gap is {arguments.until:g}" if arguments.until else ""
    return Table(
        f"1 against 2 workers, the five slowest configurations that converge{until}",
        ("configuration", "1 worker, s", "2 workers, s", "speed-up"),
        cells,
        [("geometric mean", "", "", "" if mean is None else f"{mean:.2f}")],
        [
            f"target: at least {WANTED_SPEEDUP} on each; {sum(r >= WANTED_SPEEDUP for r in ratios)} of {len(slowest)} reach it"
        ],
    )


def _arrived(row: Row) -> bool:
    """Whether a row came to the end of its work, and was not stopped before."""
    return finished(row) and row["status"] in (str(Status.CONVERGED), str(Status.GAP))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
