"""`boxqte gate`: does a model satisfy a policy? The exit code is the answer."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    add_display,
    add_reading,
    add_rules,
    add_work,
    check_output,
    given_model,
    raise_first,
    wants_colors,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from boxqte.auditing.policy import GateReport, Requirement
    from boxqte.engines.protocol import Progress

INTERRUPTED = 130
ANSI = {"holds": "32", "violated": "31", "undecided": "33"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "gate",
        help="check a model against a policy file",
        description="Check a model against a policy file. Exit codes: 0 every requirement holds, 1 one is violated, "
        "3 none is violated but one is undecided, 2 bad input.",
    )
    parser.add_argument("policy", metavar="POLICY.toml", help="the requirements, one line each under [require]")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the model file; left out: the policy's")
    add_reading(parser)
    parser.add_argument("--space", metavar="SPACE.json", help="the input space; left out: the policy's")
    add_rules(parser)
    add_work(parser, "--engine", "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--junit", metavar="FILE", help="write JUnit XML for the build server; - is standard output")
    out.add_argument("--markdown", metavar="FILE", help="write a Markdown summary for a pull request; - is standard "
                     "output")  # fmt: skip
    out.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    for option in ("junit", "markdown", "json"):
        check_output(getattr(arguments, option), f"--{option}")
    from boxqte.api.gate import Policy

    policy = Policy.load(arguments.policy)
    with _progress(arguments) as progress:
        report = policy.check(
            given_model(arguments),
            arguments.space,
            rules=arguments.rule or (),
            time_limit=arguments.time_limit,
            engine=arguments.engine,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            progress=progress,
            allow_pickle=arguments.allow_pickle,
            threshold=arguments.decision_threshold,
        )
    unwritten = (
        write_text(arguments.junit, report.to_junit() if arguments.junit else ""),
        write_text(arguments.markdown, report.to_markdown() if arguments.markdown else ""),
        write_json(arguments.json, report.to_json() if arguments.json else None),
    )
    if "-" not in (arguments.junit, arguments.markdown, arguments.json):
        print(gate_text(report, color=wants_colors(arguments, sys.stdout)))
    raise_first(*unwritten)
    return INTERRUPTED if report.interrupted else report.exit_code


def gate_text(report: GateReport, *, color: bool = False) -> str:
    """One line a requirement, and the verdict on all of them."""
    from boxqte.report.text import found_words, required_words, table_text

    rows = [("verdict", "requirement", "required", "measure")]
    for check in report.checks:
        required = required_words(check.requirement).replace("at least", ">=")
        rows.append((str(check.verdict), check.requirement.name, required, found_words(check)))
    lines = table_text(rows).splitlines()
    if color:
        for i, check in enumerate(report.checks, 1):
            word = str(check.verdict)
            lines[i] = f"\x1b[{ANSI[word]}m{word}\x1b[0m{lines[i][len(word) :]}"
    lines += [f"{check.requirement.name}: {check.why}" for check in report.checks if check.why]
    if report.decision is not None:
        lines.append(f"decision: {report.decision.text()}")
    words = {"holds": "every requirement holds", "violated": "a requirement is violated"}
    return "\n".join([*lines, "", words.get(str(report.verdict), "a requirement is undecided, none is violated")])


@contextlib.contextmanager
def _progress(arguments: argparse.Namespace) -> Iterator[Any]:
    """One display for all requirements; each begins with its own bounds."""
    from boxqte.report.progress import show_progress

    with contextlib.ExitStack() as stack:
        current: list[Any] = [None, None]

        def show(requirement: Requirement, limit: float | None, progress: Progress) -> None:
            if current[0] != (requirement, limit):  # it may be asked again, with the time that the others have left
                stack.close()
                panel = show_progress(requirement.name, time_limit=limit, color=wants_colors(arguments, sys.stderr))
                current[:] = (requirement, limit), stack.enter_context(panel)
            current[1](progress)

        yield None if arguments.quiet else show
