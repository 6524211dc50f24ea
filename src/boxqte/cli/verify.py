"""`boxqte verify`: is there any counterexample at all? The exit code is the answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from boxqte.cli.arguments import (
    add_display,
    add_model_and_space,
    add_question,
    add_work,
    check_output,
    raise_first,
    read_question,
    write_json,
)

if TYPE_CHECKING:
    from boxqte.answers.verify import Verification


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="find a counterexample, or prove there is none",
        description="Find a counterexample, or prove there is none. Exit codes: 0 there is none, 1 there is one, 3 a limit "
        "came first, 2 bad input.",
    )
    add_model_and_space(parser)
    asked = add_question(parser)
    asked.add_argument("--near", metavar="DATA.csv", help="the counterexample closest to these rows that is found")
    add_work(parser, "--time-limit", "--workers")
    out = add_display(parser)
    out.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.json, "--json")
    model, space, prop = read_question(arguments)
    from boxqte.answers.verify import verify
    from boxqte.space.tables import read_table

    found = verify(
        model,
        space,
        prop,
        near=None if arguments.near is None else read_table(arguments.near),
        time_limit=arguments.time_limit,
        workers=arguments.workers,
    )
    unwritten = write_json(arguments.json, found.to_json())
    if arguments.json != "-":
        print(verification_text(found, str(prop)))
    raise_first(unwritten)
    return found.verdict.exit_code


def verification_text(found: Verification, question: str) -> str:
    """The verdict, and the pair if there is one."""
    lines = [f"{'property':<12} {question}", f"{'verdict':<12} {found.verdict} ({found.how}, {found.seconds:.2f} s)"]
    if found.decision:
        lines.append(f"{'decision':<12} {found.decision}")
    lines += [f"{'remark' if not i else '':<12} {remark}" for i, remark in enumerate(found.remarks)]
    if found.why:
        lines.append(f"{'why':<12} {found.why}")
    if found.x is not None and found.witness is not None:
        one, two = found.x.iloc[0].to_dict(), found.witness.iloc[0].to_dict()
        width = max(len(str(name)) for name in one)
        lines += ["", f"  {'':<{width}}  {'x':<16}x'"]
        for name, value in one.items():
            same = _shown(value) == _shown(two[name])
            lines.append(f"  {name:<{width}}  {_shown(value):<16}{'' if same else _shown(two[name])}".rstrip())
        lines.append("")
        lines.append(_replay_text(found))
        if found.distance is not None:
            lines.append(
                f"x is {found.distance:.4g} from row {found.row} (sum of differences, each a share of its range)"
            )
    return "\n".join(lines)


def _replay_text(found: Verification) -> str:
    """What the model's own library makes of the pair."""
    if found.replayed is None:
        return "the library is not installed, so the pair was not replayed"
    if found.scores is None:
        gives = "different classes" if found.replayed else "one class: its sums are rounded, ours are exact"
        return f"the library's own predict gives them {gives}"
    scores = " and ".join(f"{score:.9g}" for score in found.scores)
    rounded = "" if found.replayed else ", which do not break it: its sums are rounded, ours are exact"
    return f"the library's own scores are {scores}{rounded}"


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
