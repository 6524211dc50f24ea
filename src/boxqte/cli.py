"""The command `boxqte`: arguments in, text and exit codes out. Everything it does is in the library.

Exit codes: 0 the question is answered (also with bounds that a limit left open), or what is required holds; 1 it is
violated; 2 the input is bad; 3 it is undecided; 130 interrupted.
Nothing heavy is imported before a command needs it, so that `boxqte --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from boxqte._version import __version__
from boxqte.commands import audit, bench, certify, completion, gate, regions, rows, sample, smtlib, verify
from boxqte.commands import test as testing
from boxqte.commands.arguments import (
    CommandError,
    add_display,
    add_model,
    add_question,
    add_work,
    check_output,
    converter,
    property_of,
    raise_first,
    read_names,
    wants_colors,
    write_json,
    write_text,
)
from boxqte.commands.settings import settled
from boxqte.commands.wording import command_of, in_flags, left_over, unknown_option, with_suggestion
from boxqte.errors import BoxQTEError

if TYPE_CHECKING:
    from boxqte.policy import Requirement
    from boxqte.properties import Property
    from boxqte.result import Quantification
    from boxqte.space import Space

OK, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold characters that the terminal has not
    typed = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    try:
        if typed[:2] == ["completion", "words"]:  # before argparse, which has a reading of its own for --
            return completion.print_suggestions(parser, typed[3:])
        arguments = _parsed(parser, settled(parser, typed))
        arguments.typed = typed
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BoxQTEError as error:
        return _failed(in_flags(str(error), command_of(parser, typed), typed))
    except KeyboardInterrupt:
        print("boxqte: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        _silence(sys.stdout)
        return _failed(f"{error.filename or 'output'}: {error.strerror or error}")


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The arguments; an option that the command does not have is said first, since what is missing follows from it."""
    command = command_of(parser, words)
    wrong = unknown_option(command, words)
    if wrong is None:
        arguments, rest = parser.parse_known_args(words)
        if not rest:
            arguments.command = command
            return arguments
        wrong = left_over(command, words, rest)
    return command.error(wrong)


def _failed(message: str) -> int:
    print(f"boxqte: error: {_one_line(message)}", file=sys.stderr)
    return BAD_INPUT


def _one_line(text: str) -> str:
    """Names come from files and may hold anything; an error stays on one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _silence(stream: Any) -> None:
    """Let Python's own flush at exit write what is left to nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- commands ---


def _quantify(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    check_output(arguments.html, "--html")
    check_output(arguments.checkpoint, "--checkpoint")
    check_output(arguments.certificate, "--certificate")
    prop = property_of(arguments)
    requirement = _requirement(arguments, prop)
    from boxqte.engines import DEFAULT_ENGINE
    from boxqte.importers import load_model
    from boxqte.options import read_options
    from boxqte.printing import answer_text
    from boxqte.progress import show_progress
    from boxqte.quantification import quantify
    from boxqte.result import Status
    from boxqte.space import Space

    engine = arguments.engine or DEFAULT_ENGINE
    confidence = [] if arguments.confidence is None else [f"confidence={arguments.confidence}"]
    options = smtlib.switched(engine, read_options(engine, [*arguments.option, *confidence]), arguments)
    space = Space.load(arguments.space)
    prop.check(space)
    if arguments.population is not None:
        space = _population(space, arguments)
    elif arguments.population_where is not None:
        raise CommandError("--population-where: give the table with --population")
    model = load_model(arguments.model, allow_pickle=arguments.allow_pickle)
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
            threshold=None if requirement is None else requirement.at_least,
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
        raise_first(write_text(arguments.html, result.to_html(command=shlex.join(["boxqte", *arguments.typed]))))
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
    from boxqte.policy import Requirement, share

    return Requirement(prop, share(arguments.require, "--require"))


def _say_verdict(requirement: Requirement, result: Quantification, stream: Any) -> int:
    from boxqte.exact import plain
    from boxqte.policy import judge

    check = judge(requirement, result)
    reason = f"; {check.why}" if check.why else ""
    print(f"{'required':<20} at least {plain(requirement.at_least)}: {check.verdict}{reason}", file=stream)
    return check.verdict.exit_code


def _population(space: Space, arguments: argparse.Namespace) -> Space:
    """The space with the masses of the table, and on standard error how they were taken."""
    from boxqte.populations import population
    from boxqte.tables import read_table

    found = population(space, read_table(arguments.population), where=arguments.population_where)
    if not arguments.quiet:
        print(f"boxqte: masses from {found.rows:,} rows of {arguments.population}", file=sys.stderr)
        for note in found.notes:
            print(f"boxqte:   {note}", file=sys.stderr)
    return found.space


def _empirical(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    prop = property_of(arguments)
    from boxqte.populations import empirical, empirical_text
    from boxqte.space import Space
    from boxqte.tables import read_table

    found = empirical(
        arguments.model,
        Space.load(arguments.space),
        prop,
        read_table(arguments.data),
        where=arguments.where,
        confidence=arguments.confidence,
        allow_pickle=arguments.allow_pickle,
    )
    unwritten = write_json(arguments.json, found.to_json() | {"property": prop.to_json()})
    if arguments.json != "-":
        print(empirical_text(found, prop))
    raise_first(unwritten)
    return OK


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


def _infer(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, "--output")
    from boxqte.inference import infer_space
    from boxqte.tables import read_table

    model = None
    if arguments.model is not None:
        from boxqte.importers import load_model

        model = load_model(arguments.model, allow_pickle=arguments.allow_pickle)
    inference = infer_space(
        read_table(arguments.data),
        label=arguments.label,
        sensitive=read_names(arguments.sensitive, "--sensitive"),
        missing=arguments.missing,
        mass=arguments.mass,
        model=model,
        categorical=read_names(arguments.categorical, "--categorical"),
        integer=read_names(arguments.integer, "--integer"),
        real=read_names(arguments.real, "--real"),
    )
    unwritten = write_json(arguments.output, inference.space.to_json())
    raise_first(unwritten)
    to_stdout = arguments.output == "-"
    print(in_flags(str(inference), arguments.command), file=sys.stderr if to_stdout else sys.stdout)
    if not to_stdout:
        print(f"\nwritten to {arguments.output}; to change a kind, --categorical, --integer or --real NAME, or edit it")
    return OK


def _show_space(arguments: argparse.Namespace) -> int:
    from boxqte.printing import space_text
    from boxqte.space import Space

    print(space_text(Space.load(arguments.space)))
    return OK


def _show_model(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    from boxqte.importers import load_model
    from boxqte.printing import model_json, model_text

    imported = load_model(arguments.model, allow_pickle=arguments.allow_pickle)
    unwritten = write_json(arguments.json, model_json(imported))
    raise_first(unwritten)
    if arguments.json != "-":
        print(model_text(imported))
    return OK


def _demo(arguments: argparse.Namespace) -> int:
    from boxqte.demo import run_demo

    run_demo(print)
    return OK


def _engines(arguments: argparse.Namespace) -> int:
    from boxqte.printing import engines_text

    print(engines_text())
    return OK


# --- arguments ---


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any):
        super().__init__(**options, allow_abbrev=False, formatter_class=_Help)

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{with_suggestion(message)} (see {self.prog} --help)"))


class _Help(argparse.HelpFormatter):
    """Wraps every line of a description at the terminal's width, and keeps the lines apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.splitlines():
            own = indent + line[: len(line) - len(line.lstrip())]
            lines += textwrap.wrap(line.strip(), width, initial_indent=own, subsequent_indent=own) or [""]
        return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    parser = _Parser(
        prog="boxqte",
        description="How fair, or robust, is a tree ensemble: the exact share of the input space, or certain bounds.",
        epilog="Start with: boxqte demo",
    )
    parser.add_argument("--config", metavar="FILE", help="settings, one table a command (default: boxqte.toml here)")
    parser.add_argument("--version", action="version", version=f"boxqte {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    audit.add_parser(commands)
    _add_quantify(commands)
    smtlib.add_parser(commands)
    _add_empirical(commands)
    space = commands.add_parser("space", help="make or show an input space", description="Make or show an input space.")
    spaces = space.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_infer(spaces)
    show = spaces.add_parser("show", help="show a space", description="Show a space as a table.")
    show.add_argument("space", metavar="SPACE.json")
    show.set_defaults(run=_show_space)
    model = commands.add_parser("model", help="show a model", description="Show a model.")
    models = model.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = models.add_parser("show", help="show a model as it is read", description="Show a model as it is read.")
    add_model(show)
    show.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    show.set_defaults(run=_show_model)
    testing.add_parser(commands)
    demo = commands.add_parser("demo", help="the paper's loan example", description="The paper's loan example.")
    demo.set_defaults(run=_demo)
    engines = commands.add_parser("engines", help="the engines and their options", description="The engines.")
    engines.set_defaults(run=_engines)
    for command in (regions, sample, verify, rows):
        command.add_parser(commands)
    gate.add_parser(commands)
    completion.add_parser(commands)
    certify.add_parser(commands, add_model)
    bench.add_parser(commands)
    return parser


def _add_quantify(commands: Any) -> None:
    parser = commands.add_parser(
        "quantify",
        help="measure fairness or robustness",
        description="Measure fairness (with --sensitive) or robustness (without) over the whole input space.",
    )
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    parser.add_argument("--population", metavar="DATA.csv",
                        help="the masses are the frequencies of each attribute's values in this table")  # fmt: skip
    parser.add_argument("--population-where", metavar="CONDITION", help="only of the rows that satisfy the condition")
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
    out.add_argument("--certificate", metavar="FILE", help="write the proof here; boxqte certify checks it")
    parser.set_defaults(run=_quantify)


def _add_empirical(commands: Any) -> None:
    parser = commands.add_parser(
        "empirical",
        help="the same question for the rows of a table",
        description="The share of a table's confident rows that are treated fairly, each row decided exactly, with an "
        "interval for the population behind them.",
    )
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space, in which x' lies")
    parser.add_argument("--data", metavar="DATA.csv", required=True, help="the rows")
    parser.add_argument("--where", metavar="CONDITION", help="only rows that satisfy it, such as \"sex == 'f'\"")
    parser.add_argument("--confidence", metavar="C", type=converter(float, "a number"), default=0.95,
                        help="of the interval for the population behind the rows (default 0.95)")  # fmt: skip
    add_question(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    parser.set_defaults(run=_empirical)


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
    parser.add_argument("--missing", choices=("error", "declare", "ignore"), default="error",
                        help="missing values: refuse, make them part of the domain, or leave them out")  # fmt: skip
    parser.add_argument("--mass", choices=("uniform", "data"), default="uniform",
                        help="all values of an attribute alike, or as often as in the data")  # fmt: skip
    parser.add_argument("--model", metavar="MODEL", help="use the model's columns, categories and encoder")
    parser.add_argument("--allow-pickle", action="store_true", help="unpickle the model, which runs code in it")
    parser.set_defaults(run=_infer)
