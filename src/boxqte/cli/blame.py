"""`boxqte blame`: which trees and splits make the model unfair, and what they are good for."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from boxqte.cli.arguments import (
    INTERRUPTED,
    OK,
    add_display,
    add_model_and_space,
    add_question,
    add_work,
    check_output,
    converter,
    raise_first,
    read_count,
    read_question,
    wants_colors,
    write_text,
)

PARTS = 4  # of the time: one for the question itself


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "blame",
        help="which trees and splits make it unfair",
        description="Which trees and splits on sensitive attributes make the model unfair: how much unfair mass goes away if "
        "one of them is blinded, and with --data and --label how much log-loss it buys.",
    )
    add_model_and_space(parser)
    parser.add_argument("--data", metavar="DATA.csv",
                        help="rows (CSV or Parquet): the child that more of them reach stays where a split goes")  # fmt: skip
    parser.add_argument("--label", metavar="COLUMN", help="the column of the data with the true classes")
    add_question(parser)
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--trees-only", action="store_true", help="whole trees only, not each split")
    out.add_argument("--top", metavar="N", type=converter(read_count, "a whole number"), default=20,
                     help="how many trees to show (default 20)")  # fmt: skip
    out.add_argument("--csv", metavar="FILE", help="write the whole table as CSV; - is standard output")
    out.add_argument("--html", metavar="FILE", help="write the report of the model, with this table in it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.csv, "--csv")
    check_output(arguments.html, "--html")
    model, space, prop = read_question(arguments)
    from boxqte.api.quantify import quantify
    from boxqte.basics.budget import TimeBudget
    from boxqte.questions.building import build_any_grid
    from boxqte.repairing.blame import read_data
    from boxqte.report.blame import blame_text
    from boxqte.report.progress import show_questions
    from boxqte.report.text import measure_text
    from boxqte.space.tables import read_table

    data = None if arguments.data is None else read_table(arguments.data)
    read_data(build_any_grid(model.ensemble, space, prop), data, arguments.label)  # better now than after the search
    budget = TimeBudget(arguments.time_limit, PARTS)
    limits = {"workers": arguments.workers, "memory_limit": arguments.memory_limit}
    with show_questions(quiet=arguments.quiet, color=wants_colors(arguments, sys.stderr)) as progress:
        shown = None if progress is None else lambda moment: progress("the model", budget.seconds, moment)
        result = quantify(model, space, prop, time_limit=budget.next_share(), progress=shown, **limits)
        left = None if budget.seconds is None else max(budget.left, TimeBudget.LEAST)
        splits = not arguments.trees_only
        table = result.blame(data, arguments.label, splits=splits, time_limit=left, progress=progress)
    if arguments.csv is not None:
        raise_first(write_text(arguments.csv, table.to_csv(index=False)))
    if arguments.csv != "-":
        rule = model.ensemble.decision
        print(f"{'question':<10} {prop}")
        print(f"{'measure':<10} {measure_text(result)}")
        if rule is not None:
            print(f"{'decision':<10} {rule.text()}")
        print(f"\n{blame_text(table, arguments.top)}")
    if arguments.html is not None:
        page = result.to_html(command=shlex.join(["boxqte", *arguments.typed]), blame=table)
        raise_first(write_text(arguments.html, page))
    return INTERRUPTED if table.attrs["not_searched"] else OK
