"""`boxqte smtlib`, and the switches of `boxqte quantify --engine smt`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from boxqte.cli.arguments import add_model_and_space, add_question, check_output, raise_first, read_question, write_text
from boxqte.errors import EngineError

SWITCHES = {
    "priority": "engine smt: work on path tuples in the order in which they are found",
    "decomposition": "engine smt: never divide a task",
    "box_blocking": "engine smt: block pairs of path tuples only",
}


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "smtlib",
        help="write the question as SMT-LIB 2",
        description="Write one of the paper's formulas as SMT-LIB 2, for z3, cvc5 and others. It is satisfiable iff there is "
        "a pair that violates the property (unfair), or an input that is confident (kappa) or not (not-kappa).",
    )
    add_model_and_space(parser)
    add_question(parser)
    parser.add_argument("--formula", choices=("unfair", "kappa", "not-kappa"), default="unfair", help="default: unfair")
    parser.add_argument("-o", "--output", metavar="FILE.smt2", required=True, help="- is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the formula; the exit code."""
    check_output(arguments.output, "--output")
    model, space, prop = read_question(arguments)
    from boxqte.engines.refusals import two_classes
    from boxqte.engines.smt.formula import smtlib
    from boxqte.questions.building import build_any_grid

    grid = two_classes(build_any_grid(model.ensemble, space, prop), "smtlib")
    if grid.partners is not None and grid.partners.scale is not None:
        raise EngineError("scale: a difference of probabilities is no formula of linear arithmetic; use scale='margin'")
    script = smtlib(grid, arguments.formula)
    raise_first(write_text(arguments.output, script))
    return 0


def add_switches(group: Any) -> None:
    """`--no-priority` and so on."""
    for name, text in SWITCHES.items():
        group.add_argument(f"--no-{name.replace('_', '-')}", action="store_true", help=text)


def switched(engine: str, options: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """The options with those switched off that the user switched off."""
    off = [name for name in SWITCHES if getattr(arguments, f"no_{name}")]
    for name in off:
        switch = f"--no-{name.replace('_', '-')}"
        if engine != "smt":
            raise EngineError(f"{switch}: only the engine 'smt' has it, not '{engine}'")
        if name in options:
            raise EngineError(f"{switch}: the option '{name}' is given as well")
    return {**options, **dict.fromkeys(off, False)}
