"""`boxqte space infer`, `boxqte space fit` and `boxqte space show`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    OK,
    CommandError,
    add_one_hot,
    add_reading,
    add_rules,
    check_output,
    converter,
    raise_first,
    read_count,
    read_model,
    read_names,
    read_one_hot,
    write_json,
)
from boxqte.cli.wording import in_flags
from boxqte.space.distributions import PARAMETERS

if TYPE_CHECKING:
    from boxqte.space.proposals import Proposal
    from boxqte.space.space import Space


def add_parser(commands: Any) -> None:
    space = commands.add_parser("space", help="make or show an input space", description="Make or show an input space.")
    spaces = space.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_infer(spaces)
    _add_fit(spaces)
    show = spaces.add_parser("show", help="show a space", description="Show a space as a table.")
    show.add_argument("space", metavar="SPACE.json", help="a space, or a population (boxqte space fit)")
    show.set_defaults(run=_show)


def _add_infer(spaces: Any) -> None:
    parser = spaces.add_parser(
        "infer",
        help="infer a space from data",
        description="Infer the kinds and domains of the attributes from a table, and say why.",
    )
    parser.add_argument("data", metavar="DATA.csv", help="a CSV file with a header (or Parquet)")
    parser.add_argument("-o", "--output", metavar="SPACE.json", required=True, help="- is standard output")
    parser.add_argument("--label", metavar="COLUMN", help="the target column, which is no attribute")
    parser.add_argument("--sensitive", metavar="A,B", action="append", help="attributes to mark as sensitive")
    for kind in ("categorical", "integer", "real"):
        parser.add_argument(f"--{kind}", metavar="A,B", action="append", help=f"columns that are {kind}")
    add_one_hot(parser)
    parser.add_argument("--missing", choices=("error", "declare", "ignore"), default="error",
                        help="missing values: refuse, make them part of the domain, or leave them out")  # fmt: skip
    parser.add_argument("--mass", choices=("uniform", "data", "cells"), default="uniform",
                        help="all values of an attribute alike, as often as in the data, or every cell that a model's tests "
                        "cut the space into alike")  # fmt: skip
    for family, (one, two) in PARAMETERS.items():
        parser.add_argument(f"--{family}", metavar=f"NAME={one.upper()},{two.upper()}", action="append",
                            help=f"a numeric attribute whose mass is {family}, truncated to its domain")  # fmt: skip
    add_rules(parser)
    parser.add_argument(
        "--rules-from-data",
        action="store_true",
        help="propose rules: pairs of values that never occur together, though many rows were expected",
    )
    parser.add_argument("--accept-rules", action="store_true", help="take all rules that --rules-from-data proposes")
    parser.add_argument("--model", metavar="MODEL", help="use the model's columns and categories")
    add_reading(parser)
    parser.set_defaults(run=_infer)


def _add_fit(spaces: Any) -> None:
    parser = spaces.add_parser(
        "fit",
        help="fit a population to data",
        description="Fit a mixture of products to the rows of a table, so that attributes depend on each other as they do in "
        "the rows, and say what it captures. The file is a space for every command: --space PEOPLE.json.",
    )
    parser.add_argument("data", metavar="DATA.csv", help="the rows (CSV or Parquet)")
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    parser.add_argument("-o", "--output", metavar="PEOPLE.json", required=True, help="- is standard output")
    parser.add_argument("--components", metavar="auto|K", default="auto",
                        help="how many products; auto (default): doubled up to 32 while that raises the log-likelihood of "
                        "rows that the fit has not seen")  # fmt: skip
    parser.add_argument("--where", metavar="CONDITION", help="only the rows that satisfy the condition")
    parser.add_argument("--seed", metavar="S", type=converter(read_count, "a whole number"), default=0,
                        help="the same seed gives the same file (default 0)")  # fmt: skip
    parser.add_argument("--model", metavar="MODEL", help="divide numeric attributes where this model tests them, too")
    add_reading(parser)
    parser.set_defaults(run=_fit)


def _fit(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, "--output")
    from boxqte.report.populations import population_text
    from boxqte.space.populations import Population
    from boxqte.space.tables import read_table

    model = None if arguments.model is None else read_model(arguments)
    found = Population.fit(
        read_table(arguments.data),
        arguments.space,
        arguments.components,
        random_state=arguments.seed,
        model=model,
        where=arguments.where,
    )
    raise_first(write_json(arguments.output, found.to_json()))
    print(population_text(found), file=sys.stderr if arguments.output == "-" else sys.stdout)
    return OK


def _infer(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, "--output")
    if arguments.accept_rules and not arguments.rules_from_data:
        raise CommandError("--accept-rules: takes what --rules-from-data proposes; give both")
    from boxqte.space.space import Space
    from boxqte.space.tables import read_table

    table = read_table(arguments.data)
    model = None if arguments.model is None else read_model(arguments)
    inference = Space.infer(
        table,
        label=arguments.label,
        sensitive=read_names(arguments.sensitive, "--sensitive"),
        missing=arguments.missing,
        mass=arguments.mass,
        model=model,
        categorical=read_names(arguments.categorical, "--categorical"),
        integer=read_names(arguments.integer, "--integer"),
        real=read_names(arguments.real, "--real"),
        one_hot=read_one_hot(arguments.one_hot),
    )
    space = inference.space.with_mass(_formulas(arguments)).with_rules(arguments.rule or ())
    proposals = _proposals(space, table) if arguments.rules_from_data else []
    if arguments.accept_rules:
        space = space.with_rules([proposal.rule for proposal in proposals])
    unwritten = write_json(arguments.output, space.to_json())
    raise_first(unwritten)
    to_stdout = arguments.output == "-"
    out = sys.stderr if to_stdout else sys.stdout
    print(in_flags(str(inference), arguments.command), file=out)
    if arguments.rules_from_data:
        print(_proposed(proposals, arguments.accept_rules), file=out)
    if not to_stdout:
        print(f"\nwritten to {arguments.output}; to change a kind, --categorical, --integer or --real NAME, or edit it")
    return OK


def _proposals(space: Space, table: Any) -> list[Proposal]:
    """What the table suggests and the space's rules do not say yet."""
    from boxqte.space.proposals import propose_rules

    known = {rule.text for rule in space.rules}
    return [proposal for proposal in propose_rules(space, table) if proposal.rule not in known]


def _proposed(proposals: list[Proposal], accepted: bool) -> str:
    """The proposals, and how to take them."""
    if not proposals:
        return "\nno pair of values is absent that many rows were expected to have: no rule is proposed"
    said = "taken" if accepted else 'proposed, none is taken: --rule "..." takes one, --accept-rules all'
    return "\n".join(["", f"rules from the data, {said}", *(f"  {proposal}" for proposal in proposals)])


def _formulas(arguments: argparse.Namespace) -> dict[str, Any]:
    """The masses of --gaussian and --lognormal, by attribute."""
    found: dict[str, Any] = {}
    for family in PARAMETERS:
        for text in getattr(arguments, family) or ():
            name, _, numbers = (piece.strip() for piece in text.rpartition("="))
            if not name or numbers.count(",") != 1:
                one, two = PARAMETERS[family]
                raise CommandError(f"--{family}: expected NAME={one.upper()},{two.upper()}, found '{text}'")
            if name in found:
                raise CommandError(f"--{family}: '{name}' has a mass already; give one")
            found[name] = {family: numbers.split(",")}
    return found


def _show(arguments: argparse.Namespace) -> int:
    from boxqte.report.populations import population_text
    from boxqte.report.text import space_text
    from boxqte.space.populations import Population, is_population
    from boxqte.space.space import Space

    space = Space.load(arguments.space)
    print(space_text(space))
    if is_population(arguments.space):
        print(f"\n{population_text(Population.load(arguments.space))}")
    return OK
