"""`boxqte regions`: where the counterexamples are, by attribute, and from which sensitive value to which."""

from __future__ import annotations

import argparse
import math
from typing import Any

from boxqte.commands.arguments import (
    add_display,
    add_model,
    add_question,
    add_work,
    check_output,
    converter,
    property_of,
    raise_first,
    read_count,
    read_names,
    write_text,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "regions",
        help="where the counterexamples are",
        description="Where the counterexamples are: the regions with the most of them as rules, largest first.",
    )
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", required=True, help="the input space (boxqte space infer)")
    asked = add_question(parser)
    asked.add_argument("--where", metavar="CONDITION", help="only x that satisfy it count: age >= 60 and sex == 'f'")
    add_work(parser, "--time-limit", "--workers", "--memory-limit")
    out = add_display(parser)
    out.add_argument("--top", metavar="N", type=converter(read_count, "a whole number"), default=20,
                     help="how many regions (default 20)")  # fmt: skip
    out.add_argument("--pure", action="store_true", help="split the largest until they hold counterexamples only")
    out.add_argument("--profile", metavar="A,B", action="append", help="counterexamples by value of these attributes")
    out.add_argument("--pairs", action="store_true", help="from which sensitive value to which")
    out.add_argument("--csv", metavar="FILE", help="write the regions as CSV; - is standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.csv, "--csv")
    prop = property_of(arguments)
    from boxqte.importers import load_model
    from boxqte.printing import answer_text
    from boxqte.quantification import quantify
    from boxqte.space import Space

    space = Space.load(arguments.space)
    prop.check(space)
    for name in read_names(arguments.profile, "--profile"):
        _ = space[name]
    result = quantify(
        load_model(arguments.model, allow_pickle=arguments.allow_pickle),
        space,
        prop,
        time_limit=arguments.time_limit,
        workers=arguments.workers,
        memory_limit=arguments.memory_limit,
    )
    if arguments.where is not None:
        result = result.restrict(arguments.where)
    table = result.regions(arguments.top, pure=arguments.pure or None)
    if arguments.csv is not None:
        raise_first(write_text(arguments.csv, table.to_csv(index=False)))
    if arguments.csv != "-":
        print(answer_text(result))
        if arguments.where is not None:
            print(f"{'where':<20} {arguments.where} ({result.details['share_of_space']:.6g} of the space)")
        print()
        print(regions_text(table))
        for name in read_names(arguments.profile, "--profile"):
            print(f"\n{name}\n{result.profile(name).to_string(index=False, float_format=_number)}")
        if arguments.pairs:
            print(f"\nfrom (row) to (column)\n{result.pairs().to_string(float_format=_number)}")
    return 0


def regions_text(table: Any) -> str:
    """One line a region: its share of all counterexamples, its density, the rule, and who gets what."""
    if not len(table):
        return "no counterexample was found" + ("" if table.attrs["complete"] else " so far")
    lines = ["share    density  rule"]
    for _, row in table.iterrows():
        flip = f"   [{row['flip']}]" if row["flip"] else ""
        lines.append(f"{row['share']:<8.4f} {row['density']:<8.4f} {row['rule']}{flip}")
    listed, complete = table["share"].sum(), table.attrs["complete"]
    shown = f"{listed:.4f}  " if complete else f"at least {math.floor(10_000 * listed) / 10_000:.4f}"
    lines.append(f"{shown} of the counterexamples, in {len(table)} of {table.attrs['regions']} regions"
                 + ("" if complete else " found so far"))  # fmt: skip
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.6g}"
