"""`boxqte repair`: a model that meets a requirement, written in its own format; and what that costs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    CommandError,
    add_display,
    add_model,
    add_one_hot,
    add_question,
    add_rules,
    add_work,
    check_output,
    converter,
    property_of,
    raise_first,
    read_count,
    read_names,
    read_one_hot,
    wants_colors,
    write_json,
)
from boxqte.cli.wording import in_flags

if TYPE_CHECKING:
    from boxqte.api.repair import Repair
    from boxqte.repairing.workshop import Step

OUTPUTS = ("output", "json", "csv", "checkpoint", "certificate")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "repair",
        help="change a model so that it meets a requirement",
        description="Change a model so that it provably meets a requirement, with few changed decisions; the space is "
        "inferred from the data unless it is given. Exit codes: 0 the requirement is met by exact measurement of the model as "
        "saved, 3 it is not met or not proved (the best model so far is written), 2 bad input.",
    )
    add_model(parser)
    group = parser.add_argument_group("the rows and the input space")
    group.add_argument("--data", metavar="TRAIN.csv", required=True, help="the training data")
    group.add_argument("--label", metavar="COLUMN", help="the target column of the data (default: that of the space)")
    group.add_argument("--test", metavar="TEST.csv", help="rows that the model has not seen, to say what the repair costs "
                       "(default: 30 %% of the data are held out)")  # fmt: skip
    group.add_argument("--space", metavar="SPACE.json", help="the input space (default: inferred from the data)")
    for kind in ("categorical", "integer", "real"):
        group.add_argument(f"--{kind}", metavar="A,B", action="append", help=f"columns that are {kind}")
    add_one_hot(group)
    add_rules(group)
    group.add_argument("--missing", choices=("error", "declare", "ignore"), default="error",
                       help="missing values: refuse, make them part of the domain, or leave them out")  # fmt: skip
    asked = add_question(parser)
    asked.add_argument("--at-least", metavar="R", help="the least measure (default 1)")
    asked.add_argument(
        "--policy", metavar="POLICY.toml", help="several requirements at once, instead (see boxqte gate)"
    )
    asked.add_argument("--of", choices=("space", "population", "rows"), default="space",
                       help="what the measure is a share of: the space, the space with the frequencies of the data, or the "
                       "rows of the data (default space)")  # fmt: skip
    asked.add_argument("--components", metavar="auto|K", default="1",
                       help="with --of population: a mixture of so many products (default 1: no correlations)")  # fmt: skip
    asked.add_argument("--path", metavar="R,R,...", help="instead of --at-least: the trade-off over these levels; the "
                       "highest is written")  # fmt: skip
    work = add_work(parser, "--engine", "--time-limit", "--workers", "--memory-limit")
    work.add_argument("--method", choices=("auto", "prune", "average", "refit"), default="auto",
                      help="how (default auto: prune where epsilon is 0, else refit)")  # fmt: skip
    work.add_argument("--random-state", metavar="N", type=converter(read_count, "a whole number"), default=0,
                      help="the seed of all that is drawn (default 0)")  # fmt: skip
    work.add_argument(
        "--checkpoint", metavar="FILE", help="written after every round; the same command goes on from it"
    )
    out = add_display(parser)
    out.add_argument("--output", "-o", metavar="REPAIRED", required=True, help="the repaired model, in MODEL's format")
    out.add_argument("--json", metavar="FILE", help="write the report as JSON; - is standard output")
    out.add_argument("--csv", metavar="FILE", help="write the trade-off as a table")
    out.add_argument("--certificate", metavar="FILE", help="write a proof of the repaired model's measure (epsilon 0); "
                     "boxqte certify checks it")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    for option in OUTPUTS:
        check_output(getattr(arguments, option), f"--{option}")
    if arguments.policy is not None and (arguments.sensitive or arguments.at_least or arguments.path):
        raise CommandError("--policy: has the requirements; leave out --sensitive, --at-least and --path")
    wanted = arguments.policy if arguments.policy is not None else property_of(arguments)
    from boxqte.api.repair import repair
    from boxqte.engines import DEFAULT_ENGINE
    from boxqte.models.importers import load_model
    from boxqte.report.progress import show_steps
    from boxqte.report.repair import repair_text

    if arguments.trees is not None:
        load_model(arguments.model, allow_pickle=arguments.allow_pickle, trees=arguments.trees)
        raise CommandError("--trees: a repaired model has the trees that its library predicts with; leave it out")
    kinds = {kind: read_names(getattr(arguments, kind), f"--{kind}") for kind in ("categorical", "integer", "real")}
    infer = {**{k: v for k, v in kinds.items() if v}, "missing": arguments.missing}
    infer["one_hot"] = read_one_hot(arguments.one_hot)
    colors = wants_colors(arguments, sys.stderr)
    with show_steps("repair", time_limit=arguments.time_limit, quiet=arguments.quiet, color=colors) as say:

        def hear(step: Step) -> None:
            if say is not None:
                say(str(step))

        found = repair(
            arguments.model,
            arguments.data,
            wanted,
            arguments.at_least,
            label=arguments.label,
            method=arguments.method,
            on=arguments.of,
            components=arguments.components,
            space=arguments.space,
            rules=arguments.rule or (),
            test=arguments.test,
            path=None if arguments.path is None else read_names([arguments.path], "--path"),
            random_state=arguments.random_state,
            time_limit=arguments.time_limit,
            progress=hear,
            checkpoint=arguments.checkpoint,
            engine=arguments.engine or DEFAULT_ENGINE,
            workers=arguments.workers,
            memory_limit=arguments.memory_limit,
            infer=infer if arguments.space is None else None,
            allow_pickle=arguments.allow_pickle,
            threshold=arguments.decision_threshold,
        )
    found.save(arguments.output)
    unwritten = write_json(arguments.json, found.to_json())
    if arguments.json != "-":
        print(in_flags(repair_text(found), arguments.command))
    raise_first(unwritten)
    _rest(arguments, found)
    return found.exit_code


def _rest(arguments: argparse.Namespace, found: Repair) -> None:
    """The table, the certificate, and where the model is."""
    if arguments.csv is not None:
        found.to_frame().to_csv(sys.stdout if arguments.csv == "-" else arguments.csv, index=False)
    if arguments.certificate is not None:
        found.certificate(arguments.certificate)
    if not arguments.quiet:
        which = "the repaired model" if found.met else "the best model so far, which does NOT meet the requirement,"
        print(f"boxqte: {which} is in {arguments.output}", file=sys.stderr)
