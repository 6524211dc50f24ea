"""`boxqte quantify`: one question, one answer."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from typing import TYPE_CHECKING, Any

from boxqte.cli import smtlib
from boxqte.cli.arguments import (
    INTERRUPTED,
    OK,
    add_display,
    add_explorer,
    add_model_and_space,
    add_population,
    add_question,
    add_work,
    check_explorer,
    check_output,
    converter,
    property_of,
    raise_first,
    read_model_and_space,
    wants_colors,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from boxqte.answers.result import Result
    from boxqte.auditing.policy import Requirement
    from boxqte.questions.properties import Property
    from boxqte.space.space import Space


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "quantify",
        help="measure fairness or robustness",
        description="Measure fairness (with --sensitive) or robustness (without) over the whole input space.",
    )
    add_model_and_space(parser)
    add_population(parser)
    asked = add_question(parser)
    asked.add_argument("--require", metavar="R", help="the least measure: stops once that is decided; exit code 0 it "
                       "holds, 1 it is violated, 3 undecided")  # fmt: skip
    work = add_work(parser)
    smtlib.add_switches(work)
    work.add_argument("--confidence", metavar="C",
                      help="of the statistical interval, engines auto and sample (default 0.999999)")  # fmt: skip
    work.add_argument("--dask", metavar="ADDRESS", help="work in the processes of this Dask scheduler")
    work.add_argument("--checkpoint", metavar="FILE",
                      help="keep the state here; the same command goes on from it, whatever stopped the last one")  # fmt: skip
    work.add_argument("--checkpoint-every", metavar="S", type=converter(float, "a number"), default=5.0,
                      help="seconds between two checkpoints (default 5)")  # fmt: skip
    out = add_display(parser)
    out.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    out.add_argument("--html", metavar="REPORT.html", help="write the report: one file, readable offline")
    add_explorer(out)
    out.add_argument("--certificate", metavar="FILE", help="write the proof here; boxqte certify checks it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    check_output(arguments.html, "--html")
    check_explorer(arguments)
    check_output(arguments.checkpoint, "--checkpoint")
    check_output(arguments.certificate, "--certificate")
    prop = property_of(arguments)
    requirement = _requirement(arguments, prop)
    from boxqte.api.quantify import quantify
    from boxqte.engines import DEFAULT_ENGINE
    from boxqte.engines.options import read_options
    from boxqte.engines.protocol import Status
    from boxqte.report.progress import show_progress
    from boxqte.report.text import answer_text

    engine = arguments.engine or DEFAULT_ENGINE
    confidence = [] if arguments.confidence is None else [f"confidence={arguments.confidence}"]
    options = smtlib.switched(engine, read_options(engine, [*arguments.option, *confidence]), arguments)
    model, space = read_model_and_space(arguments, prop)
    colors = wants_colors(arguments, sys.stderr)
    limit = arguments.time_limit
    with (
        show_progress(str(prop), time_limit=limit, quiet=arguments.quiet, color=colors) as progress,
        _cluster(arguments.dask) as client,
    ):
        result = quantify(
            model,
            space,
            prop,
            engine=engine,
            time_limit=limit,
            gap=arguments.gap,
            require=None if requirement is None else requirement.at_least,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            node_limit=arguments.node_limit,
            options=options,
            progress=progress,
            checkpoint=arguments.checkpoint,
            checkpoint_every=arguments.checkpoint_every,
            certificate=arguments.certificate,
            executor=client,
        )
    unwritten = write_json(arguments.json, result.to_json())
    if arguments.json != "-":
        print(answer_text(result))
    code = OK
    if requirement is not None:
        code = _say_verdict(requirement, result, sys.stderr if arguments.json == "-" else sys.stdout)
    if not arguments.quiet:
        _hint(prop, space)
    raise_first(unwritten)
    if arguments.html is not None:
        page = result.to_html(command=shlex.join(["boxqte", *arguments.typed]), explorer=arguments.explorer)
        raise_first(write_text(arguments.html, page))
    interrupted = result.status is Status.INTERRUPTED
    if interrupted or (arguments.checkpoint is not None and not result.converged):
        print(_how_to_go_on(arguments, interrupted), file=sys.stderr)
    return INTERRUPTED if interrupted else code


def _cluster(address: str | None) -> contextlib.AbstractContextManager[Any]:
    """A client of the Dask scheduler at the address, or None."""
    if address is None:
        return contextlib.nullcontext()
    from boxqte.engines.box.cluster import connect

    client: contextlib.AbstractContextManager[Any] = connect(address)
    return client


def _how_to_go_on(arguments: argparse.Namespace, interrupted: bool) -> str:
    said = "boxqte: interrupted; the bounds above are certain; " if interrupted else "boxqte: "
    if arguments.checkpoint is not None:
        return f"{said}the state is in {arguments.checkpoint}; the same command goes on from there"
    return f"{said}with --checkpoint FILE the same command would go on where it was stopped"


def _requirement(arguments: argparse.Namespace, prop: Property) -> Requirement | None:
    if arguments.require is None:
        return None
    from boxqte.auditing.policy import Requirement, share

    return Requirement(prop, share(arguments.require, "--require"))


def _say_verdict(requirement: Requirement, result: Result, stream: Any) -> int:
    from boxqte.auditing.policy import judge
    from boxqte.exact import plain

    check = judge(requirement, result)
    reason = f"; {check.why}" if check.why else ""
    print(f"{'required':<20} at least {plain(requirement.at_least)}: {check.verdict}{reason}", file=stream)
    return check.verdict.exit_code


def _hint(prop: Property, space: Space) -> None:
    """What the user may have meant instead."""
    if prop.sensitive:
        return
    if not any(prop.tolerances(space).values()):
        print("boxqte: note: nothing is sensitive and epsilon moves nothing, so every input is robust; give "
              "--sensitive, --epsilon-rate or --epsilon", file=sys.stderr)  # fmt: skip
    elif space.sensitive:
        names = ",".join(space.sensitive)
        print(
            f"boxqte: note: this is robustness; for fairness, --sensitive {names} (marked in the space)",
            file=sys.stderr,
        )
