"""`boxqte audit`: from a model file and its training data to one table and a report."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    CommandError,
    add_display,
    add_explorer,
    add_newer_questions,
    add_one_hot,
    add_reading,
    add_rules,
    add_work,
    check_explorer,
    check_output,
    converter,
    given_model,
    question_of,
    raise_first,
    read_names,
    read_one_hot,
    read_tolerances,
    wants_colors,
    write_json,
    write_text,
)
from boxqte.cli.wording import in_flags, inference_in_flags

if TYPE_CHECKING:
    from boxqte.api.audit import Audit

INTERRUPTED = 130
NEWER = ("partner_kappa", "max_change", "monotone", "on", "score_at_most", "scale")
OUTPUTS = ("html", "json", "save_space", "junit", "markdown", "model_card")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="every sensitive attribute, all together, and robustness; with a report",
        description="Infer the input space from the training data, then measure fairness in each sensitive attribute, "
        "in all of them together, and robustness. Exit codes: 0 done (or, with --require or --policy, all holds), "
        "1 violated, 3 undecided, 2 bad input.",
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the model file (or `model` in boxqte.toml)")
    add_reading(parser)
    _add_space(parser)
    _add_asked(parser)
    work = add_work(parser, "--engine", "--workers", "--memory-limit")
    work.add_argument("--time-limit", metavar="S", type=converter(float, "a number"), default=300.0,
                      help="seconds for everything, the report too (default 300; inf: no limit)")  # fmt: skip
    out = add_display(parser)
    out.add_argument("--html", metavar="REPORT.html", help="write the report: one file, readable offline")
    add_explorer(out)
    for who, what in (("author", "who made the audit"), ("reviewer", "who reviews it"), ("purpose", "what it is for")):
        out.add_argument(f"--{who}", metavar="TEXT", default="", help=f"{what}, for the report")
    out.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    out.add_argument("--save-space", metavar="SPACE.json", help="write the inferred space, to edit it and use it again")
    out.add_argument("--model-card", metavar="FILE", help="write a section for a model card, in Markdown")
    out.add_argument("--junit", metavar="FILE", help="with --require or --policy: write JUnit XML")
    out.add_argument("--markdown", metavar="FILE", help="with --require or --policy: write a Markdown summary")
    parser.set_defaults(run=run)


def _add_space(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the input space")
    group.add_argument(
        "--data", metavar="TRAIN.csv", help="the training data, to infer the space from and to compare with"
    )
    group.add_argument("--space", metavar="SPACE.json", help="the input space, where it is not to be inferred")
    group.add_argument("--worlds", metavar="A,B", action="append",
                       help="what is asked about beside the space: population, rows (default: both, with --data)")  # fmt: skip
    group.add_argument("--components", metavar="auto|K", default="auto",
                       help="products in the population; auto (default): as many as pay off, up to 8")  # fmt: skip
    add_rules(group)
    group.add_argument("--label", metavar="COLUMN", help="the target column of the data, which is no attribute")
    for kind in ("categorical", "integer", "real"):
        group.add_argument(f"--{kind}", metavar="A,B", action="append", help=f"columns that are {kind}")
    add_one_hot(group)
    group.add_argument("--missing", choices=("error", "declare", "ignore"), default="error",
                       help="missing values: refuse, make them part of the domain, or leave them out")  # fmt: skip
    group.add_argument("--mass", choices=("uniform", "data"), default="uniform",
                       help="all values of an attribute alike, or as often as in the data")  # fmt: skip


def _add_asked(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--sensitive", metavar="A,B", action="append", help="the sensitive attributes")
    epsilon = asked.add_mutually_exclusive_group()
    epsilon.add_argument("--epsilon-rate", metavar="R", default="0",
                         help="tolerance as a share of each numeric attribute's range (default 0)")  # fmt: skip
    epsilon.add_argument("--epsilon", metavar="NAME=VALUE,...", action="append",
                         help="tolerance per attribute, in its own unit; 0 for those that are not named")  # fmt: skip
    asked.add_argument("--robustness-rate", metavar="R",
                       help="tolerance of the robustness question (default: that of fairness, or 0.01 if that is 0; "
                       "0 leaves the question out)")  # fmt: skip
    asked.add_argument("--kappa", metavar="K", default="0.5",
                       help="only inputs with confidence above it count (default 0.5: all)")  # fmt: skip
    asked.add_argument("--tie", choices=("library", "paper"), default="library",
                       help="the class at margin 0: what the library's predict says, or none")  # fmt: skip
    add_newer_questions(asked, several=True)
    asked.add_argument("--require", metavar="R", help="the least measure of every fairness question")
    asked.add_argument("--policy", metavar="POLICY.toml", help="requirements to check as well (see boxqte gate)")


def run(arguments: argparse.Namespace) -> int:
    for option in OUTPUTS:
        check_output(getattr(arguments, option), f"--{option.replace('_', '-')}")
    check_explorer(arguments)
    sensitive = _check(arguments)
    from boxqte.api.audit import audit
    from boxqte.report.progress import show_questions

    epsilon = arguments.epsilon_rate if arguments.epsilon is None else read_tolerances(arguments.epsilon)
    further = question_of(arguments, NEWER)
    kinds = {kind: read_names(getattr(arguments, kind), f"--{kind}") for kind in ("categorical", "integer", "real")}
    with show_questions(quiet=arguments.quiet, color=wants_colors(arguments, sys.stderr)) as progress:
        found = audit(
            given_model(arguments),
            arguments.data,
            sensitive=sensitive,
            space=arguments.space,
            rules=arguments.rule or (),
            label=arguments.label,
            worlds=None if arguments.worlds is None else read_names(arguments.worlds, "--worlds"),
            components=arguments.components,
            epsilon=epsilon,
            kappa=arguments.kappa,
            tie=arguments.tie,
            robustness=arguments.robustness_rate,
            **further | {"partner_kappa": further["partner_kappa"] or 0},
            policy=arguments.policy,
            require=arguments.require,
            time_limit=arguments.time_limit,
            report=arguments.html is not None,
            engine=arguments.engine,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            infer={
                **kinds,
                "one_hot": read_one_hot(arguments.one_hot),
                "missing": arguments.missing,
                "mass": arguments.mass,
            },
            progress=progress,
            allow_pickle=arguments.allow_pickle,
            threshold=arguments.decision_threshold,
            author=arguments.author,
            reviewer=arguments.reviewer,
            purpose=arguments.purpose,
            command=shlex.join(["boxqte", *arguments.typed]),
        )
    if found.inference is not None:
        found = replace(found, inference=inference_in_flags(found.inference, arguments.command))
    if "-" not in [getattr(arguments, option) for option in OUTPUTS]:
        # before the files: regions and examples for the report take a while
        print(in_flags(audit_text(found), arguments.command), flush=True)
    unwritten = [
        write_json(arguments.save_space, found.space.to_json()),
        write_json(arguments.json, found.to_json()),
    ]
    unwritten.append(write_text(arguments.model_card, found.to_model_card() if arguments.model_card else ""))
    if found.gate is not None:
        unwritten.append(write_text(arguments.junit, found.gate.to_junit() if arguments.junit else ""))
        unwritten.append(write_text(arguments.markdown, found.gate.to_markdown() if arguments.markdown else ""))
    if arguments.html:
        with _steps(arguments, found) as say:
            page = found.to_html(progress=say, explorer=arguments.explorer)
        unwritten.append(write_text(arguments.html, page))
    raise_first(*unwritten)
    if arguments.html and not arguments.quiet:
        print(f"boxqte: the report is {arguments.html}", file=sys.stderr)
    if found.interrupted:
        print("boxqte: interrupted; the bounds are certain, the rest was not asked", file=sys.stderr)
        return INTERRUPTED
    return 0 if found.gate is None else found.gate.exit_code


def _check(arguments: argparse.Namespace) -> list[str]:
    if arguments.model is None:
        raise CommandError("audit: the model is missing; expected boxqte audit MODEL, or `model` in boxqte.toml")
    if arguments.data is None and arguments.space is None:
        raise CommandError("audit: expected --data TRAIN.csv or --space SPACE.json, or both, found neither")
    if arguments.sensitive is None:
        raise CommandError("audit: --sensitive is missing; expected the sensitive attributes, such as sex,race")
    if arguments.require is None and arguments.policy is None and (arguments.junit or arguments.markdown):
        raise CommandError("audit: --junit and --markdown report verdicts; expected --require or --policy too")
    for option, needs in (("on", "monotone"), ("scale", "score_at_most")):
        if getattr(arguments, option) is not None and getattr(arguments, needs) is None:
            raise CommandError(f"--{option}: belongs to --{needs.replace('_', '-')}; give it too")
    return read_names(arguments.sensitive, "--sensitive")


def audit_text(found: Audit) -> str:
    """What was inferred, and one table of answers."""
    from boxqte.report.text import check_text, space_text

    parts = [str(found.inference) if found.inference is not None else space_text(found.space), "", str(found), ""]
    parts.append(
        "the numbers: the share of the confident inputs that is treated fairly, over the whole space above unless said (for\n"
        "robustness: whose class no small change turns; for scores and monotonicity: that no other input contradicts);\n"
        "exact or certain, rounded outward where two bounds are shown"
    )
    if any(result.statistical is not None for result in found.results):
        parts.append(
            "statistical: from random inputs, each decided exactly; it holds with the confidence, and is no proof"
        )
    if found.gate is not None:
        parts += ["", *(f"{check.requirement.name}: {check_text(check)}" for check in found.gate.checks)]
    return "\n".join(parts)


@contextlib.contextmanager
def _steps(arguments: argparse.Namespace, found: Audit) -> Iterator[Any]:
    """What the report is waiting for."""
    from boxqte.report.progress import show_steps

    left = None if found.clock is None or found.clock.seconds is None else found.clock.left
    color = wants_colors(arguments, sys.stderr)
    with show_steps("report", time_limit=left, quiet=arguments.quiet, color=color) as say:
        yield say
