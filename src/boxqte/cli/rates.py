"""`boxqte rates`: the share of class 1 in every group; with --require-ratio the exit code is the answer."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from boxqte.cli.arguments import (
    INTERRUPTED,
    OK,
    add_display,
    add_model_and_space,
    add_population,
    add_work,
    check_output,
    converter,
    raise_first,
    read_model_and_space,
    read_names,
    wants_colors,
    write_json,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "rates",
        help="the share of class 1 in every group, their difference and ratio",
        description="For every value of the sensitive attributes (or combination of values) the share of the space that gets "
        "class 1, the difference and the ratio of the groups, as certain bounds. Exit codes: 0 done, or --require-ratio holds; "
        "1 it is violated, 3 undecided; 2 bad input; 130 interrupted.",
    )
    add_model_and_space(parser)
    add_population(parser)
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--sensitive", metavar="A,B", action="append", required=True,
                       help="the attribute whose values are the groups; several: every combination is one")  # fmt: skip
    asked.add_argument("--require-ratio", metavar="R", help="the least ratio of two groups' rates (0.8: four fifths): "
                       "stops once that is decided; exit code 0 it holds, 1 it is violated, 3 undecided")  # fmt: skip
    asked.add_argument("--data", metavar="DATA.csv", help="a table, whose own rates stand beside")
    asked.add_argument("--confidence", metavar="C", type=converter(float, "a number"), default=0.95,
                       help="of the intervals of the table's rates (default 0.95)")  # fmt: skip
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--json", metavar="FILE", help="write the rates as JSON; - is standard output")
    out.add_argument("--certificate", metavar="FILE", help="write the proof here; boxqte certify checks it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    check_output(arguments.certificate, "--certificate")
    names = read_names(arguments.sensitive, "--sensitive")
    from boxqte.answers.rates import group_rates
    from boxqte.engines.protocol import Status
    from boxqte.report.progress import show_progress
    from boxqte.report.rates import rates_text
    from boxqte.space.tables import read_table

    model, space = read_model_and_space(arguments)
    data = None if arguments.data is None else read_table(arguments.data)
    title, limit = f"group rates by {', '.join(names)}", arguments.time_limit
    colors = wants_colors(arguments, sys.stderr)
    with show_progress(title, time_limit=limit, quiet=arguments.quiet, color=colors) as progress:
        found = group_rates(
            model,
            space,
            names,
            data=data,
            require_ratio=arguments.require_ratio,
            confidence=arguments.confidence,
            time_limit=limit,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            progress=progress,
            certificate=arguments.certificate,
        )
    unwritten = write_json(arguments.json, found.to_json())
    if arguments.json != "-":
        print(rates_text(found))
    raise_first(unwritten)
    if found.status is Status.INTERRUPTED:
        return INTERRUPTED
    return OK if found.verdict is None else found.verdict.exit_code
