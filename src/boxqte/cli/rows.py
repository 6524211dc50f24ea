"""`boxqte rows`: which rows of a table are counterexamples, beside the share of the whole space."""

from __future__ import annotations

import argparse
from typing import Any

from boxqte.cli.arguments import (
    add_display,
    add_model_and_space,
    add_question,
    add_work,
    check_output,
    raise_first,
    read_question,
    write_text,
)

SHOWN = 20


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "rows",
        help="check the rows of a table one by one",
        description="Which rows are counterexamples, with the nearest input that the model treats otherwise. Exit codes: "
        "0 no row is one, 1 some are, 2 bad input.",
    )
    parser.add_argument("data", metavar="DATA.csv", help="the rows (CSV or Parquet)")
    add_model_and_space(parser)
    add_question(parser)
    add_work(parser, "--time-limit", "--workers")
    out = add_display(parser)
    out.add_argument("--output", "-o", metavar="FILE.csv", help="write the verdict on every row; - is standard output")
    out.add_argument("--only-rows", action="store_true", help="leave out the share of the space")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, "--output")
    model, space, prop = read_question(arguments)
    from boxqte.answers.rows import check
    from boxqte.api.quantify import quantify
    from boxqte.report.text import answer_words
    from boxqte.space.tables import read_table

    found = check(model, space, prop, read_table(arguments.data), workers=arguments.workers)
    raise_first(write_text(arguments.output, found.table.to_csv()) if arguments.output else None)
    if arguments.output != "-":
        counts = found.counts
        lines = [f"{'property':<16} {prop}"]
        if found.decision:
            lines.append(f"{'decision':<16} {found.decision}")
        lines += [f"{name:<16} {n} of {len(found.table)} rows" for name, n in counts.items() if n or name == "unfair"]
        share = (
            "undefined: no row is confident" if found.share is None else f"{1 - found.share:.6g} (exact, of these rows)"
        )
        lines.append(f"{'rows, measure':<16} {share}")
        if not arguments.only_rows:
            limit = 30.0 if arguments.time_limit is None else arguments.time_limit
            result = quantify(model, space, prop, time_limit=limit, workers=arguments.workers)
            lines.append(f"{'space, measure':<16} {answer_words(result)} ({result.status})")
        if found.disagreements:
            lines.append(
                f"{'note':<16} the library decides {len(found.disagreements)} of them otherwise: its sums are rounded"
            )
        unfair = found.table[found.table["verdict"] == "unfair"]
        if len(unfair):
            lines += ["", "row      nearest x' of the other class"]
            lines += [f"{index!s:<8} {row['changes']}" for index, row in unfair.head(SHOWN).iterrows()]
            if len(unfair) > SHOWN:
                lines.append(f"... and {len(unfair) - SHOWN} more; -o FILE.csv has them all")
        print("\n".join(lines))
    return 1 if found.counts["unfair"] else 0
