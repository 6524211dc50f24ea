"""`boxqte scores`: how much the score changes with the sensitive attributes, as a histogram and quantiles."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from boxqte.cli.arguments import (
    OK,
    add_display,
    add_model_and_space,
    add_population,
    add_work,
    check_output,
    raise_first,
    read_model_and_space,
    read_names,
    wants_colors,
    write_json,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "scores",
        help="how much the score changes with the sensitive attributes: a histogram and quantiles",
        description="For all inputs, the largest change of the model's score when the sensitive values are exchanged: which "
        "share changes by how much, as certain bounds.",
    )
    add_model_and_space(parser)
    add_population(parser)
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--sensitive", metavar="A,B", action="append", required=True, help="what may be exchanged")
    asked.add_argument("--scale", choices=("probability", "margin", "value"), default="probability",
                       help="of which score (default probability); value: what a regressor predicts")  # fmt: skip
    asked.add_argument("--levels", metavar="A,B", action="append", help="the ends of the histogram's bins")
    asked.add_argument("--quantiles", metavar="Q,R", action="append",
                       help="of these shares of the inputs, closed in further than the bins")  # fmt: skip
    asked.add_argument("--kappa", metavar="K", default="0.5", help="only inputs with confidence above K (default 0.5)")
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    names = read_names(arguments.sensitive, "--sensitive")
    levels = None if arguments.levels is None else read_names(arguments.levels, "--levels")
    from boxqte.answers.score_changes import score_changes
    from boxqte.report.progress import show_questions
    from boxqte.report.score_changes import score_changes_text

    model, space = read_model_and_space(arguments)
    with show_questions(quiet=arguments.quiet, color=wants_colors(arguments, sys.stderr)) as progress:
        found = score_changes(
            model,
            space,
            names,
            scale=arguments.scale,
            levels=levels,
            quantiles=None if arguments.quantiles is None else read_names(arguments.quantiles, "--quantiles"),
            kappa=arguments.kappa,
            time_limit=arguments.time_limit,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            progress=progress,
        )
    unwritten = write_json(arguments.json, found.to_json())
    if arguments.json != "-":
        print(score_changes_text(found))
    raise_first(unwritten)
    return OK
