"""`boxqte model show`: a model as it is read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    OK,
    add_model,
    check_output,
    raise_first,
    read_model,
    write_json,
)

if TYPE_CHECKING:
    pass


def add_parser(commands: Any) -> None:
    model = commands.add_parser("model", help="show a model", description="Show a model.")
    models = model.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = models.add_parser("show", help="show a model as it is read", description="Show a model as it is read.")
    add_model(show)
    show.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    show.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    from boxqte.report.text import model_json, model_text

    imported = read_model(arguments)
    unwritten = write_json(arguments.json, model_json(imported))
    raise_first(unwritten)
    if arguments.json != "-":
        print(model_text(imported))
    return OK
