"""The command `boxqte`: arguments in, text and exit codes out. Everything it does is in the library.

Exit codes: 0 the question is answered (also with bounds that a limit left open), or what is required holds; 1 it is
violated; 2 the input is bad; 3 it is undecided; 130 interrupted.
Nothing heavy is imported before a command needs it, so that `boxqte --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from boxqte._version import __version__
from boxqte.cli import (
    audit,
    blame,
    certify,
    completion,
    empirical,
    gate,
    model,
    quantify,
    rates,
    regions,
    repair,
    rows,
    sample,
    scores,
    smtlib,
    space,
    verify,
)
from boxqte.cli import test as testing
from boxqte.cli.arguments import INTERRUPTED, OK, add_model
from boxqte.cli.settings import settled
from boxqte.cli.wording import command_of, in_flags, left_over, unknown_option, with_suggestion
from boxqte.errors import BoxQTEError

BAD_INPUT, BROKEN_PIPE = 2, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may hold characters that the terminal has not
    typed = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    try:
        completion.answer_tab(parser)
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


def _demo(arguments: argparse.Namespace) -> int:
    from boxqte.cli.demo import run_demo

    run_demo(print)
    return OK


def _engines(arguments: argparse.Namespace) -> int:
    from boxqte.report.text import engines_text

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
    quantify.add_parser(commands)
    rates.add_parser(commands)
    scores.add_parser(commands)
    smtlib.add_parser(commands)
    empirical.add_parser(commands)
    space.add_parser(commands)
    model.add_parser(commands)
    testing.add_parser(commands)
    demo = commands.add_parser("demo", help="the paper's loan example", description="The paper's loan example.")
    demo.set_defaults(run=_demo)
    engines = commands.add_parser("engines", help="the engines and their options", description="The engines.")
    engines.set_defaults(run=_engines)
    for command in (regions, blame, sample, verify, rows):
        command.add_parser(commands)
    gate.add_parser(commands)
    repair.add_parser(commands)
    completion.add_parser(commands)
    certify.add_parser(commands, add_model)
    return parser
