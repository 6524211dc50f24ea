"""`boxqte regions`: where the counterexamples are, by attribute, and from which sensitive value to which."""

from __future__ import annotations

import argparse
import math
from typing import Any

from boxqte.basics.numbers import CELL, number_text
from boxqte.cli.arguments import (
    add_display,
    add_model_and_space,
    add_population,
    add_question,
    add_work,
    check_output,
    converter,
    load_space,
    raise_first,
    read_count,
    read_names,
    read_result,
    write_text,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "regions",
        help="where the counterexamples are",
        description="Where the counterexamples are: the regions with the most of them as rules, largest first.",
    )
    add_model_and_space(parser)
    add_population(parser)
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
    from boxqte.report.text import answer_text

    for name in read_names(arguments.profile, "--profile"):
        _ = load_space(arguments)[name]  # better now than after the search: is it there?
    result = read_result(arguments)
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
            print(f"\n{profile_text(result.profile(name))}")
        if arguments.pairs:
            print(f"\n{pairs_text(result.pairs())}")
    return 0


HOW_TO_READ = "two numbers are certain bounds, one number is certain to the digits shown"


def regions_text(table: Any) -> str:
    """One line a region: its share of all counterexamples, its density, the rule, and who gets what."""
    if not len(table):
        return "no counterexample was found" + ("" if table.attrs["complete"] else " so far")
    from boxqte.report.text import table_text

    complete = table.attrs["complete"]
    rows = [("share", "density", "rule")]
    for _, row in table.iterrows():
        flip = f"   [{row['flip']}]" if row["flip"] else ""
        share = number_text(row["share"], row["share"] if complete else None, CELL)
        rows.append((share, number_text(row["density"], row["density"], CELL), f"{row['rule']}{flip}"))
    listed = min(float(table["share"].sum()), 1.0)
    shown = number_text(listed, listed if complete else None, CELL)
    found = "" if complete else " found so far"
    last = f"{shown} of the counterexamples, in {len(table)} of {table.attrs['regions']} regions{found}"
    return "\n".join([table_text(rows), f"{last}; certain, to the digits shown"])


def profile_text(table: Any) -> str:
    """One line a value: its share of all inputs, how much of it is counterexamples, and its share of them."""
    from boxqte.report.text import table_text

    rows: list[tuple[str, ...]] = [(str(table.attrs["attribute"]), "of all inputs", "unfair", "of the unfair")]
    for row in table.to_dict("records"):
        ends = [
            (row["mass"], row["mass"]),
            *((row[f"{name}_lower"], row[f"{name}_upper"]) for name in ("density", "share")),
        ]
        shown = ["" if math.isnan(low) else number_text(low, high, CELL) for low, high in ends]
        rows.append((str(row["value"]), *shown))
    return f"{table_text(rows)}\n{HOW_TO_READ}"


def pairs_text(table: Any) -> str:
    """The matrix: of all inputs, those of the row that the value of the column turns."""
    from boxqte.report.text import table_text

    upper = table.attrs["upper"]
    rows = [("from \\ to", *map(str, table.columns))]
    for i, name in enumerate(table.index):
        shares = [number_text(table.iloc[i, j], upper[i][j], CELL) for j in range(len(table.columns))]
        rows.append((str(name), *shares))
    return f"{table_text(rows)}\n{HOW_TO_READ}"
