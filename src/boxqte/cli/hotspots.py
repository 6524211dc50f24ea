"""`boxqte hotspots`: where most of the counterexamples are, in a few short rules."""

from __future__ import annotations

import argparse
from typing import Any

from boxqte.cli.arguments import (
    add_display,
    add_model_and_space,
    add_question,
    add_work,
    check_output,
    converter,
    raise_first,
    read_count,
    read_result,
    write_text,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "hotspots",
        help="where most of the counterexamples are, in short rules",
        description="Where most of the counterexamples are: a few rules of one to three conditions, each with exact numbers, "
        "as a tree with one condition a level.",
    )
    add_model_and_space(parser)
    asked = add_question(parser)
    asked.add_argument("--where", metavar="CONDITION", help="only x that satisfy it count: age >= 60 and sex == 'f'")
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    count = converter(read_count, "a whole number")
    out.add_argument("--top", metavar="N", type=count, default=10, help="at most so many rules (default 10)")
    out.add_argument("--conditions", metavar="N", type=count, default=3,
                     help="at most so many conditions in a rule (default 3)")  # fmt: skip
    out.add_argument("--values", metavar="N", type=count, default=3,
                     help="at most so many values in a list (default 3)")  # fmt: skip
    out.add_argument("--lift", metavar="L", default="2",
                     help="counterexamples are at least so many times as frequent in a rule (default 2)")  # fmt: skip
    out.add_argument("--csv", metavar="FILE", help="write the rules as CSV; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.csv, "--csv")
    from boxqte.api.quantify import sought_hotspots
    from boxqte.report.hotspots import hotspots_text
    from boxqte.report.text import answer_text

    wanted = {name: getattr(arguments, name) for name in ("conditions", "top", "lift", "values")}
    sought_hotspots(**wanted)  # better now than after the search
    result = read_result(arguments)
    table = result.hotspots(**wanted)
    if arguments.csv is not None:
        raise_first(write_text(arguments.csv, table.to_csv(index=False)))
    if arguments.csv != "-":
        print(answer_text(result))
        if arguments.where is not None:
            print(f"{'where':<20} {arguments.where} ({result.details['share_of_space']:.6g} of the space)")
        print(f"\n{hotspots_text(table)}")
    return 0
