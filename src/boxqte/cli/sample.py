"""`boxqte sample`: counterexample pairs as a CSV file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from boxqte.cli.arguments import (
    add_display,
    add_model_and_space,
    add_population,
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
        "sample",
        help="draw counterexample pairs",
        description="Draw counterexamples by the space's mass, each with an x' of the other class, as CSV: the columns of x, "
        "then those of x' with a prime.",
    )
    add_model_and_space(parser)
    add_population(parser)
    asked = add_question(parser)
    asked.add_argument("--where", metavar="CONDITION", help="only x that satisfy it: age >= 60 and sex == 'f'")
    asked.add_argument("-n", dest="count", metavar="N", type=converter(read_count, "a whole number"), default=10,
                       help="how many pairs (default 10)")  # fmt: skip
    asked.add_argument("--seed", metavar="S", type=converter(read_count, "a whole number"), default=0)
    asked.add_argument("--distinct", action="store_true", help="no pair twice")
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--output", "-o", metavar="FILE.csv", default="-", help="where to (default - , standard output)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, "--output")
    found = read_result(arguments).sample(
        arguments.count, random_state=arguments.seed, distinct=arguments.distinct, workers=arguments.workers
    )
    table = found.x.join(found.witness.add_suffix("'"))
    raise_first(write_text(arguments.output, table.to_csv(index=False)))
    if not arguments.quiet:
        print(f"boxqte: {found!r}", file=sys.stderr)
    return 0
