"""`python -m benchmarks.paper rq1|rq2|rq3|scaling`: the paper's experiments, and how the engine scales."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from boxqte.errors import BoxQTEError

OK = 0
WORDS = {
    "rq1": "Table 2: our engine, the paper's method and CegarQuant on 25 configurations",
    "rq2": "Table 3: the paper's method with each of its enhancements left out, on 15 configurations",
    "rq3": "Table 4: counterexamples found, against fairness testers, on 10 configurations",
    "scaling": "seconds and gap against trees, depth, attributes, epsilon and kappa",
}
LIMITS = {"rq1": 600.0, "rq2": 600.0, "rq3": 600.0, "scaling": 60.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run an experiment; the exit code."""
    arguments = make_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except BoxQTEError as error:
        print(f"benchmarks.paper: error: {error}", file=sys.stderr)
        return 2
    return code


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)


def make_parser() -> argparse.ArgumentParser:
    """The four experiments and their options."""
    bench = Parser(prog="python -m benchmarks.paper", description="Rerun the paper's experiments.")
    experiments = bench.add_subparsers(title="experiments", metavar="EXPERIMENT", required=True)
    for name, words in WORDS.items():
        parser = experiments.add_parser(name, help=words, description=f"{words}. Rows that are done are not run again.")
        _add_options(parser, name)
        parser.set_defaults(run=run, experiment=name)
    return bench


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    what = parser.add_argument_group("what to run")
    example = "trees-bank" if name == "scaling" else "adult-age"
    what.add_argument(
        "--only", metavar="NAME", action="append", default=[], help=f"only rows that begin so, such as {example}"
    )
    if name != "scaling":
        what.add_argument("--engines", metavar="A,B", help="only these engines or methods")
        what.add_argument("--sizes", metavar="50x3,10x3", help="model sizes, trees x depth")
    what.add_argument("--library", choices=("xgboost", "lightgbm", "forest", "catboost"), default="xgboost")
    what.add_argument(
        "--data-dir", metavar="FOLDER", help="the data sets (default: BOXQTE_DATA, ../shared/data, OpenML)"
    )
    how = parser.add_argument_group("how to run it")
    how.add_argument(
        "--limit", metavar="S", type=_positive, default=LIMITS[name], help=f"seconds a row (default {LIMITS[name]:g})"
    )
    how.add_argument("--workers", metavar="N", type=_count, help="default: one per core")
    how.add_argument("--seed", metavar="N", type=int, default=0)
    if name == "rq3":
        how.add_argument(
            "--samples", metavar="N", type=_count, default=1_000_000, help="counterexamples to draw (default 1e6)"
        )
        how.add_argument("--tester-seconds", metavar="S", type=_positive, help="the testers' time (default: the limit)")
    how.add_argument("--again", action="store_true", help="run also the rows that are done")
    how.add_argument("--table-only", action="store_true", help="run nothing, make the tables from what is recorded")
    out = parser.add_argument_group("output")
    out.add_argument("--output", metavar="FOLDER", default="bench-results",
                     help="where rows (JSON lines), tables and figures go (default bench-results)")  # fmt: skip
    out.add_argument(
        "--insert", metavar="PAGE.md", help=f"put the tables between '<!-- {name} -->' and '<!-- end {name} -->'"
    )
    out.add_argument("--no-figures", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Run what is left of the experiment, then write and print its tables."""
    from pathlib import Path

    from benchmarks.paper.datasets import load_dataset
    from benchmarks.paper.experiment import Settings, insert_tables, write_tables
    from benchmarks.paper.models import ModelSize
    from benchmarks.paper.records import Records
    from benchmarks.paper.session import run_jobs

    name = arguments.experiment
    experiment = importlib.import_module(f"benchmarks.paper.{name}")
    sizes = getattr(arguments, "sizes", None)
    chosen = tuple(ModelSize.parse(text) for text in sizes.split(",")) if sizes else experiment.SIZES
    engines = getattr(arguments, "engines", None)
    settings = Settings(
        limit=arguments.limit,
        sizes=chosen,
        library=arguments.library,
        seed=arguments.seed,
        only=tuple(arguments.only),
        methods=tuple(part.strip() for part in engines.split(",")) if engines else (),
        samples=getattr(arguments, "samples", 0),
        tester_seconds=getattr(arguments, "tester_seconds", None),
        **({} if arguments.workers is None else {"workers": arguments.workers}),
    )
    jobs = experiment.jobs(settings)
    records = Records(Path(arguments.output) / f"{name}.jsonl")
    if not arguments.table_only:
        for dataset in dict.fromkeys(job.configuration.dataset for job in jobs):
            load_dataset(dataset, arguments.data_dir)  # better now than after hours: is it there?
        run_jobs(jobs, records, _say, data_dir=arguments.data_dir, again=arguments.again)

    def row_of(job: Any) -> Any:
        return records.get(job.key)

    tables = experiment.tables(settings, row_of)
    print("\n\n".join(table.text() for table in tables))
    measured = [row for job in jobs if (row := row_of(job)) is not None]
    written = write_tables(arguments.output, name, tables, measured)
    if not arguments.no_figures:
        from benchmarks.paper.figures import bounds_figures, scaling_figures

        if name == "scaling":
            written += scaling_figures(arguments.output, experiment.points(settings), row_of, settings)
        else:
            written += bounds_figures(arguments.output, name, jobs, row_of)
    if arguments.insert:
        insert_tables(arguments.insert, name, tables)
        written.append(Path(arguments.insert))
    _say(f"written: {', '.join(str(path) for path in [records.path, *written])}")
    return OK


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found '{text}'")
    return number


def _count(text: str) -> int:
    from boxqte.engines.options import count

    try:
        number = count(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found '{text}'")
    return number


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
