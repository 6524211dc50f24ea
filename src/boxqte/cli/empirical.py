"""`boxqte empirical`: the same question for the rows of a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    OK,
    add_model,
    add_question,
    add_rules,
    check_output,
    converter,
    given_model,
    load_space,
    property_of,
    raise_first,
    write_json,
)

if TYPE_CHECKING:
    pass


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "empirical",
        help="the same question for the rows of a table",
        description="The share of a table's confident rows that are treated fairly, each row decided exactly, with an "
        "interval for the population behind them.",
    )
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space, in which x' lies")
    add_rules(parser)
    parser.add_argument("--data", metavar="DATA.csv", required=True, help="the rows")
    parser.add_argument("--where", metavar="CONDITION", help="only rows that satisfy it, such as \"sex == 'f'\"")
    parser.add_argument("--confidence", metavar="C", type=converter(float, "a number"), default=0.95,
                        help="of the interval for the population behind the rows (default 0.95)")  # fmt: skip
    add_question(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    prop = property_of(arguments)
    from boxqte.answers.empirical import empirical
    from boxqte.report.text import empirical_text
    from boxqte.space.tables import read_table

    found = empirical(
        given_model(arguments),
        load_space(arguments),
        prop,
        read_table(arguments.data),
        where=arguments.where,
        confidence=arguments.confidence,
        allow_pickle=arguments.allow_pickle,
        threshold=arguments.decision_threshold,
    )
    unwritten = write_json(arguments.json, found.to_json() | {"property": prop.to_json()})
    if arguments.json != "-":
        print(empirical_text(found, prop))
    raise_first(unwritten)
    return OK
